"""The base class of progress bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unstuck.callbacks.callback import Callback
from unstuck.messages import rank_zero_warn

if TYPE_CHECKING:
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["ProgressBar"]


class ProgressBar(Callback):
    """Tells a progress bar what it has to show.

    Override the hooks that you need, and :meth:`enable` and :meth:`disable`. The properties are usable from ``setup``
    on.
    """

    def __init__(self) -> None:
        self._trainer: Trainer | None = None
        self._current_dataloader_idx: int | None = None

    @property
    def trainer(self) -> Trainer:
        """The trainer that runs.

        Raises:
            TypeError: before ``setup``.
        """
        if self._trainer is None:
            raise TypeError(f"{type(self).__name__} has no trainer before its `setup` has run.")
        return self._trainer

    @property
    def sanity_check_description(self) -> str:
        """What stands before the bar."""
        return "Sanity Checking"

    @property
    def train_description(self) -> str:
        """What stands before the bar, without the epoch."""
        return "Epoch"

    @property
    def validation_description(self) -> str:
        """What stands before the bar."""
        return "Validation"

    @property
    def test_description(self) -> str:
        """What stands before the bar."""
        return "Testing"

    @property
    def predict_description(self) -> str:
        """What stands before the bar."""
        return "Predicting"

    @property
    def total_train_batches(self) -> int | float:
        """Batches of a training epoch; infinite when the loader has no length."""
        return self.trainer.num_training_batches

    @property
    def total_val_batches_current_dataloader(self) -> int | float:
        """Batches of the validation loader that is being read."""
        batches = self.trainer.num_sanity_val_batches if self.trainer.sanity_checking else self.trainer.num_val_batches
        return self._of_current_dataloader(batches)

    @property
    def total_test_batches_current_dataloader(self) -> int | float:
        """Batches of the test loader that is being read."""
        return self._of_current_dataloader(self.trainer.num_test_batches)

    @property
    def total_predict_batches_current_dataloader(self) -> int | float:
        """Batches of the prediction loader that is being read."""
        return self._of_current_dataloader(self.trainer.num_predict_batches)

    @property
    def total_val_batches(self) -> int | float:
        """Batches of one validation over all its loaders."""
        return sum(self.trainer.num_val_batches)

    def has_dataloader_changed(self, dataloader_idx: int) -> bool:
        """Tell whether another loader is being read than at the last call, and remember this one."""
        changed = self._current_dataloader_idx != dataloader_idx
        self._current_dataloader_idx = dataloader_idx
        return changed

    def reset_dataloader_idx_tracker(self) -> None:
        """A new loop begins: its first loader is a changed one."""
        self._current_dataloader_idx = None

    def enable(self) -> None:
        """Show the bar. The Trainer calls it on the process that shall show one."""
        raise NotImplementedError

    def disable(self) -> None:
        """Show no bar. The Trainer calls it on the other processes."""
        raise NotImplementedError

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print without destroying the bar. The arguments are those of the built-in function."""
        print(*args, **kwargs)  # noqa: T201 - the program's own output

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Keep the trainer; no bar but on rank 0."""
        self._trainer = trainer
        if not trainer.is_global_zero:
            self.disable()

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return what is shown beside the bar: the logger's version as ``v_num``, and what is logged with ``prog_bar``.

        Reading it waits for the device. Override it to show something else.
        """
        standard: dict[str, Any] = {}
        version = trainer.loggers[0].version if trainer.loggers else None
        if version not in ("", None):
            standard["v_num"] = version[-4:] if isinstance(version, str) else version
        logged = trainer.progress_bar_metrics
        if not standard.keys().isdisjoint(logged):
            rank_zero_warn(
                "A metric logged with `prog_bar=True` is named `v_num`, as the logger's version is in the bar."
            )
        return {**standard, **logged}

    def _of_current_dataloader(self, batches: list[int | float]) -> int | float:
        assert self._current_dataloader_idx is not None
        return batches[self._current_dataloader_idx]
