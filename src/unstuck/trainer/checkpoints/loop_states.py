"""The counters of a fit as Lightning's files hold them, written from and read into a :class:`Progress`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unstuck.errors import IncompleteCheckpointError
from unstuck.trainer.state import Place, Progress

__all__ = ["Position", "apply_position", "position_of", "read_position", "write_loop_states"]


@dataclass(frozen=True)
class Position:
    """Where a fit stands, as a checkpoint tells it."""

    place: Place
    epoch: int
    """Epochs whose hooks at their end have run."""
    epochs_processed: int
    epochs_started: int
    batches: int
    """Batches of the epoch that are done."""
    total_batches: int
    """Batches done in all epochs."""
    is_last_batch: bool
    global_step: int
    global_step_before_epoch: int
    batches_that_stepped: int
    scheduler_steps: int
    scheduler_steps_before_epoch: int
    validation_batches: int
    validation_batches_of_epoch: int

    @property
    def within_epoch(self) -> bool:
        """Whether batches of the epoch are done and its end isn't."""
        return self.batches > 0 and self.place in (Place.BATCH_END, Place.VALIDATED, Place.COMPLETE)


def position_of(progress: Progress, batches: int | None = None) -> Position:
    """The position that a checkpoint saved now tells.

    Args:
        progress: the counters of the fit.
        batches: batches of the epoch that count, if fewer than those that are done: what came after is done again.
    """
    place, ready = progress.place, progress.batches_ready
    done = ready - 1 if place == Place.BATCH else ready
    if batches is not None:
        done = batches
    if place == Place.BATCH:
        place = Place.COMPLETE if done else Place.EPOCH_START
    elif place == Place.VALIDATING:
        place = Place.BATCH_END
    elif batches is not None:
        place = Place.COMPLETE if done else Place.EPOCH_START
    return Position(
        place=place,
        epoch=progress.current_epoch,
        epochs_processed=progress.epochs_processed,
        epochs_started=progress.epochs_started,
        batches=done,
        total_batches=progress.total_batch_idx + 1 - ready + done,
        is_last_batch=progress.is_last_batch and done == ready,
        global_step=progress.global_step,
        global_step_before_epoch=progress.global_step_before_epoch,
        batches_that_stepped=progress.batches_that_stepped,
        scheduler_steps=progress.scheduler_steps,
        scheduler_steps_before_epoch=progress.scheduler_steps_before_epoch,
        validation_batches=progress.validation_batches,
        validation_batches_of_epoch=progress.validation_batches_of_epoch,
    )


def apply_position(position: Position, progress: Progress) -> None:
    """Sets the counters of a fit that goes on from a position."""
    progress.place = position.place
    progress.current_epoch = position.epoch
    progress.epochs_processed = position.epochs_processed
    progress.epochs_started = position.epochs_started
    progress.batches_ready = position.batches
    progress.batch_idx = position.batches - 1
    progress.total_batch_idx = position.total_batches - 1
    progress.is_last_batch = position.is_last_batch
    progress.global_step = position.global_step
    progress.global_step_before_epoch = position.global_step_before_epoch
    progress.batches_that_stepped = position.batches_that_stepped
    progress.scheduler_steps = position.scheduler_steps
    progress.scheduler_steps_before_epoch = position.scheduler_steps_before_epoch
    progress.validation_batches = position.validation_batches
    progress.validation_batches_of_epoch = position.validation_batches_of_epoch
    progress.has_learnt = position.global_step > 0


# Lightning's form.


def write_loop_states(
    position: Position, progress: Progress, automatic: bool, loader_states: list[Any]
) -> dict[str, Any]:
    """The entry "loops" of a checkpoint.

    Args:
        position: what the checkpoint tells.
        progress: the counters, for what lies within a batch.
        automatic: whether optimisation is automatic.
        loader_states: states of the training loaders that have one.
    """
    done = position.batches
    ready = started = processed = completed = done
    if position.place == Place.BATCH_END and progress.place == Place.BATCH_END:
        completed = done - 1
    elif progress.place == Place.BATCH and done == progress.batches_ready - 1:
        ready = started = done + 1
    before = position.total_batches - done
    steps, epoch_steps = position.global_step, position.global_step - position.global_step_before_epoch
    pending = int(automatic and progress.accumulating)
    begun = position.epochs_started - int(progress.place == Place.EPOCH_START)
    epochs = {
        "ready": position.epochs_started,
        "completed": position.epoch,
        "started": begun,
        "processed": position.epochs_processed,
    }
    schedulers = position.scheduler_steps, position.scheduler_steps - position.scheduler_steps_before_epoch
    validating = progress.place == Place.VALIDATING
    last, of_epoch = position.validation_batches, position.validation_batches_of_epoch
    fit = {
        "state_dict": {"combined_loader": loader_states} if loader_states else {},
        "epoch_loop.state_dict": {"_batches_that_stepped": position.batches_that_stepped},
        "epoch_loop.batch_progress": {
            "total": _counts(before + ready, before + completed, before + started, before + processed),
            "current": _counts(ready, completed, started, processed),
            "is_last_batch": position.is_last_batch,
        },
        "epoch_loop.scheduler_progress": {"total": _steps(schedulers[0]), "current": _steps(schedulers[1])},
        "epoch_loop.automatic_optimization.state_dict": {},
        "epoch_loop.automatic_optimization.optim_progress": {
            "optimizer": {
                "step": {"total": _steps(automatic and steps), "current": _steps(automatic and epoch_steps)},
                "zero_grad": {
                    "total": _zeroed(automatic and steps + pending),
                    "current": _zeroed(automatic and epoch_steps + pending),
                },
            }
        },
        "epoch_loop.manual_optimization.state_dict": {},
        "epoch_loop.manual_optimization.optim_step_progress": {
            "total": _steps(not automatic and steps),
            "current": _steps(not automatic and epoch_steps),
        },
        "epoch_loop.val_loop.state_dict": {},
        "epoch_loop.val_loop.batch_progress": {
            "total": _counts(*[of_epoch] * 4),
            "current": _counts(*[0 if validating else last] * 4),
            "is_last_batch": last > 0 and not validating,
        },
        "epoch_progress": {"total": dict(epochs), "current": dict(epochs)},
    }
    idle = {"state_dict": {}, "batch_progress": {"total": _counts(), "current": _counts()}}
    evaluation = {**idle, "batch_progress": {**idle["batch_progress"], "is_last_batch": False}}
    return {"fit_loop": fit, "validate_loop": evaluation, "test_loop": evaluation, "predict_loop": idle}


def _counts(ready: int = 0, completed: int = 0, started: int = 0, processed: int = 0) -> dict[str, int]:
    return {"ready": ready, "completed": completed, "started": started, "processed": processed}


def _steps(steps: int) -> dict[str, int]:
    return {"ready": int(steps), "completed": int(steps)}


def _zeroed(steps: int) -> dict[str, int]:
    return {"ready": int(steps), "completed": int(steps), "started": int(steps)}


def read_position(checkpoint: dict[str, Any], place: str | None) -> Position:
    """Reads the counters of a checkpoint.

    Args:
        checkpoint: of this package or of Lightning 2.x.
        place: where the fit stood; None where the file doesn't tell, as Lightning's: then it follows from the counters.

    Raises:
        IncompleteCheckpointError: the counters aren't there.
    """
    try:
        fit = checkpoint["loops"]["fit_loop"]
        batch, epochs = fit["epoch_loop.batch_progress"], fit["epoch_progress"]["current"]
        optimizers = fit["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["step"]
        manual = fit["epoch_loop.manual_optimization.optim_step_progress"]
        schedulers = fit["epoch_loop.scheduler_progress"]
        validation = fit["epoch_loop.val_loop.batch_progress"]
        total, current = batch["total"], batch["current"]
        steps = optimizers["total"]["completed"] + manual["total"]["completed"]
        epoch_steps = optimizers["current"]["completed"] + manual["current"]["completed"]
        where = Place(place) if place is not None else _infer_place(fit)
        done = current["processed"] if where == Place.BATCH_END else current["completed"]
        return Position(
            place=where,
            epoch=epochs["completed"],
            epochs_processed=epochs["processed"],
            epochs_started=epochs["ready"],
            batches=done,
            total_batches=total["ready"] - current["ready"] + done,
            is_last_batch=batch["is_last_batch"],
            global_step=steps,
            global_step_before_epoch=steps - epoch_steps,
            batches_that_stepped=fit["epoch_loop.state_dict"].get("_batches_that_stepped", steps),
            scheduler_steps=schedulers["total"]["completed"],
            scheduler_steps_before_epoch=schedulers["total"]["completed"] - schedulers["current"]["completed"],
            validation_batches=validation["current"]["completed"],
            validation_batches_of_epoch=validation["total"]["completed"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise IncompleteCheckpointError(
            "The checkpoint doesn't tell where its training stood (under 'loops'), so a fit can't go on from it:"
            f" {error!r} is missing. It has {sorted(map(str, checkpoint))} and was written by version"
            f" {checkpoint.get('pytorch-lightning_version')} of Lightning; those of 2.0 and later can be resumed. To"
            " begin a new fit with its weights use `load_from_checkpoint`."
        ) from error


def _infer_place(fit: dict[str, Any]) -> Place:
    """Where Lightning's loops stood, from their counters alone."""
    epochs, batch = fit["epoch_progress"]["current"], fit["epoch_loop.batch_progress"]["current"]
    if epochs["ready"] == epochs["completed"]:
        return Place.BETWEEN
    if epochs["processed"] == epochs["ready"]:
        return Place.EPOCH_CLOSED
    if epochs["started"] < epochs["ready"] or batch["processed"] == 0:
        return Place.EPOCH_START
    if batch["processed"] > batch["completed"]:
        return Place.BATCH_END
    validation = fit["epoch_loop.val_loop.batch_progress"]
    if validation["total"]["completed"] > 0 and validation["current"]["ready"] > 0:
        return Place.VALIDATED
    return Place.BATCH_END if batch["ready"] == batch["completed"] else Place.COMPLETE
