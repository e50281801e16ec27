"""The policy ``skip-step``: a step that isn't finite is dropped, and the run goes on as if its batch had not been."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from unstuck.instruments.guard import Backward, Guard
from unstuck.instruments.inventory import find_models
from unstuck.measure.bad_samples import nonfinite_in
from unstuck.record.recording import Recording
from unstuck.trials.dropping import WAITS, DroppedBatch, DroppedTooOftenError, StepDropper, decides_on_device

__all__ = ["Dropping", "DroppingEnds"]

_THOROUGH, _INTERVAL = 3, 64
"""First steps at which the program's models are looked up, and how often later."""


class Dropping:
    """The instrument; the last one that hears of a step's begin, so that the others still see the gradients.

    Args:
        guard: tells which step isn't finite.
        recording: takes what has to be said.
        stop: called when too many steps in a row were dropped; it raises.
        on_device: let fused optimisers decide on any device, not only where a look makes the program wait.
    """

    name = "dropping"

    def __init__(self, guard: Guard, recording: Recording, stop: Callable[[], None], on_device: bool = False) -> None:
        self._guard = guard
        self._recording = recording
        self._stop = stop
        self._on_device = on_device
        self.dropper = StepDropper()
        self._begun = False
        self._window: tuple[Backward, ...] = ()
        self._steps = 0
        self._scaler: tuple[Any, torch.Tensor, torch.Tensor] | None = None
        self.deciding = False

    # -- what is remembered ------------------------------------------------------------------------------------------

    def forward_begins(self, module: torch.nn.Module, args: Any, kwargs: Any, frame: FrameType) -> None:
        if self._begun or self._guard.has_window:
            return
        self._begun = True
        if self._guard.steps < _THOROUGH or self._guard.steps % _INTERVAL == 0:
            models = find_models(frame, self._guard.optimizers.values(), [module])
            self.dropper.remember(models.values() if models else [module])
        else:
            self.dropper.remember_again()

    # -- what is dropped ---------------------------------------------------------------------------------------------

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: Any, frame: FrameType) -> None:
        if closure is None and self._decides(optimizer):
            self.deciding, self._guard.to_drop = True, None
            self.dropper.decide_on_device(optimizer, self._last_batch(looks=False))
            return
        self._drop_if_asked()

    def backward_ended(self, tensors: Any) -> None:
        self._drop_if_asked()

    def closure_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._drop_if_asked()

    def _decides(self, optimizer: torch.optim.Optimizer) -> bool:
        if not decides_on_device(optimizer):
            waits = any(item.device.type != "cpu" for group in optimizer.param_groups for item in group["params"][:1])
            if waits:
                self._recording.add_unchecked(WAITS)
            return False
        first = optimizer.param_groups[0]["params"][0]
        return self._on_device or first.device.type != "cpu"

    def _drop_if_asked(self) -> None:
        optimizer, self._guard.to_drop = self._guard.to_drop, None
        if optimizer is None:
            return
        if isinstance(optimizer, torch.optim.LBFGS):
            self._recording.add_unchecked("a step of LBFGS can't be dropped: it has moved the weights already")
            self._stop()
        try:
            self.dropper.drop(optimizer, self._last_batch())
        except DroppedTooOftenError as error:
            self._recording.add_unchecked(str(error))
            self._stop()

    def _last_batch(self, looks: bool = True) -> DroppedBatch:
        """Of the present step; ``looks`` whether a sample of it is bad itself, which makes a device wait."""
        draw = self._guard.last_draw
        if draw is None:
            return DroppedBatch(None)
        return DroppedBatch(draw.position, draw.indices, nonfinite_in(draw.batch)[0] if looks else None)

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._begun = False

    # -- loss scaling ------------------------------------------------------------------------------------------------

    def scaler_step_begins(self, scaler: Any, optimizer: Any, frame: FrameType) -> None:
        self._window, self._steps = self._guard.window, self._guard.steps

    def scaler_stepped(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        """A scaler has dropped the step itself; where the loss was NaN, the scale isn't to blame and stays."""
        window, self._window = self._window, ()
        if self._guard.steps != self._steps or not scaler.is_enabled():
            return
        self._begun = False
        if any(item.values is not None and item.values[0] != item.values[0] for item in window):
            self._scaler = (scaler, scaler._scale.clone(), scaler._growth_tracker.clone())
            try:
                self.dropper.drop(optimizer, self._last_batch())
            except DroppedTooOftenError as error:
                self._recording.add_unchecked(str(error))
                self._stop()
            self.dropper.finish()

    def scaler_updated(self, scaler: Any) -> None:
        kept, self._scaler = self._scaler, None
        if kept is not None and kept[0] is scaler:
            scaler._scale.copy_(kept[1])
            scaler._growth_tracker.copy_(kept[2])

    def run_ends(self) -> None:
        try:
            self.dropper.read_flags()
        except DroppedTooOftenError as error:
            self._recording.add_unchecked(str(error))


class DroppingEnds:
    """The first instrument that hears of a step's end: gradients are back before the others look."""

    name = "dropping ends"

    def __init__(self, dropping: Dropping, recording: Recording, stop: Callable[[], None]) -> None:
        self._dropping = dropping
        self._recording = recording
        self._stop = stop

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        dropper = self._dropping.dropper
        if not self._dropping.deciding:
            dropper.finish()
            return
        self._dropping.deciding = False
        try:
            dropper.finish_on_device()
        except DroppedTooOftenError as error:
            self._recording.add_unchecked(str(error))
            self._stop()
