"""``Trainer(on_nonfinite="skip-step")``: everything that a dropped step would leave behind is taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from unstuck.errors import MisconfigurationException, NonFiniteError
from unstuck.trials.dropping import DroppedBatch, DroppedTooOftenError, StepDropper

if TYPE_CHECKING:
    from unstuck.trainer.run import Run

__all__ = ["DroppedSteps"]


class DroppedSteps:
    """Drops steps of automatic optimisation, with what they logged and what they did to the loss scaler.

    Args:
        run: the fit.
        optimizer: of the fit.

    Raises:
        MisconfigurationException: an optimiser whose steps can't be dropped.

    Attributes:
        dropper: drops and counts.
    """

    def __init__(self, run: Run, optimizer: Optimizer) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise MisconfigurationException(
                "`on_nonfinite='skip-step'` doesn't work with LBFGS, which moves the weights before it knows the loss."
            )
        self.dropper = StepDropper()
        self._run = run
        self._scales = run.precision.scaler is not None
        self._mark: Any = None
        self._scaler_before: tuple[Tensor, Tensor] | None = None

    def begin(self) -> None:
        """The first batch of a step is about to be run."""
        self.dropper.remember([self._run.module])
        store = self._run.logbook.store
        self._mark = None if store is None else store.mark()
        if not self._scales:
            self._run.precision.skipped_step = False

    def keep_scale(self) -> None:
        """The loss scaler as it is before the step."""
        scaler = self._run.precision.scaler
        self._scaler_before = scaler._scale.clone(), scaler._growth_tracker.clone()

    def drop(self, optimizer: Optimizer, batch: DroppedBatch) -> None:
        """Makes the step that is about to be taken do nothing.

        Raises:
            NonFiniteError: too many of them in a row.
        """
        _in_row(lambda: self.dropper.drop(optimizer, batch))
        if not self._scales:
            self._run.precision.skipped_step = True  # so that no schedule moves

    def decide_on_device(self, optimizer: Optimizer, batch: DroppedBatch) -> None:
        """Lets a fused optimiser decide about its step."""
        self.dropper.decide_on_device(optimizer, batch)

    def end(self) -> bool:
        """The step is over. Returns whether it was dropped here.

        Raises:
            NonFiniteError: too many of them in a row.
        """
        _in_row(self.dropper.finish_on_device)
        if not self.dropper.finish():
            return False
        store = self._run.logbook.store
        if store is not None and self._mark is not None:
            store.return_to(self._mark)
        before, self._scaler_before = self._scaler_before, None
        if before is not None:
            scaler = self._run.precision.scaler
            scaler._scale.copy_(before[0])
            scaler._growth_tracker.copy_(before[1])
        return True

    def read_flags(self) -> None:
        """Counts what was decided on the device.

        Raises:
            NonFiniteError: too many of them in a row.
        """
        _in_row(self.dropper.read_flags)


def _in_row(drop: Callable[[], object]) -> None:
    """Ends the fit where dropping has become pointless."""
    try:
        drop()
    except DroppedTooOftenError as error:
        raise NonFiniteError(f"{error}: the fit ends. The first of them was warned of.") from error
