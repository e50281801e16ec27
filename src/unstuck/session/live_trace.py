"""The second run of ``--rerun``: everything is traced from a step on, live, until the incident comes again."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from unstuck.instruments.guard import Guard
from unstuck.instruments.inventory import find_models
from unstuck.trials.tracing import OpTrace

__all__ = ["LiveTrace"]


class LiveTrace:
    """An instrument that opens a trace when a step begins and closes it when the step was healthy.

    Args:
        step: index of the step from which on to trace.
        guard: counts the steps and keeps the optimisers.
    """

    name = "live trace"

    def __init__(self, step: int, guard: Guard) -> None:
        self._step = step
        self._guard = guard
        self._trace: OpTrace | None = None

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        if self._step == 0:
            self._open(frame, None)

    def batch_drawn(self, iterator: Any, batch: Any, frame: FrameType) -> None:
        self._restart(frame, batch)

    def forward_begins(self, module: torch.nn.Module, args: Any, kwargs: Any, frame: FrameType) -> None:
        if self._trace is None:
            self._restart(frame, (args, dict(kwargs)))

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        if self._guard.steps + 1 >= self._step:  # the guard counts this step after us
            self.end()
            self._open(frame, None)

    def run_ends(self) -> None:
        self.end()

    def end(self) -> OpTrace | None:
        """Close the present trace and return it."""
        trace, self._trace = self._trace, None
        if trace is not None:
            trace.__exit__(None, None, None)
        return trace

    def _restart(self, frame: FrameType, batch: Any) -> None:
        if self._guard.steps >= self._step and not self._guard.has_window:
            self.end()
            self._open(frame, batch)

    def _open(self, frame: FrameType, batch: Any) -> None:
        models = find_models(frame, self._guard.optimizers.values())
        self._trace = OpTrace(models=models, batch=batch)
        self._trace.__enter__()
