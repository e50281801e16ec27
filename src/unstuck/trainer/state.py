"""Where a run stands: plain data, written by the loops and read by everyone else."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Place", "Progress", "RunningStage", "TrainerFn", "TrainerState", "TrainerStatus"]


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


class Place(str, Enum):
    """Between which two things a fit stands, for a checkpoint that is saved there."""

    BETWEEN = "between"
    """Between two epochs, or before the first and after the last."""
    EPOCH_START = "epoch_start"
    """In the hooks at the start of an epoch."""
    BATCH = "batch"
    """In a batch that isn't done."""
    BATCH_END = "batch_end"
    """In or after the hooks at the end of a batch; a validation may be due."""
    VALIDATING = "validating"
    """In a validation."""
    VALIDATED = "validated"
    """A validation is done; what follows it at the end of a batch isn't."""
    COMPLETE = "complete"
    """All of a batch is done, and the next isn't drawn."""
    EPOCH_END = "epoch_end"
    """In the hooks at the end of an epoch."""
    EPOCH_CLOSED = "epoch_closed"
    """All of an epoch is done but for counting it."""


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
    forward_only: bool = False
    """Whether the next epoch runs ``training_step`` without learning, so that layers can gather statistics."""
    should_stop: bool = False
    """Whether somebody asked the training to end at the next occasion."""
    num_training_batches: int | float = field(default=float("inf"))
    """Batches of an epoch, infinite if unknown."""
    place: Place = Place.BETWEEN
    """Where the fit stands between these counts."""
    epochs_started: int = 0
    """Epochs that were begun."""
    global_step_before_epoch: int = 0
    """Optimiser steps taken before this epoch."""
    scheduler_steps: int = 0
    """Steps of learning rate schedulers, over all of them."""
    scheduler_steps_before_epoch: int = 0
    """Those taken before this epoch."""
    validation_follows: bool = False
    """Whether a validation comes after the hooks at the end of this batch; known while checkpoints are saved there."""
    validation_batches: int = 0
    """Batches of the last validation within the fit."""
    validation_batches_of_epoch: int = 0
    """Batches of all validations within this epoch."""
