"""optim.weight-decay: decay outweighs the gradient and pulls the weights to zero.

The network then answers every input alike, and the loss stands at the value of knowing nothing.

Found by trial: from the same start, on batches that the loop has received, the run's own settings don't learn, and the
same settings without weight decay do.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.trying import Tried, tried
from unstuck.findings import Finding, Severity
from unstuck.record.recording import Recording
from unstuck.record.trials import LearningTrial

__all__ = ["CODE", "rule"]

CODE = "optim.weight-decay"


FORGETTING = 0.01
"""Part of each weight that a decoupled decay takes at every step, from which on a hundred steps are forgotten."""

HALVED = 0.5
"""Losses without that decay over those of the run and of its own setting."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per optimiser."""
    found = []
    for item in tried(recording):
        free = item.trials.named("no weight decay")
        if free is None or not (item.learns(free) or _held_back(item, free)):
            continue
        record = item.record
        decay = record.settings.get("weight_decay")
        weights = [value for _, value in record.weights.lasts(0) if math.isfinite(value)]
        shrunk = (
            f": the weights have gone from {weights[0]:.3g} to {weights[-1]:.3g}"
            if weights and weights[-1] < 0.7 * weights[0]
            else ""
        )
        found.append(
            Finding(
                CODE,
                Severity.ERROR,
                f"a weight decay of {decay:g} outweighs the gradient{shrunk}",
                at_line(record.made_at),
                {
                    "weight decay": decay,
                    "size of the weights": [weights[0], weights[-1]] if weights else None,
                    "loss of the run": [item.course.first, item.course.last],
                    **item.trials.evidence(free),
                },
                f"lower weight_decay by orders of magnitude (usual are 1e-2 for AdamW, 1e-4 for others): without "
                f"it the loss goes from {item.start:.3g} to {free.losses[-1]:.3g} in {free.steps[-1]} steps from the "
                "same start",
                confirmed=True,
            )
        )
    return found


def _held_back(item: Tried, free: LearningTrial) -> bool:
    """Whether a decay that forgets within the run holds its loss far above what a short trial without it reaches."""
    record, last = item.record, free.losses[-1]
    decay, rates = record.settings.get("weight_decay"), [value for _, value in record.rates.highs(0)]
    if record.kind != "AdamW" or not isinstance(decay, (int, float)) or not rates:
        return False
    if decay * max(rates) < FORGETTING or record.steps * decay * max(rates) < 2.0:
        return False
    return free.whole and 0.0 < last <= HALVED * min(item.own.losses[-1], item.course.last)
