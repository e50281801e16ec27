"""When callbacks write to the Trainer's loggers, and under which step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstuck.trainer.trainer import Trainer

__all__ = ["logs_are_due", "stepped_batches", "write_metrics"]


def logs_are_due(trainer: Trainer, batch_idx: int | None = None) -> bool:
    """Tell whether step values go to the loggers now, by ``log_every_n_steps``.

    Args:
        trainer: the Trainer.
        batch_idx: index of the batch in an evaluation or prediction, where batches are counted instead of steps.
    """
    if batch_idx is None:
        return bool(trainer._logger_connector.should_update_logs)
    every = trainer.log_every_n_steps
    return every > 0 and ((batch_idx + 1) % every == 0 or trainer.should_stop)


def stepped_batches(trainer: Trainer) -> int:
    """Return the x axis of the loggers: training batches that ended in an optimiser step."""
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


def write_metrics(trainer: Trainer, metrics: Mapping[str, Any], step: int | None = None) -> None:
    """Write numbers to every logger.

    Args:
        trainer: whose loggers.
        metrics: numbers by name; none: nothing is written.
        step: None for :func:`stepped_batches`.
    """
    if not metrics:
        return
    step = stepped_batches(trainer) if step is None else step
    for logger in trainer.loggers:
        logger.log_metrics(dict(metrics), step=step)
