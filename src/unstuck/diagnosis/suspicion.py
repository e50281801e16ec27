"""What makes a run worth a trial of its settings: cheap signs, each of which a healthy run may show as well."""

from __future__ import annotations

import math
from dataclasses import dataclass

from unstuck.diagnosis.optimizing import ADAPTIVE, middle
from unstuck.record.gradients import OptimizerRecord
from unstuck.record.order import OrderRecord
from unstuck.record.recording import Recording

__all__ = ["Course", "course_of", "suspicions", "unusual_settings"]

FEWEST = 24
"""Losses below which nothing is suspected."""

DIVERGED = 3.0
"""Loss over the first one before an incident from which on a rate may be the cause."""

FEWEST_BROKEN = 4
"""The same for a run that an incident has ended."""


@dataclass(frozen=True)
class Course:
    """How a run's loss went.

    Attributes:
        first: loss of the first step.
        last: usual loss of the last tenth.
        lowest: smallest of the usual losses of twentieths of the run.
        highest: largest single loss after the first steps, infinite where one wasn't finite.
        count: losses.
        steps: optimiser steps.
    """

    first: float
    last: float
    lowest: float
    highest: float
    count: int
    steps: int

    @property
    def fell(self) -> float:
        """Part of the first loss that is gone; negative where it rose."""
        return (self.first - self.last) / max(abs(self.first), 1e-12)


def course_of(recording: Recording, since: int = 0) -> Course | None:
    """How the loss went from an optimiser step on, None where too few are known."""
    buckets = [bucket for bucket in recording.loss_series if bucket.start >= since]
    losses = [bucket.last[0] for bucket in buckets]
    if len(losses) < (FEWEST_BROKEN if recording.incidents else FEWEST):
        return None
    first = losses[0] if math.isfinite(losses[0]) else middle(losses[:4])
    tail = losses[-max(8, len(losses) // 10) :]
    last = middle(tail)
    if first is None:
        return None
    if last is None or sum(not math.isfinite(item) for item in tail) > len(tail) // 2:
        last = math.inf
    width = max(4, len(losses) // 20)
    parts = [middle(losses[index : index + width]) for index in range(0, len(losses), width)]
    lowest = min(item for item in parts if item is not None)
    highest = max(
        bucket.high[0] if math.isfinite(bucket.last[0]) else math.inf for bucket in buckets[min(4, len(buckets) - 1) :]
    )
    return Course(first, last, lowest, highest, len(losses), buckets[-1].end + 1 - since)


def suspicions(recording: Recording, optimizer: int, since: int = 0) -> tuple[str, ...]:
    """Names of what is suspected of an optimiser: ``flat``, ``jumps``, ``large steps``, ``small steps``, ``schedule``,
    ``decay``, ``settings``.

    Args:
        recording: of the run.
        optimizer: its index.
        since: optimiser steps of the program before its first.
    """
    course = course_of(recording, since)
    record = recording.optimizers[optimizer]
    if any(item.judged and item.reworked > 0.5 * item.judged for item in recording.all(OrderRecord)):
        return ()  # the program makes its gradients itself: what it gives to backward needn't be what it lowers
    if course is None or (recording.incidents and not _diverged(recording, course)):
        return ()
    found = []
    if math.isinf(course.last) or course.fell < 0.3:
        found.append("flat")
    if course.highest > 3.0 * abs(course.first) and not course.fell > 0.9:
        found.append("jumps")
    update = middle([value for _, value in record.updates.lasts(0)])
    if update is not None and update > 0.03 and course.fell < 0.8:
        found.append("large steps")
    if update is not None and update * record.steps < 0.2 and course.fell < 0.6:
        found.append("small steps")
    if _schedule_suspect(record) and course.fell < 0.8:
        found.append("schedule")
    if float(record.settings.get("weight_decay") or 0.0) >= 0.01 and course.fell < 0.7 and _shrinks(record):
        found.append("decay")
    if unusual_settings(record) and course.fell < 0.8:
        found.append("settings")
    return tuple(found)


def _diverged(recording: Recording, course: Course) -> bool:
    """Whether the loss had grown far above its start before a value turned non-finite."""
    finite = [bucket.last[0] for bucket in recording.loss_series if math.isfinite(bucket.last[0])]
    return bool(finite) and finite[-1] > DIVERGED * abs(course.first)


def unusual_settings(record: OptimizerRecord) -> dict[str, object]:
    """Settings of an optimiser that are far from the usual ones, with the usual values."""
    settings = record.settings
    found: dict[str, object] = {}
    eps = settings.get("eps")
    if record.kind in ADAPTIVE - {"Adagrad", "Adafactor"} and isinstance(eps, float) and eps > 1e-5:
        found["eps"] = 1e-6 if record.kind == "Adadelta" else 1e-8
    betas = settings.get("betas")
    if isinstance(betas, (tuple, list)) and len(betas) == 2:
        first, second = float(betas[0]), float(betas[1])
        if first > 0.97 or second < 0.9 or second > 0.99999 or first > second:
            found["betas"] = (0.9, 0.999)
    momentum = settings.get("momentum")
    if isinstance(momentum, (int, float)) and momentum > 0.97:
        found["momentum"] = 0.9
    dampening = settings.get("dampening")
    if isinstance(dampening, (int, float)) and dampening > 0.5:
        found["dampening"] = 0.0
    alpha = settings.get("alpha")
    if record.kind == "RMSprop" and isinstance(alpha, float) and (alpha < 0.5 or alpha > 0.9999):
        found["alpha"] = 0.99
    return found


def _schedule_suspect(record: OptimizerRecord) -> bool:
    """Whether the rate was a small part of its highest for half of the run, or far below where it is meant to be."""
    rates = [(step, value) for step, value in record.rates.lasts(0) if math.isfinite(value)]
    if len(rates) < 8:
        return False
    peak = max(value for _, value in rates)
    if peak <= 0.0:
        return True
    half = [value for step, value in rates if step >= rates[-1][0] / 2]
    low = sum(value < 0.05 * peak for value in half) > 0.8 * len(half)
    base = record.settings.get("initial_lr")
    below = isinstance(base, float) and peak < 0.3 * base
    rises = peak > 10.0 * rates[0][1] and rates[-1][1] > 0.9 * peak
    return low or below or rises


def _shrinks(record: OptimizerRecord) -> bool:
    weights = [value for _, value in record.weights.lasts(0) if math.isfinite(value)]
    return bool(weights) and weights[-1] < 0.6 * weights[0]
