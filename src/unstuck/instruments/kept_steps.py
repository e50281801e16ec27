"""Keeps the first steps of a training so that trials can run them again at its end: from where, on which batches, with
which weights it began.

What is kept is bounded: references to a few batches and to the program's objects, one copy of the weights. What the
program drops is let go at the next full garbage collection, as an object in a reference cycle would be.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from unstuck.instruments.guard import Backward, Guard
from unstuck.instruments.inventory import Inventory, find_models
from unstuck.instruments.moments import FrameMoment, Moment, Moments
from unstuck.instruments.spooled import SpooledTensors
from unstuck.signals import Rest

__all__ = ["Kept", "KeptStep", "KeptSteps"]

STEPS = 32
"""Steps that are kept; as many as every moment is taken in."""

_BATCH_BYTES = 128 * 2**20
"""Bytes of batches that are kept alive."""

_WEIGHT_BYTES = 256 * 2**20
"""Bytes of weights that are copied."""

_SECONDS = 2e-3
"""Time that looking for modules may take at each step."""


class _Handle(NamedTuple):
    """Stands in kept values for an object of the program that the program may drop."""

    key: int


@dataclass(frozen=True)
class KeptStep:
    """One optimiser step with the backward call that led to it.

    Attributes:
        step: number of optimiser steps that were complete before.
        backward: the last backward call of the step, with its moments.
        passes: backward calls since the step before.
        draws: batches drawn since then.
        modes: (module, whether it was in training mode).
    """

    step: int
    backward: Backward
    passes: int
    draws: int
    modes: tuple[tuple[torch.nn.Module, bool], ...]


@dataclass(frozen=True)
class Kept:
    """What trials start from.

    Attributes:
        optimizer: whose steps they are.
        steps: in order.
        weights: copies of its parameters from before its first step, in its order.
        settings: of each of its groups at its first step, without the parameters.
        models: by the variable that holds each.
        buffers: copies of the models' buffers from before the first step.
    """

    optimizer: torch.optim.Optimizer
    steps: tuple[KeptStep, ...]
    weights: tuple[torch.Tensor, ...]
    settings: tuple[dict[str, Any], ...]
    models: dict[str, torch.nn.Module]
    buffers: tuple[tuple[torch.Tensor, torch.Tensor], ...] = ()


class KeptSteps:
    """The instrument.

    Args:
        guard: knows the backward calls of the present step.
        moments: hold what the present pass began from.
        inventory: counts batches.

    Attributes:
        refused: why nothing is kept, None while something may be.
    """

    name = "kept steps"

    def __init__(self, guard: Guard, moments: Moments, inventory: Inventory) -> None:
        self._guard = guard
        self._moments = moments
        self._inventory = inventory
        self.refused: str | None = None
        self._open = True
        self._held: dict[int, Any] = {}
        self._watched: set[int] = set()
        self._optimizer: int | None = None
        self._steps: list[KeptStep] = []
        self._modules: dict[int, bool] = {}
        self._weights = SpooledTensors(())
        self._settings: tuple[dict[str, Any], ...] = ()
        self._models: dict[str, int] = {}
        self._buffers: tuple[tuple[int, str, torch.Tensor], ...] = ()
        self._bytes = 0
        self._counted: set[int] = set()
        self._passes = 0
        self._batches = 0
        self._in_closure = False
        self._kept_at = -1
        self._collects = False
        self.rest = Rest(("step_begins", "backward_ended", "step_ended"))

    # -- signals -----------------------------------------------------------------------------------------------------

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._let_go()

    def loss_scaled(self, scaler: Any, frame: FrameType) -> None:
        if self._open and scaler.is_enabled():
            self._refuse("a loss scaler multiplies the losses")

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: Any, frame: FrameType) -> None:
        if not self._open:
            self.rest.begin()
            return
        if self._optimizer is None:
            self._begin(optimizer, frame)
        elif self._optimizer != id(optimizer):
            self._refuse("the program steps several optimizers in turn")
        self._in_closure = closure is not None
        if self._open and closure is None and self._optimizer is not None:
            self._keep()

    def backward_ended(self, tensors: Any) -> None:
        if not self._in_closure or not self._open or self._optimizer is None:
            return
        if self._kept_at == self._guard.steps:
            self._refuse("the optimizer runs the pass several times for one step")
        else:
            self._keep()

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._in_closure = False

    def run_ends(self) -> None:
        self._open = False
        self._stop_collecting()

    # -- keeping -----------------------------------------------------------------------------------------------------

    def _begin(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        parameters = _parameters(optimizer)
        if any(is_lazy(item) for item in parameters):
            return  # they get their shapes in the first forward pass
        if sum(item.numel() * item.element_size() for item in parameters) > _WEIGHT_BYTES:
            self._refuse("the weights are too large for a copy of how they began")
            return
        try:
            self._weights = SpooledTensors(parameters)
        except OSError:
            self._refuse("there is no room for a copy of how the weights began")
            return
        self._optimizer = id(optimizer)
        self._settings = tuple(
            {key: _copied(value) for key, value in group.items() if key != "params"} for group in optimizer.param_groups
        )
        forward = self._moments.forward
        called = forward.module if forward is not None else None
        models = find_models(frame, [optimizer], [called])
        self._hold(optimizer)
        self._watched.add(id(optimizer))
        for name, model in models.items():
            self._hold(model)
            self._models[name] = id(model)
            self._watched.add(id(model))
        self._buffers = tuple(
            (id(model), name, buffer.detach().clone())
            for model in models.values()
            for name, buffer in model.named_buffers()
            if buffer.numel() * buffer.element_size() < 2**20
        )
        gc.callbacks.append(self._collection)
        self._collects = True

    def _keep(self) -> None:
        self._kept_at = self._guard.steps
        window = self._guard.window
        passes, self._passes = self._guard.passes - self._passes, self._guard.passes
        draws, self._batches = self._inventory.batches - self._batches, self._inventory.batches
        if window and window[-1].finite and window[-1].values is not None:
            backward = window[-1]
            moments = tuple((self._moment(moment), count) for moment, count in backward.moments)
            self._count(moments)
            if self._steps and self._bytes > _BATCH_BYTES:
                self._open = False
                return
            kept = replace(backward, moments=moments, drawn=None)
            modes = tuple((module, module.training) for module in self._present_modules(backward))
            self._steps.append(KeptStep(self._guard.steps, kept, passes, draws, self._modes(modes)))
        if len(self._steps) >= STEPS or self._guard.steps >= 4 * STEPS:
            self._open = False

    def _present_modules(self, backward: Backward) -> list[torch.nn.Module]:
        begin = time.perf_counter()
        found: dict[int, torch.nn.Module] = {}
        roots = [self._held[key] for key in self._models.values()]
        roots += [moment.module for moment, _ in backward.moments if moment.module is not None]
        for root in roots:
            for module in root.modules():
                found[id(module)] = module
            if time.perf_counter() - begin > _SECONDS:
                break
        return list(found.values())

    def _modes(self, modes: tuple[tuple[torch.nn.Module, bool], ...]) -> tuple[tuple[Any, bool], ...]:
        return tuple((self._hold(module), training) for module, training in modes)

    def _count(self, moments: tuple[tuple[Moment, int], ...]) -> None:
        for moment, _ in moments:
            values = [frame.values for frame in moment.frames if frame.values]
            for leaf in tree_leaves([moment.batch, moment.args, dict(moment.kwargs), [dict(item) for item in values]]):
                if isinstance(leaf, torch.Tensor) and id(leaf) not in self._counted:
                    self._counted.add(id(leaf))
                    self._bytes += leaf.numel() * leaf.element_size()

    def _hold(self, value: Any) -> _Handle:
        self._held[id(value)] = value
        return _Handle(id(value))

    def _moment(self, moment: Moment) -> Moment:
        return moment._replace(
            frames=tuple(self._frame(frame) for frame in moment.frames),
            module=None if moment.module is None else self._hold(moment.module),  # type: ignore[arg-type]
            args=tuple(self._value(item) for item in moment.args),
            kwargs={key: self._value(item) for key, item in moment.kwargs.items()},
        )

    def _frame(self, frame: FrameMoment) -> FrameMoment:
        if frame.values is None:
            return frame
        return frame._replace(values={name: self._value(value) for name, value in frame.values.items()})

    def _value(self, value: Any) -> Any:
        if isinstance(value, (torch.nn.Module, torch.optim.Optimizer)):
            return self._hold(value)
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            return value.detach()  # a graph isn't kept alive
        return value

    # -- letting go --------------------------------------------------------------------------------------------------

    def _collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start" and info.get("generation") == 2:
            self._let_go()

    def _let_go(self) -> None:
        """Forget everything if nobody but us holds the optimiser or a model any more."""
        for key in self._watched:
            if sys.getrefcount(self._held[key]) <= 2:  # the table's and the argument's
                self._clear()
                self.refused = "the program had dropped its model by the end"
                self._open = True
                return

    def _refuse(self, reason: str) -> None:
        self._clear()
        self.refused = reason
        self._open = False

    def _clear(self) -> None:
        self._stop_collecting()
        self._held, self._watched, self._models, self._steps = {}, set(), {}, []
        self._optimizer = None
        self._weights.close()
        self._settings, self._buffers = (), ()
        self._bytes, self._counted = 0, set()

    def _stop_collecting(self) -> None:
        if self._collects:
            self._collects = False
            gc.callbacks.remove(self._collection)

    # -- giving out --------------------------------------------------------------------------------------------------

    def take(self) -> Kept | None:
        """What was kept, with the program's objects in their places; nothing is kept here afterwards."""
        self._open = False
        if self._optimizer is None or not self._steps:
            self.refused = self.refused or "no step could be kept from which the program can be continued"
            self._clear()
            return None
        models = {name: self._held[key] for name, key in self._models.items()}
        buffers = []
        for key, name, copy in self._buffers:
            buffer = dict(self._held[key].named_buffers()).get(name)
            if buffer is not None and buffer.shape == copy.shape:
                buffers.append((buffer, copy))
        kept = Kept(
            self._held[self._optimizer],
            tuple(self._restored(item) for item in self._steps),
            self._weights.take(),
            self._settings,
            models,
            tuple(buffers),
        )
        self._clear()
        return kept

    def _restored(self, step: KeptStep) -> KeptStep:
        moments = tuple((self._whole(moment), count) for moment, count in step.backward.moments)
        modes = tuple((self._object(module), training) for module, training in step.modes)
        return replace(step, backward=replace(step.backward, moments=moments), modes=modes)

    def _whole(self, moment: Moment) -> Moment:
        return moment._replace(
            frames=tuple(
                frame
                if frame.values is None
                else frame._replace(values={name: self._object(value) for name, value in frame.values.items()})
                for frame in moment.frames
            ),
            module=self._object(moment.module),
            args=tuple(self._object(item) for item in moment.args),
            kwargs={key: self._object(item) for key, item in moment.kwargs.items()},
        )

    def _object(self, value: Any) -> Any:
        return self._held[value.key] if isinstance(value, _Handle) else value


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [item for group in optimizer.param_groups for item in group["params"]]


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
