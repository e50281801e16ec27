"""Accumulates gradients over a number of batches that changes with the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unstuck.callbacks.callback import Callback
from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_warn
from unstuck.trainer.hooks import is_overridden

if TYPE_CHECKING:
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["GradientAccumulationScheduler"]


class GradientAccumulationScheduler(Callback):
    """Sets ``accumulate_grad_batches`` by the epoch.

    Args:
        scheduling: the epoch (counted from 0) from which on so many batches make one optimiser step; 1 before the first
            of them.

    Raises:
        TypeError: nothing is given.
        MisconfigurationException: a negative epoch, or a number below 1.
        RuntimeError: at the start, in manual optimisation.
        ValueError: at the start, if the Trainer accumulates already.
    """

    def __init__(self, scheduling: dict[int, int]) -> None:
        if not scheduling:
            raise TypeError("`GradientAccumulationScheduler` needs at least one epoch with its number of batches.")
        if any(not isinstance(epoch, int) or epoch < 0 for epoch in scheduling):
            raise MisconfigurationException(f"Epochs should be integers of at least 0, got {list(scheduling)}.")
        if any(not isinstance(batches, int) or batches < 1 for batches in scheduling.values()):
            raise MisconfigurationException(
                f"Numbers of batches should be integers of at least 1, got {list(scheduling.values())}."
            )
        self.scheduling = {0: 1, **scheduling}
        self.epochs = sorted(self.scheduling)

    def going_to_accumulate_grad_batches(self) -> bool:
        """Tell whether any epoch accumulates."""
        return any(batches > 1 for batches in self.scheduling.values())

    def get_accumulate_grad_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""
        return self.scheduling[max(begin for begin in self.epochs if begin <= epoch)]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not pl_module.automatic_optimization:
            raise RuntimeError(
                "`GradientAccumulationScheduler` can't act in manual optimization, where `training_step` decides when"
                " to step."
            )
        if trainer.accumulate_grad_batches != 1:
            raise ValueError(
                f"`Trainer(accumulate_grad_batches={trainer.accumulate_grad_batches})` and"
                " `GradientAccumulationScheduler` both say how many batches; leave one of them out."
            )
        own = [name for name in ("optimizer_step", "optimizer_zero_grad") if is_overridden(name, pl_module)]
        if own and self.going_to_accumulate_grad_batches():
            rank_zero_warn(f"With accumulation `{'` and `'.join(own)}` run once per optimizer step, not per batch.")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.accumulate_grad_batches = self.get_accumulate_grad_batches(trainer.current_epoch)
