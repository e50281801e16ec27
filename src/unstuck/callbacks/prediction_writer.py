"""Writes predictions as they come, or all at the end."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from unstuck.callbacks.callback import Callback
from unstuck.errors import MisconfigurationException

if TYPE_CHECKING:
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["BasePredictionWriter", "WriteInterval"]


class WriteInterval(str, Enum):
    """When predictions are written."""

    BATCH = "batch"
    EPOCH = "epoch"
    BATCH_AND_EPOCH = "batch_and_epoch"

    @property
    def on_batch(self) -> bool:
        """Whether after every batch."""
        return self is not WriteInterval.EPOCH

    @property
    def on_epoch(self) -> bool:
        """Whether at the end."""
        return self is not WriteInterval.BATCH


class BasePredictionWriter(Callback):
    """Override :meth:`write_on_batch_end`, :meth:`write_on_epoch_end` or both.

    With ``trainer.predict(..., return_predictions=False)`` nothing is kept that nobody writes.

    Args:
        write_interval: ``"batch"``, ``"epoch"`` or ``"batch_and_epoch"``.

    Raises:
        MisconfigurationException: another interval.
    """

    def __init__(self, write_interval: Literal["batch", "epoch", "batch_and_epoch"] = "batch") -> None:
        try:
            self.interval = WriteInterval(write_interval)
        except ValueError:
            raise MisconfigurationException(
                f"`write_interval={write_interval!r}` should be one of {[item.value for item in WriteInterval]}."
            ) from None

    def write_on_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        prediction: Any,
        batch_indices: Sequence[int] | None,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """Write the prediction for one batch.

        Args:
            trainer: the Trainer.
            pl_module: the module.
            prediction: what ``predict_step`` returned.
            batch_indices: of the batch's samples in their dataset; None where they aren't known.
            batch: the batch.
            batch_idx: its index in its loader.
            dataloader_idx: the index of the loader.
        """
        raise NotImplementedError

    def write_on_epoch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        predictions: Sequence[Any],
        batch_indices: Sequence[Any],
    ) -> None:
        """Write all predictions.

        Args:
            trainer: the Trainer.
            pl_module: the module.
            predictions: one for each batch; with several loaders a list of these for each.
            batch_indices: for each loader, for each batch, the indices of its samples.
        """
        raise NotImplementedError

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if self.interval.on_batch:
            indices = trainer.predict_loop.current_batch_indices
            self.write_on_batch_end(trainer, pl_module, outputs, indices, batch, batch_idx, dataloader_idx)

    def on_predict_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.interval.on_epoch:
            loop = trainer.predict_loop
            self.write_on_epoch_end(trainer, pl_module, loop.predictions, loop.epoch_batch_indices)
