"""optim.lr-too-high: the loss jumps, diverges or stands high, and a smaller rate on the same data learns.

Found by trial: from the same start, on batches that the loop has received, the run's own rate gains nothing to speak of
in a few dozen steps, and a tenth or a hundredth of it gains more than the whole run. Large steps and jumps alone are no
fault (big rates with batch norm, adversarial and reinforcement learning); they only make the trial worth its time.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.trying import AHEAD_OF_RUN, Tried, tried
from unstuck.findings import Finding, Severity
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "optim.lr-too-high"

RISING = 1.2
"""Gain of the smaller rate over that of the whole run, where the run's own rate only drives the loss up at first."""

BLOWN_UP = 5.0
"""Last loss over the first one of a run that has exploded."""

LEARNED = 0.8
"""A loss below this part of its start had learned something before."""

FAILS = 0.5
"""Gain of the run's own rate over that of the smaller one, in as many steps: at most so much of it."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per optimiser."""
    found = []
    for item in tried(recording):
        best = item.best_rate(larger=False)
        if best is None or item.gain(item.own) > FAILS * item.gain(best) or _exploded_later(item):
            continue
        if not item.learns(best, RISING if item.gain(item.own) <= 0.0 else AHEAD_OF_RUN):
            continue
        record = item.record
        found.append(
            Finding(
                CODE,
                Severity.ERROR,
                f"a learning rate of {item.own.rate:g} is too high for {record.kind}: {_course(item)}, and at "
                f"{best.rate:.2g} from the same start it falls to {best.losses[-1]:.3g} in {best.steps[-1]} steps",
                at_line(record.made_at),
                {
                    "lr": item.own.rate,
                    "smaller lr": best.rate,
                    "loss of the run": [item.course.first, item.course.last],
                    **item.trials.evidence(best),
                },
                f"set lr to about {best.rate:.1g}, or warm the rate up to where the loss still falls",
                confirmed=True,
            )
        )
    return found


def _exploded_later(item: Tried) -> bool:
    """Whether the loss had come down before it was lost: a gradient that explodes, not a rate that never fits."""
    course = item.course
    return not course.last <= BLOWN_UP * abs(course.first) and course.lowest < LEARNED * course.first


def _course(item: Tried) -> str:
    if not math.isfinite(item.course.last):
        return f"the loss goes from {item.course.first:.3g} out of all bounds"
    return f"the loss goes from {item.course.first:.3g} to {item.course.last:.3g} in {item.course.steps} steps"
