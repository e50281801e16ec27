"""What a module or callback of the real Lightning asks its Trainer for, beside the public API.

A ``lightning.pytorch.LightningModule`` writes its logs into an object of the Trainer that isn't public. These classes
answer in its place,
so that such modules run here without a change to them or to Lightning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unstuck.trainer.results import Logbook, ResultStore
from unstuck.trainer.run import Run
from unstuck.trainer.settings import Settings
from unstuck.trainer.state import Progress

__all__ = ["LogConnector", "LoopView", "PredictView", "ResultsBridge"]


class ResultsBridge:
    """Takes the call that the real ``LightningModule.log`` ends in."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store

    def log(
        self,
        fx: str,
        name: str,
        value: Any,
        *,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_fn: Any = None,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Logs a value that the hook ``fx`` gave."""
        self._store.hook = fx
        options = (
            prog_bar,
            logger,
            on_step,
            on_epoch,
            reduce_fx,
            enable_graph,
            sync_dist,
            sync_dist_group,
            add_dataloader_idx,
            metric_attribute,
            rank_zero_only,
        )
        self._store.log(name, value, options, batch_size)

    def reset(self, metrics: bool | None = None, fx: str | None = None) -> None:
        """The store itself notices when a hook starts anew."""


class LogConnector:
    """Answers about the rhythm of logging."""

    def __init__(self, logbook: Logbook, progress: Progress) -> None:
        self._logbook, self._progress = logbook, progress
        self._current_fx: str | None = None

    @property
    def should_update_logs(self) -> bool:
        """Whether step values go to the loggers now."""
        return self._logbook.is_due(self._progress.batches_that_stepped) or self._progress.should_stop

    def should_reset_tensors(self, fx: str) -> bool:
        """Whether the caller has to reset the store."""
        return False


class ValidationView:
    """What is asked of Lightning's loop of validations within a fit."""

    def __init__(self, progress: Progress) -> None:
        self._has_run = progress.validation_batches_of_epoch > 0
        """Whether there was a validation in this epoch."""


class LoopView:
    """Counters and bounds of a fit under the names of Lightning's loop objects, of which it is all three at once."""

    def __init__(self, progress: Progress, settings: Settings) -> None:
        self._progress, self._settings = progress, settings

    @property
    def epoch_loop(self) -> LoopView:
        """The view of an epoch."""
        return self

    @property
    def val_loop(self) -> ValidationView:
        """The view of the validation within the fit."""
        return ValidationView(self._progress)

    @property
    def global_step(self) -> int:
        """Optimiser steps so far."""
        return self._progress.global_step

    @property
    def batch_idx(self) -> int:
        """Index of the batch in its epoch."""
        return self._progress.batch_idx

    @property
    def total_batch_idx(self) -> int:
        """Index of the batch over all epochs."""
        return self._progress.total_batch_idx

    @property
    def _batches_that_stepped(self) -> int:
        return self._progress.batches_that_stepped

    @property
    def max_batches(self) -> int | float:
        """Training batches of an epoch."""
        return self._progress.num_training_batches

    @max_batches.setter
    def max_batches(self, max_batches: int | float) -> None:
        self._progress.num_training_batches = max_batches

    @property
    def max_epochs(self) -> int:
        """Epochs at most. It can be raised to go on with a fit."""
        return self._settings.bounds.max_epochs

    @max_epochs.setter
    def max_epochs(self, max_epochs: int) -> None:
        self._settings.bounds = replace(self._settings.bounds, max_epochs=max_epochs)

    @property
    def max_steps(self) -> int:
        """Optimiser steps at most."""
        return self._settings.bounds.max_steps

    @max_steps.setter
    def max_steps(self, max_steps: int) -> None:
        self._settings.bounds = replace(self._settings.bounds, max_steps=max_steps)

    @property
    def min_epochs(self) -> int | None:
        """Epochs at least."""
        return self._settings.bounds.min_epochs

    @property
    def min_steps(self) -> int | None:
        """Optimiser steps at least."""
        return self._settings.bounds.min_steps

    @property
    def _skip_backward(self) -> bool:
        return self._progress.forward_only

    @_skip_backward.setter
    def _skip_backward(self, skip_backward: bool) -> None:
        self._progress.forward_only = skip_backward

    def _should_accumulate(self) -> bool:
        return self._progress.accumulating


class PredictView:
    """The predictions of a run under the names of Lightning's loop object."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def predictions(self) -> list[Any]:
        """The predictions so far: one for each batch; with several loaders a list of these for each."""
        kept = self._run.predictions
        return kept[0] if len(kept) == 1 else kept

    @property
    def current_batch_indices(self) -> list[int] | None:
        """The indices of the samples of the current batch, None where they aren't known."""
        return self._run.batch_indices

    @property
    def epoch_batch_indices(self) -> list[list[list[int]]]:
        """The same of all batches so far, for each loader; empty lists where they aren't known."""
        return self._run.epoch_batch_indices
