"""Notices gradients of float16 without a loss scaler that are mostly zero, and asks what they are in float32."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from unstuck.instruments.guard import Guard, Incident
from unstuck.instruments.moments import Moments
from unstuck.places import user_chain
from unstuck.signals import Rest

__all__ = ["LOOKS", "ZEROS", "Underflow", "computed_in_float16", "share_of_zeros"]

LOOKS = (6, 24, 256, 2048, 16384)
"""Steps that are looked at; the first two while every moment of a step is kept."""

_NODES = 4096
"""Operations of a graph that are looked at."""

ZEROS = 0.5
"""Share of zeros among the gradients from which on a step is worth running again."""


class Underflow:
    """The instrument.

    Args:
        guard: counts steps and knows the backward calls of the present one.
        moments: of the present step.
        examine: told of a step whose gradients are mostly zero.
    """

    name = "underflow"

    def __init__(self, guard: Guard, moments: Moments, examine: Callable[[Incident, str], None]) -> None:
        self._guard = guard
        self._moments = moments
        self._examine = examine
        self._looked = -1
        self._closure: torch.optim.Optimizer | None = None
        self.rest = Rest(("step_begins", "backward_ended", "step_ended"))
        self._scales = False
        self._half = False

    def loss_scaled(self, scaler: Any, frame: FrameType) -> None:
        self._scales = True

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: Any, frame: FrameType) -> None:
        step = self._guard.steps
        if step not in LOOKS:
            self.rest.begin(min((look - step for look in LOOKS if look > step), default=None))
        if step not in LOOKS or self._scales or self._looked == step or isinstance(optimizer, torch.optim.LBFGS):
            return
        self._looked = step
        if closure is None:
            self._look(optimizer, frame)
        else:
            self._closure = optimizer  # a trainer computes the gradients inside of the step

    def backward_ended(self, tensors: Any) -> None:
        optimizer, self._closure = self._closure, None
        if optimizer is not None:
            self._look(optimizer, sys._getframe(1))

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._closure = None

    def _look(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._half = self._half or _uses_float16(optimizer, self._moments)
        window = self._guard.window
        if not self._half or len(window) != 1 or share_of_zeros(optimizer) < ZEROS:
            return
        self._examine(self._guard.present("none", optimizer, window, user_chain(frame)), "float16")


def _uses_float16(optimizer: torch.optim.Optimizer, moments: Moments) -> bool:
    forward = moments.forward
    if forward is not None and any(dtype is torch.float16 for _, dtype in forward.autocast):
        return True
    return any(item.dtype is torch.float16 for group in optimizer.param_groups for item in group["params"])


def share_of_zeros(optimizer: torch.optim.Optimizer) -> float:
    """Of the elements of an optimiser's gradients, how many are zero; 0 without gradients."""
    zeros = elements = 0
    for group in optimizer.param_groups:
        for item in group["params"]:
            if item.grad is not None and item.grad.layout is torch.strided:
                zeros += item.grad.numel() - int(torch.count_nonzero(item.grad))
                elements += item.grad.numel()
    return zeros / elements if elements else 0.0


def computed_in_float16(loss: torch.Tensor) -> bool:
    """Whether float16 took part in a loss, by its graph."""
    stack = [] if loss.grad_fn is None else [loss.grad_fn]
    visited = set(stack)
    while stack and len(visited) < _NODES:
        node = stack.pop()
        if any(item.dtype is torch.float16 for item in getattr(node, "_input_metadata", ())):
            return True
        for following, _ in node.next_functions:
            if following is not None and following not in visited:
                visited.add(following)
                stack.append(following)
    return False
