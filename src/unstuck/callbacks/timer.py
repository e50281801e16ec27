"""Measures how long stages run, and ends a fit when its time is up."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from unstuck.callbacks.callback import Callback
from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_info
from unstuck.trainer.config import parse_duration
from unstuck.trainer.state import RunningStage

if TYPE_CHECKING:
    from unstuck.callbacks.callback import StepOutput
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["Timer"]


class Timer(Callback):
    """Measures training, validation and test, and ends a fit after a time.

    The time of a fit that is resumed from a checkpoint goes on where it was.

    Args:
        duration: of the training: text ``"DD:HH:MM:SS"``, a timedelta or a dictionary of its keywords; None to measure
            only.
        interval: whether to look at the clock after every ``"step"`` or every ``"epoch"``.
        verbose: whether to tell when the time is up.

    Raises:
        MisconfigurationException: a duration that is none, or an unknown interval.
    """

    def __init__(
        self,
        duration: str | timedelta | dict[str, int] | None = None,
        interval: str = "step",
        verbose: bool = True,
    ) -> None:
        if interval not in ("step", "epoch"):
            raise MisconfigurationException(f"`Timer(interval={interval!r})` should be 'step' or 'epoch'.")
        parsed = parse_duration("Timer(duration", duration)
        self._duration = None if parsed is None else parsed.total_seconds()
        self._interval = str(getattr(interval, "value", interval))
        self._verbose = verbose
        self._began: dict[RunningStage, float] = {}
        self._ended: dict[RunningStage, float] = {}
        self._offset = 0.0

    def start_time(self, stage: str = RunningStage.TRAINING) -> float | None:
        """Return when a stage began, in seconds of the monotonic clock; None if it didn't."""
        return self._began.get(RunningStage(stage))

    def end_time(self, stage: str = RunningStage.TRAINING) -> float | None:
        """Return when a stage ended, in seconds of the monotonic clock; None if it didn't."""
        return self._ended.get(RunningStage(stage))

    def time_elapsed(self, stage: str = RunningStage.TRAINING) -> float:
        """Return the seconds that a stage has run; of the training with those before a resume."""
        stage = RunningStage(stage)
        offset = self._offset if stage is RunningStage.TRAINING else 0.0
        began = self.start_time(stage)
        if began is None:
            return offset
        ended = self.end_time(stage)
        return (time.monotonic() if ended is None else ended) - began + offset

    def time_remaining(self, stage: str = RunningStage.TRAINING) -> float | None:
        """Return the seconds until the time is up, None without a duration."""
        return None if self._duration is None else self._duration - self.time_elapsed(stage)

    def state_dict(self) -> dict[str, Any]:
        return {"time_elapsed": {stage.value: self.time_elapsed(stage) for stage in RunningStage}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._offset = state_dict.get("time_elapsed", {}).get(RunningStage.TRAINING.value, 0)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # A resumed fit may have used up its time before.
        self._check(trainer)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin(RunningStage.TRAINING)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end(RunningStage.TRAINING)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin(RunningStage.VALIDATING)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end(RunningStage.VALIDATING)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin(RunningStage.TESTING)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end(RunningStage.TESTING)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: StepOutput, batch: Any, batch_idx: int
    ) -> None:
        if self._interval == "step":
            self._check(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._interval == "epoch":
            self._check(trainer)

    def _begin(self, stage: RunningStage) -> None:
        self._ended.pop(stage, None)
        self._began[stage] = time.monotonic()

    def _end(self, stage: RunningStage) -> None:
        self._ended[stage] = time.monotonic()

    def _check(self, trainer: Trainer) -> None:
        if self._duration is None:
            return
        elapsed = self.time_elapsed()
        is_over = bool(trainer.strategy.broadcast(elapsed >= self._duration))
        if is_over and self._verbose and not trainer.should_stop:
            rank_zero_info(f"Timer ends the fit: {timedelta(seconds=int(elapsed))} are over.")
        trainer.should_stop = trainer.should_stop or is_over
