"""Where a run stands: plain data, written by the loops and read by everyone else."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Progress", "RunningStage", "TrainerFn", "TrainerState", "TrainerStatus"]


class _Name(str, Enum):
    """An enumeration whose members compare equal to their text (and to other libraries' members with the same text)."""

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Enum):
            other = other.value
        return isinstance(other, str) and self.value.lower() == other.lower()

    def __hash__(self) -> int:
        return hash(self.value.lower())

    def __str__(self) -> str:
        return str(self.value)


class TrainerStatus(_Name):
    """Whether the Trainer is at work."""

    INITIALIZING = "initializing"
    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"

    @property
    def stopped(self) -> bool:
        """Whether a run has ended, in whatever way."""
        return self in (TrainerStatus.FINISHED, TrainerStatus.INTERRUPTED)


class TrainerFn(_Name):
    """Which method of the Trainer was called."""

    FITTING = "fit"
    VALIDATING = "validate"
    TESTING = "test"
    PREDICTING = "predict"


class RunningStage(_Name):
    """What the Trainer does at this moment; a fit validates in between."""

    TRAINING = "train"
    SANITY_CHECKING = "sanity_check"
    VALIDATING = "validate"
    TESTING = "test"
    PREDICTING = "predict"

    @property
    def evaluating(self) -> bool:
        """Whether the stage is a validation or a test (the sanity check is neither)."""
        return self in (RunningStage.VALIDATING, RunningStage.TESTING)

    @property
    def dataloader_prefix(self) -> str:
        """The first part of the data hook of this stage, as in ``val_dataloader``."""
        return "val" if self in (RunningStage.VALIDATING, RunningStage.SANITY_CHECKING) else str(self.value)


@dataclass
class TrainerState:
    """The public ``trainer.state``."""

    status: TrainerStatus = TrainerStatus.INITIALIZING
    fn: TrainerFn | None = None
    stage: RunningStage | None = None

    @property
    def finished(self) -> bool:
        """Whether the last run came to its end."""
        return self.status == TrainerStatus.FINISHED

    @property
    def stopped(self) -> bool:
        """Whether no run is going on after at least one was started."""
        return self.status.stopped


@dataclass(slots=True)
class Progress:
    """The counters of a fit.

    The fit loop writes them, but for ``should_stop``, which anybody may set to ask for an end.
    """

    current_epoch: int = 0
    """Epochs of which the hooks at their end have run."""
    epochs_processed: int = 0
    """Epochs of which all batches are done; ahead of ``current_epoch`` in the hooks at the end of an epoch."""
    global_step: int = 0
    """Optimiser steps taken, over all optimisers."""
    batch_idx: int = -1
    """Index of the batch within the epoch."""
    batches_ready: int = 0
    """Batches of this epoch that were drawn."""
    total_batch_idx: int = -1
    """Index of the batch over all epochs."""
    batches_that_stepped: int = 0
    """Batches that ended in an optimiser step: the x axis of the loggers."""
    is_last_batch: bool = False
    """Whether no batch of the epoch follows."""
    accumulating: bool = False
    """Whether the batch only adds its gradients, and the optimiser steps at a later one."""
    has_learnt: bool = False
    """Whether any epoch so far had a loss (automatic optimisation)."""
    should_stop: bool = False
    """Whether somebody asked the training to end at the next occasion."""
    num_training_batches: int | float = field(default=float("inf"))
    """Batches of an epoch, infinite if unknown."""
