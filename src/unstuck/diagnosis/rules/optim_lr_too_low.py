"""optim.lr-too-low: the loss falls steadily but far too slowly, and a larger rate on the same data learns.

Found by trial: from the same start, on batches that the loop has received, a rate that is ten or a hundred times larger
gains far more in a few dozen steps than the whole run has, and the run's own rate confirms that it is slow. The weights
have hardly moved over the run. A small rate that gets there (fine-tuning), a loss on its floor and a loss that changes
its sign (policy gradients) are passed over.

A rate that was 0 at every step needs no trial.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.optimizing import at_line, middle
from unstuck.diagnosis.trying import Tried, tried
from unstuck.findings import Finding, Severity
from unstuck.record.gradients import OptimizerRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "optim.lr-too-low"

FEWEST = 64
"""Steps of a run that may be called too slow."""

AHEAD = 3.0
"""Gain of the larger rate over that of the whole run."""

UNMOVED = 0.2
"""Relative change over the whole run of weights that hardly move."""

FEWEST_AT_ZERO = 16
"""Steps with a rate of 0, which a warm-up may begin with, that are a fault."""

TAKES_OFF = 2.0
"""Fall of the last quarter's loss over that of the third's, of a run that has begun to learn in earnest."""

ROSE = 0.1
"""A loss that has risen by this part of its start has other troubles."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per optimiser."""
    at_zero = [_zero(item) for item in recording.optimizers if _is_zero(item)]
    if at_zero or _takes_off(recording):
        return at_zero
    return [_finding(item) for item in tried(recording) if _too_low(item)]


def _takes_off(recording: Recording) -> bool:
    """Whether the loss falls faster and faster: a run that leaves its plateau was stopped, and isn't slow."""
    losses = [bucket.last[0] for bucket in recording.loss_series]
    quarter = len(losses) // 4
    if quarter < 4 or not all(map(math.isfinite, losses)):
        return False
    second, third, last = (middle(losses[quarter * part : quarter * (part + 1)]) for part in (1, 2, 3))
    if second is None or third is None or last is None:
        return False
    return third - last > max(TAKES_OFF * (second - third), ROSE * abs(losses[0]))


def _is_zero(record: OptimizerRecord) -> bool:
    highest = [value for _, value in record.rates.highs(0)]
    return (
        record.steps >= FEWEST_AT_ZERO
        and bool(highest)
        and max(highest) == 0.0
        and bool(record.moved)
        and not any(record.moved)
    )


def _zero(record: OptimizerRecord) -> Finding:
    return Finding(
        CODE,
        Severity.ERROR,
        f"the learning rate of {record.kind} is 0 at every step, so no step changes a weight",
        at_line(record.made_at),
        {"lr": 0.0, "steps": record.steps},
        "set lr to about 0.001 (Adam) or 0.01 (SGD), or look where the schedule or the settings make it 0",
    )


def _too_low(item: Tried) -> bool:
    best = item.best_rate(larger=True)
    moved = middle(item.record.moved)
    return (
        best is not None
        and item.record.steps >= FEWEST
        and item.learns(best, ahead_of_run=AHEAD, ahead_of_own=AHEAD)
        and item.gain(item.own) >= 0.0 - 0.02 * abs(item.start)
        and item.course.first > 0.0
        and item.course.lowest > 0.0
        and item.run_gain >= -ROSE * abs(item.start)
        and (moved is None or moved <= UNMOVED)
    )


def _finding(item: Tried) -> Finding:
    best = item.best_rate(larger=True)
    assert best is not None
    record = item.record
    moved = middle(record.moved)
    return Finding(
        CODE,
        Severity.ERROR if item.run_gain < 0.1 * abs(item.start) else Severity.WARNING,
        f"a learning rate of {item.own.rate:g} is too low for {record.kind}: in {item.course.steps} steps the loss "
        f"goes from {item.course.first:.3g} to {item.course.last:.3g}, and at {best.rate:.2g} from the same start to "
        f"{best.losses[-1]:.3g} in {best.steps[-1]}",
        at_line(record.made_at),
        {
            "lr": item.own.rate,
            "larger lr": best.rate,
            "weights moved": moved,
            "loss of the run": [item.course.first, item.course.last],
            **item.trials.evidence(best),
        },
        f"set lr to about {best.rate:.1g}",
        confirmed=True,
    )
