"""optim.schedule-collapse: the schedule drives the rate to (nearly) zero, or up, long before the planned end.

A schedule whose lengths count epochs is moved after every batch, a factor per epoch is applied per step, a warm-up is
longer than the run, a plateau schedule watches the wrong number: the rate is gone, or never comes.

Found from the rates of the run, and by trial: from the same start, on batches that the loop has received, the rate that
the optimiser was given, held constant, gains more in a few dozen steps than the whole run has gained. A rate that is
low because the loss had come down before is never beaten like that. Without a trial: a rate that is a hundred
millionth of the highest, with more than half of the run to come.
"""

from __future__ import annotations

import linecache
import math
from dataclasses import dataclass

from unstuck.diagnosis.optimizing import at_line, part_left
from unstuck.diagnosis.trying import Tried, tried
from unstuck.diagnosis.wiring import connections
from unstuck.findings import Finding, Severity, Where
from unstuck.places import Frame
from unstuck.record.gradients import OptimizerRecord
from unstuck.record.recording import Recording
from unstuck.record.schedules import ScheduleRecord
from unstuck.record.trials import LearningTrial

__all__ = ["CODE", "rule"]

CODE = "optim.schedule-collapse"

LOW = 0.05
"""A rate below this part of the highest is as good as gone."""

HALF = 0.5
"""Share of the run's steps with such a rate."""

NEVER = 0.3
"""A highest rate below this part of the one that was asked for has never come."""

NOTHING = 1e-8
"""A rate below this part of the highest moves no weight of float32."""

FLOOR = 0.05
"""A loss below this part of its start has learned what there is, for all that is known."""

AHEAD = 1.25
"""Gain of a constant rate in a few dozen steps over that of the whole run."""

UP = 10.0
"""A rate that ends so many times higher than it began goes up."""


@dataclass(frozen=True)
class _Course:
    first: float
    highest: float
    last: float
    gone: int | None
    share: float


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per optimiser."""
    found = []
    schedules = recording.all(ScheduleRecord)
    for item in tried(recording):
        index = item.trials.optimizer
        own = [record for record in schedules if record.optimizer == index]
        rates = _rates(item.record)
        if rates is None or (not own and rates.last == rates.highest):
            continue
        finding = (
            _gone(recording, item, rates, own)
            or _never(recording, item, rates, own)
            or _up(recording, item, rates, own)
        )
        if finding is not None:
            found.append(finding)
    return found or _vanished(recording, schedules)


def _vanished(recording: Recording, schedules: list[ScheduleRecord]) -> list[Finding]:
    """A rate of next to nothing for more than half of the run, in a run whose loss isn't: no trial is needed."""
    left = part_left(recording)
    if left is None or left < FLOOR:
        return []
    found = []
    for index, record in enumerate(recording.optimizers):
        own = [item for item in schedules if item.optimizer == index]
        rates = _rates(record)
        if rates is None or any(item.kind == "ReduceLROnPlateau" for item in own):
            continue
        # one that is set to exactly 0 for a phase of the training may be meant
        fades = any(0.0 < value < NOTHING * rates.highest for _, value in record.rates.lasts(0))
        if not fades or rates.last > NOTHING * rates.highest or rates.share < HALF:
            continue
        schedule = _main(own)
        who = "the program" if schedule is None else schedule.kind
        found.append(
            Finding(
                CODE,
                Severity.WARNING,
                f"{who} has driven the rate from {rates.highest:g} below {LOW * rates.highest:.2g} by step "
                f"{rates.gone} of {record.steps}, and on to {rates.last:.1g}: from then on nothing is learned",
                _where(recording, record, schedule, step=rates.gone),
                {"first rate": rates.first, "highest rate": rates.highest, "last rate": rates.last},
                "compute each rate from the first one, not from the one before; fit the schedule's lengths to the run"
                if schedule is None
                else "let the rate fall more slowly: fit the schedule's lengths and factors to the run",
            )
        )
    return found


def _rates(record: OptimizerRecord) -> _Course | None:
    rates = [(step, value) for step, value in record.rates.lasts(0) if math.isfinite(value)]
    if len(rates) < 8:
        return None
    highest = max(value for _, value in rates)
    total = rates[-1][0] + 1
    gone = next(
        (
            step
            for position, (step, _) in enumerate(rates)
            if all(value < LOW * highest for _, value in rates[position:])
        ),
        None,
    )
    share = 0.0 if gone is None else (total - gone) / total
    return _Course(rates[0][1], highest, rates[-1][1], gone, share)


def _gone(recording: Recording, item: Tried, rates: _Course, schedules: list[ScheduleRecord]) -> Finding | None:
    """The rate fell to nothing with more than half of the run to come, and held constant it would have learned."""
    if rates.gone is None or rates.share < HALF or not _beats(item, item.own):
        return None
    schedule = _main(schedules)
    every_batch = schedule is not None and _per_batch(schedule)
    name = schedule.kind if schedule is not None else "the schedule"
    how = ", moved after every batch," if every_batch else ""
    return Finding(
        CODE,
        Severity.ERROR,
        f"{name}{how} has driven the rate from {rates.highest:g} below {LOW * rates.highest:.2g} by step "
        f"{rates.gone} of {item.record.steps}; the loss stays at {item.course.last:.3g}",
        _where(recording, item.record, schedule, at_step=every_batch, step=rates.gone),
        _evidence(item, rates, schedule, item.own),
        "move the schedule once per epoch, or give its lengths in batches"
        if every_batch
        else "let the rate fall more slowly: fit the schedule's lengths and factors to the run",
        confirmed=True,
    )


def _never(recording: Recording, item: Tried, rates: _Course, schedules: list[ScheduleRecord]) -> Finding | None:
    """The rate that was asked for never came."""
    asked = max([record.highest for record in schedules], default=0.0)
    trial = item.trials.named("the rate that was asked for")
    if trial is None or asked <= 0.0 or rates.highest > NEVER * asked or not _beats(item, trial):
        return None
    schedule = _main(schedules)
    return Finding(
        CODE,
        Severity.ERROR if item.run_gain < 0.1 * abs(item.start) else Severity.WARNING,
        f"the rate of {asked:g} never comes: the schedule reaches {rates.highest:.2g} in {item.record.steps} steps",
        _where(recording, item.record, schedule),
        {"asked for": asked, **_evidence(item, rates, schedule, trial)},
        "shorten the warm-up so that it ends early in the run",
        confirmed=True,
    )


def _up(recording: Recording, item: Tried, rates: _Course, schedules: list[ScheduleRecord]) -> Finding | None:
    """The rate grows until nothing is learned, and the one that it began with learns."""
    trial = item.trials.named("the first rate")
    if trial is None or rates.last < UP * rates.first or rates.last < 0.5 * rates.highest:
        return None
    if not item.learns(trial, ahead_of_run=AHEAD):
        return None
    schedule = _main(schedules)
    return Finding(
        CODE,
        Severity.ERROR,
        f"the schedule drives the rate up, from {rates.first:.2g} to {rates.last:.2g}",
        _where(recording, item.record, schedule),
        _evidence(item, rates, schedule, trial),
        "take a factor below one, or a schedule that comes down again",
        confirmed=True,
    )


def _beats(item: Tried, trial: LearningTrial) -> bool:
    return item.learns(trial, ahead_of_run=AHEAD, ahead_of_own=0.0)


def _main(schedules: list[ScheduleRecord]) -> ScheduleRecord | None:
    """The schedule that was moved most."""
    return max(schedules, key=lambda item: item.calls, default=None)


def _per_batch(schedule: ScheduleRecord) -> bool:
    """Whether a schedule is moved with every optimiser step although its lengths look like epochs."""
    if schedule.calls < 0.8 * schedule.steps or schedule.steps <= 2 * max(1, schedule.epochs):
        return False
    if schedule.kind == "ReduceLROnPlateau":
        return True
    lengths = [
        float(value)
        for name, value in schedule.settings.items()
        if name in ("step_size", "T_max", "last_milestone", "T_0", "total_iters") and isinstance(value, (int, float))
    ]
    return all(length < schedule.steps / 2 for length in lengths)


def _where(
    recording: Recording,
    record: OptimizerRecord,
    schedule: ScheduleRecord | None,
    at_step: bool = False,
    step: int | None = None,
) -> Where:
    if schedule is None:
        wired = connections(recording)
        lines = [] if wired is None else [item for item in wired.statements if item.kind == "rate"]
        if len(lines) == 1:
            return Where(file=lines[0].file, line=lines[0].line, step=step)
        return at_line(record.made_at, step=step)
    moved_there = at_step and _calls_step(schedule.step_at)
    chain = schedule.step_at if moved_there or not schedule.made_at else schedule.made_at
    return at_line(chain, step=step)


def _calls_step(chain: tuple[Frame, ...]) -> bool:
    """Whether the program moves the schedule itself: a Trainer that does so was told when, where it was made."""
    line = linecache.getline(chain[-1].file, chain[-1].line) if chain else ""
    return not line or "step" in line


def _evidence(item: Tried, rates: _Course, schedule: ScheduleRecord | None, trial: LearningTrial) -> dict[str, object]:
    told: dict[str, object] = {
        "first rate": rates.first,
        "highest rate": rates.highest,
        "last rate": rates.last,
        "share of steps with less than a twentieth": rates.share,
        "loss of the run": [item.course.first, item.course.last],
    }
    if schedule is not None:
        told |= {"schedule": schedule.kind, "moves": schedule.calls, "steps": schedule.steps, "epochs": schedule.epochs}
        told["settings"] = dict(schedule.settings)
    others = [] if trial is item.own else [trial]
    return {**told, **item.trials.evidence(*others)}
