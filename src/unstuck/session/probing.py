"""Trials at the end of a run: which are made, in what order, and how much time they get together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from unstuck.diagnosis.rules import model_batch_mixing, model_input_ignored
from unstuck.diagnosis.rules.loss_scale import scaling_of
from unstuck.diagnosis.rules.optim_schedule_collapse import AHEAD
from unstuck.diagnosis.signed_terms import first_loss
from unstuck.diagnosis.suspicion import course_of, suspicions, unusual_settings
from unstuck.diagnosis.trying import AHEAD_OF_RUN, Tried
from unstuck.instruments.kept_steps import Kept, KeptSteps
from unstuck.record.anatomy import Anatomy
from unstuck.record.gradients import OptimizerRecord
from unstuck.record.recording import Recording
from unstuck.record.schedules import ScheduleRecord
from unstuck.record.trials import DependenceTrial, LearningTrial, LearningTrials
from unstuck.trials.dependence import try_dependence
from unstuck.trials.learning import GATHERED, Change, Clip, TrialPlan, learn
from unstuck.trials.rehearsal import Rehearsal, RehearsalError, rehearse

__all__ = ["Probing"]

LENGTH = 64
"""Steps of a learning trial, where there is time."""

SIZES = ((LENGTH, 8, 4), (48, 8, 4), (36, 6, 3), (24, 4, 3), (18, 4, 2), (12, 3, 2))
"""Steps of a trial, batches that are held out and times that the loss on them is taken, by falling cost."""

_SETTINGS = "other rates and settings"
_DEPENDENCE = (
    ("whether samples of a batch meet", model_batch_mixing.rule),
    ("whether the output depends on the input", model_input_ignored.rule),
)
"""What other inputs tell, and the rules that suspect it."""

TRIALS = 4
"""Trials that are usually made, for which the time must do."""

SHOWS = 0.1
"""Part of the start's loss that a rate must gain to end the search for a larger one."""


class Probing:
    """The trials of one session.

    Args:
        recording: what they are judged by, and where what they show goes.
        kept: steps of the program.
        index_of: number of an optimiser in the recording, None if it has none.
        run_backward: the original ``torch.autograd.backward``.
        budget: seconds for all of them together.
        told: called with what is being done, again and again: a progress display.
    """

    def __init__(
        self,
        recording: Recording,
        kept: KeptSteps,
        index_of: Callable[[torch.optim.Optimizer], int | None],
        run_backward: Callable[..., None],
        budget: float,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._recording = recording
        self._kept = kept
        self._index_of = index_of
        self._run_backward = run_backward
        self._budget = budget
        self._told = told

    def run(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Make every trial that something is suspected for."""
        kept = self._kept.take()
        index = 0 if kept is None else self._index_of(kept.optimizer)
        if index is None or index >= len(self._recording.optimizers):
            return
        since = 0 if kept is None else kept.steps[0].step
        reasons = suspicions(self._recording, index, since)
        subjects = [phrase for phrase, asks in _DEPENDENCE if asks(self._recording)]
        if not reasons and not subjects:
            return
        made: list[DependenceTrial | LearningTrials] = []
        refused: dict[str, str] = {}
        try:
            if kept is None:
                raise RehearsalError(str(self._kept.refused))
            # what is found is written down outside: inside, a compiled program's objects, which the sandbox puts back,
            # may lead to the recording
            with rehearse(kept, optimizers, self._run_backward) as rehearsal:
                if subjects:
                    self._told("trying other inputs")
                    try:
                        made.append(try_dependence(rehearsal, self._samples()))
                    except RehearsalError as error:
                        refused = dict.fromkeys(subjects, str(error))
                if reasons:
                    made.append(self._learning(rehearsal, kept, index, reasons))
        except RehearsalError as error:
            tried = {type(item) for item in made}
            refused |= dict.fromkeys([] if DependenceTrial in tried else subjects, str(error))
            refused |= dict.fromkeys([_SETTINGS] if reasons else [], str(error))
        for item in made:
            self._recording.keep(item, whole=True)
        for subject, reason in refused.items():
            self._recording.add_unchecked(f"{subject}: not tried, {reason}")

    def _samples(self) -> int | None:
        """How many the first step's batch has, where that is known."""
        return next((item.batch_size for item in self._recording.all(Anatomy) if item.batch_size is not None), None)

    def _learning(self, rehearsal: Rehearsal, kept: Kept, index: int, reasons: tuple[str, ...]) -> LearningTrials:
        begin = time.monotonic()
        plan = _plan(self._recording, index, kept, begin + self._budget, _seconds(rehearsal))
        record = self._recording.optimizers[index]
        trials: list[LearningTrial] = []
        course = course_of(self._recording, kept.steps[0].step)

        def so_far() -> LearningTrials:
            return LearningTrials(
                index,
                reasons,
                len(plan.training),
                len(plan.held_out),
                plan.length,
                tuple(trials),
                time.monotonic() - begin,
                kept.steps[0].step,
                course.steps + kept.steps[0].step if course is not None else None,
            )

        def attempt(change: Change) -> LearningTrial | None:
            if trials and trials[-1].timed_out:
                return None
            trials.append(learn(rehearsal, change, plan, lambda: self._told("trying other rates and settings")))
            return None if trials[-1].timed_out else trials[-1]

        own = attempt(Change("own"))
        if own is not None and course is not None:
            choice = _Choice(self._recording, record, reasons, Tried(record, so_far(), own, course))
            for change in choice.changes():
                choice.made[change.name] = attempt(change)
        return so_far()


@dataclass
class _Choice:
    """Which changes are worth trying, given what the trials before have shown."""

    recording: Recording
    record: OptimizerRecord
    reasons: tuple[str, ...]
    tried: Tried
    made: dict[str, LearningTrial | None] = field(default_factory=dict)

    def changes(self) -> Iterator[Change]:
        """The next change, again and again."""
        tried, own = self.tried, self.tried.own
        if "schedule" in self.reasons:
            yield from self._rates_of_the_schedule(own)
        asked = self.made.get("the rate that was asked for")
        if asked is not None and tried.learns(asked, AHEAD, 0.0):
            return
        if tried.learns(own, AHEAD if "schedule" in self.reasons else AHEAD_OF_RUN, 0.0):
            return  # what the run was set to learns: something else has kept it from that
        yield from self._settings()
        if any(self._learned(name) for name in self.made):
            return
        yield from self._rates()

    def _learned(self, name: str) -> bool:
        trial = self.made.get(name)
        return trial is not None and self.tried.learns(trial, ahead_of_own=0.0 if name == "a step per batch" else 2.0)

    def _rates_of_the_schedule(self, own: LearningTrial) -> Iterator[Change]:
        asked = max([item.highest for item in self.recording.all(ScheduleRecord)], default=0.0)
        if own.rate > 0.0 and asked > 3.0 * own.rate:
            yield Change("the rate that was asked for", asked / own.rate)
        rates = [value for _, value in self.record.rates.lasts(0)]
        if rates and 0.0 < rates[0] < 0.1 * own.rate and self.tried.gain(own) < 0.1 * abs(self.tried.start):
            yield Change("the first rate", rates[0] / own.rate)

    def _settings(self) -> Iterator[Change]:
        usual: dict[str, Any] = dict(unusual_settings(self.record))
        if usual:
            yield Change("usual settings", settings=usual)
        if self.record.settings.get("weight_decay"):
            yield Change("no weight decay", settings={"weight_decay": 0.0})
        loss = first_loss(self.recording.all(Anatomy))
        scaling = None if loss is None else scaling_of(*loss)
        if scaling is not None:
            yield Change("another loss scale", gradient=1.0 / scaling.factor)
        if self.tried.course.count >= GATHERED * self.record.steps:
            yield Change("a step per batch", passes=1)

    def _rates(self) -> Iterator[Change]:
        own = self.tried.own
        gain = self.tried.gain(own)
        too_large = gain < -0.02 * abs(self.tried.start) or "jumps" in self.reasons or "large steps" in self.reasons
        small = "small steps" in self.reasons and not gain < 0.0
        if small:
            for exponent in range(1, 7):
                change = _rate(10.0**exponent)
                yield change
                trial = self.made[change.name]
                # beyond 100 only as far as the rate is still too small to show
                if trial is None or (exponent >= 2 and self.tried.gain(trial) > SHOWS * abs(self.tried.start)):
                    return
                if not trial.whole:
                    return
            return
        down = (0.1, 0.01)
        for factor in down if too_large else (10.0, 0.1, 100.0, 0.01):
            yield _rate(factor)
        if too_large and not any(self._learned(_rate(factor).name) for factor in down):
            yield _rate(0.001)


def _rate(factor: float) -> Change:
    return Change(f"rate x {factor:g}", factor)


def _seconds(rehearsal: Rehearsal) -> tuple[float, float]:
    """How long a pass takes, with its gradients and without."""
    rehearsal.start_again()
    times: dict[bool, float] = {}
    for gradients in (True, False, True, False):
        begin = time.monotonic()
        rehearsal.loss(0, gradients=gradients)
        times[gradients] = min(times.get(gradients, math.inf), time.monotonic() - begin)
    return times[True], times[False]


def _plan(recording: Recording, index: int, kept: Kept, deadline: float, seconds: tuple[float, float]) -> TrialPlan:
    """How the trials are made: as many steps as the run has made and the time allows.

    Raises:
        RehearsalError: the time doesn't do.
    """
    record = recording.optimizers[index]
    count = len(kept.steps)
    passes = max(1, round(sum(item.passes for item in kept.steps) / count))
    each = (deadline - time.monotonic()) / TRIALS
    step = seconds[0] * (passes if passes < GATHERED else 1)
    affordable = [size for size in SIZES if size[0] * step + size[1] * (size[2] + 1) * seconds[1] <= each]
    if not affordable:
        raise RehearsalError(f"the time doesn't do for it (a pass takes {seconds[0]:.2g} s; --budget gives more)")
    length, most, measures = affordable[0]
    length = min(length, LENGTH)
    held = max(1, min(most, count // 4))
    first = [float(group.get("lr", 0.0)) for group in kept.settings]
    highest = max([value for _, value in record.rates.highs(0)], default=max(first, default=0.0))
    scale = highest / max(first) if first and max(first) > 0.0 else 1.0
    clips = [
        Clip(item.kind, item.limit) for item in recording.clips if index in item.optimizers and item.fresh > item.stale
    ]
    return TrialPlan(
        tuple(range(count - held)) or (0,),
        tuple(range(count - held, count)),
        max(1, min(length, record.steps if passes < GATHERED else length)),
        measures,
        passes,
        [value * scale for value in first],
        clips,
        deadline,
    )
