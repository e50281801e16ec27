"""Lets only the signals of certain models and optimisers through; other training in the process is not watched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import CodeType, FrameType
from typing import Any

import torch

from unstuck.places import is_user_file
from unstuck.signals import Bus

__all__ = ["ScopedBus"]

_DEPTH = 4
"""User frames by which one backward call is told from another."""


class ScopedBus:
    """Stands before a bus and drops what concerns other models and optimisers.

    Args:
        bus: where the rest goes.
        models: whose passes and parameters count; none means all.
        optimizers: whose steps count; none means all that hold a parameter of the models.
    """

    def __init__(
        self, bus: Bus, models: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]
    ) -> None:
        self._bus = bus
        models = list(models)
        self._optimizers = list(optimizers)
        self._modules = {id(module) for model in models for module in model.modules()}
        self._parameters = {id(item) for model in models for item in model.parameters()}
        for optimizer in self._optimizers:
            self._parameters |= {id(item) for group in optimizer.param_groups for item in group["params"]}
        self._ours: dict[int, tuple[torch.optim.Optimizer, bool]] = {}
        self._calls: dict[tuple[tuple[CodeType, int], ...], bool] = {}
        self._in_ours = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    @property
    def muted(self) -> bool:
        """As the bus's."""
        return self._bus.muted

    @muted.setter
    def muted(self, value: bool) -> None:
        self._bus.muted = value

    # -- what is told apart ------------------------------------------------------------------------------------------

    def _holds(self, optimizer: torch.optim.Optimizer) -> bool:
        known = self._ours.get(id(optimizer))
        if known is not None and known[0] is optimizer:
            return known[1]
        if self._optimizers:
            ours = any(item is optimizer for item in self._optimizers)
        else:
            ours = self._touches(item for group in optimizer.param_groups for item in group["params"])
        self._ours[id(optimizer)] = (optimizer, ours)
        return ours

    def _touches(self, tensors: Iterable[torch.Tensor]) -> bool:
        return any(id(item) in self._parameters for item in tensors)

    def _reaches(self, tensors: Sequence[Any], frame: FrameType) -> bool:
        """Whether a backward call reaches our parameters; looked up once per line that makes it."""
        key = _place(frame)
        known = self._calls.get(key)
        if known is None:
            known = self._calls[key] = self._graph_touches(tensors)
        return known

    def _graph_touches(self, tensors: Sequence[Any]) -> bool:
        stack = [getattr(item, "grad_fn", None) for item in tensors]
        seen = set(stack)
        if self._touches(item for item in tensors if isinstance(item, torch.Tensor)):
            return True
        while stack:
            node = stack.pop()
            if node is None:
                continue
            if id(getattr(node, "variable", None)) in self._parameters:
                return True
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    stack.append(following)
        return False

    # -- signals that are filtered -----------------------------------------------------------------------------------

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        if not self._optimizers and self._holds(optimizer):
            self._bus.optimizer_created(optimizer, frame)

    def forward_begins(self, module: torch.nn.Module, args: Any, kwargs: Any, frame: FrameType) -> None:
        if not self._modules or id(module) in self._modules or self._touches(module.parameters()):
            self._bus.forward_begins(module, args, kwargs, frame)

    def backward_begins(self, tensors: Sequence[Any], frame: FrameType) -> None:
        self._in_ours = self._reaches(tensors, frame)
        if self._in_ours:
            self._bus.backward_begins(tensors, frame)

    def backward_ended(self, tensors: Sequence[Any]) -> None:
        if self._in_ours:
            self._bus.backward_ended(tensors)

    def gradients_zeroed(self, owner: Any) -> None:
        ours = self._touches(owner.parameters()) if isinstance(owner, torch.nn.Module) else self._holds(owner)
        if ours:
            self._bus.gradients_zeroed(owner)

    def clip_begins(self, parameters: Any, kind: str, limit: Any, frame: FrameType) -> None:
        if self._clips_ours(parameters):
            self._bus.clip_begins(parameters, kind, limit, frame)

    def gradients_clipped(self, parameters: Any, kind: str, limit: Any, norm: Any) -> None:
        if self._clips_ours(parameters):
            self._bus.gradients_clipped(parameters, kind, limit, norm)

    def _clips_ours(self, parameters: Any) -> bool:
        # clipping nothing at all may be meant for ours
        if isinstance(parameters, torch.Tensor):
            return id(parameters) in self._parameters
        return not parameters or self._touches(parameters)

    def gradients_unscaled(self, scaler: Any, optimizer: Any) -> None:
        if self._holds(optimizer):
            self._bus.gradients_unscaled(scaler, optimizer)

    def scaler_step_begins(self, scaler: Any, optimizer: Any, frame: FrameType) -> None:
        if self._holds(optimizer):
            self._bus.scaler_step_begins(scaler, optimizer, frame)

    def scaler_stepped(self, scaler: Any, optimizer: Any) -> None:
        if self._holds(optimizer):
            self._bus.scaler_stepped(scaler, optimizer)

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: Any, frame: FrameType) -> None:
        if self._holds(optimizer):
            self._bus.step_begins(optimizer, closure, frame)

    def closure_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        if self._holds(optimizer):
            self._bus.closure_ended(optimizer, frame)

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        if self._holds(optimizer):
            self._bus.step_ended(optimizer, frame)

    def schedule_created(self, scheduler: Any, frame: FrameType) -> None:
        if self._holds(scheduler.optimizer):
            self._bus.schedule_created(scheduler, frame)

    def schedule_stepped(self, scheduler: Any) -> None:
        if self._holds(scheduler.optimizer):
            self._bus.schedule_stepped(scheduler)


def _place(frame: FrameType | None) -> tuple[tuple[CodeType, int], ...]:
    place: list[tuple[CodeType, int]] = []
    while frame is not None and len(place) < _DEPTH:
        if is_user_file(frame.f_code.co_filename):
            place.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(place)
