"""What the rules on learning trials share: when a trial shows that a change learns where the run's own setting doesn't.

Losses are compared as differences from the same start, so that they may have any sign and scale. A trial counts only if
it goes further in a few dozen steps than the run's own setting in as many, and further than the run itself has come in
all of its steps: a run that has converged, or that stands on the floor of its loss, is never beaten like that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from unstuck.diagnosis.suspicion import Course, course_of
from unstuck.record.gradients import OptimizerRecord
from unstuck.record.recording import Recording
from unstuck.record.trials import LearningTrial, LearningTrials

__all__ = ["Tried", "tried"]

SIGNIFICANT = 0.1
"""Part of the start's loss that a trial must gain."""

AHEAD_OF_OWN = 2.0
"""Gain of a trial over that of the run's own setting in as many steps."""

AHEAD_OF_RUN = 1.5
"""Gain of a trial over that of the whole run."""

SETTLED = 0.35
"""Part of its gain that a trial may have lost again at its end."""


@dataclass(frozen=True)
class Tried:
    """The trials of one optimiser beside the run itself.

    Attributes:
        record: the optimiser.
        trials: all of its trials.
        own: the run's own setting.
        course: of the run's loss.
    """

    record: OptimizerRecord
    trials: LearningTrials
    own: LearningTrial
    course: Course

    @property
    def start(self) -> float:
        """Loss before the first step, on the batches that were held out."""
        return self.own.losses[0]

    @property
    def run_gain(self) -> float:
        """What the whole run has gained; minus infinity where it has blown up."""
        return self.start - self.course.last

    def gain(self, trial: LearningTrial) -> float:
        """What a trial has gained by its end; minus infinity where it ran away."""
        last = trial.losses[-1]
        ran_away = not trial.whole and not trial.timed_out
        return -math.inf if ran_away or not math.isfinite(last) else self.start - last

    def learns(
        self, trial: LearningTrial, ahead_of_run: float = AHEAD_OF_RUN, ahead_of_own: float = AHEAD_OF_OWN
    ) -> bool:
        """Whether a trial learns what neither the run nor its own setting learns."""
        gain = self.gain(trial)
        best = self.start - min(trial.losses)
        return (
            gain >= SIGNIFICANT * abs(self.start)
            and gain >= (1.0 - SETTLED) * best
            and gain >= ahead_of_own * self.gain(self.own)
            and gain >= ahead_of_run * self.run_gain
        )

    def best_rate(self, larger: bool) -> LearningTrial | None:
        """Of the trials with nothing but a larger rate, or a smaller one, the one that has gained most."""
        rates = [item for item in self.trials.trials if item.name.startswith("rate x ")]
        return max((item for item in rates if (item.factor > 1.0) == larger), key=self.gain, default=None)


def tried(recording: Recording) -> Iterator[Tried]:
    """Every optimiser that was tried."""
    for trials in recording.all(LearningTrials):
        own, course = trials.named("own"), course_of(recording, trials.since)
        if (
            own is not None
            and course is not None
            and own.training
            and not own.timed_out
            and math.isfinite(own.losses[0])
        ):
            yield Tried(recording.optimizers[trials.optimizer], trials, own, course)
