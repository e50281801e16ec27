"""optim.clip-too-tight: clipping acts on every step and leaves updates that are far too small to learn.

A limit far below the usual norm turns clipping from a guard against outliers into a constant factor: with plain
gradient descent the step is the rate times the limit, whatever the gradient.

Found from the norms before and after clipping and the size of updates relative to the weights. Clipping on nearly
every step is fine in itself, and common in recurrent networks: it is reported only if what is left moves the weights
by a negligible part over the whole run while the loss stays far from its floor. Optimisers that divide by the
gradient's own size (Adam, RMSprop) don't mind the factor and are passed over.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.optimizing import acting_clips, at_line, middle, rows_of
from unstuck.findings import Finding, Severity
from unstuck.record.gradients import APPLIED, TOTAL, OptimizerRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "optim.clip-too-tight"

FEWEST = 50
"""Steps below which a run says nothing about where it is going."""

ALWAYS = 0.95
"""Share of steps on which clipping acts."""

HARD = 0.05
"""Part of the gradient that clipping leaves, typically."""

PATH = 0.1
"""Upper bound of how far the weights may have come, over their size, all steps in one direction."""

LEARNED = 0.4
"""A loss that has fallen below this part of its start is learning, however small the steps."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per optimiser."""
    found = []
    for index, record in enumerate(recording.optimizers):
        clips = [item for item in acting_clips(recording, index) if not item.scaled and math.isfinite(item.limit)]
        if record.kind != "SGD" or record.steps < FEWEST or len(clips) != 1:
            continue
        left = _left(record)
        if left is None or left > HARD or not _stays_high(recording):
            continue
        update = middle([value for _, value in record.updates.lasts(0)])
        if update is None or update * record.steps > PATH:
            continue
        norm = middle([item.last[TOTAL] for item in rows_of(record)]) or math.nan
        found.append(
            Finding(
                CODE,
                Severity.WARNING,
                f"clipping to {clips[0].limit:g} acts on every step and leaves {100 * left:.2g} % of the gradient "
                f"(norm {norm:.3g}): a step changes the weights by {update:.1e} of their size",
                at_line(clips[0].at),
                {
                    "limit": clips[0].limit,
                    "norm before": norm,
                    "part left": left,
                    "update over weight": update,
                    "steps": record.steps,
                    "weights moved at most": update * record.steps,
                },
                f"raise the limit to about the usual norm ({_round(norm)}), so that clipping acts on outliers only, or "
                "take an optimizer that adapts its step (Adam)",
            )
        )
    return found


def _left(record: OptimizerRecord) -> float | None:
    """Part of the gradient that clipping typically leaves, None where it doesn't act on every step."""
    parts = [item.last[APPLIED] / item.last[TOTAL] for item in rows_of(record) if item.last[TOTAL] > 0.0]
    if not parts or sum(part < 0.999 for part in parts) < ALWAYS * len(parts):
        return None
    return middle(parts)


def _stays_high(recording: Recording) -> bool:
    losses = [item.last[0] for item in recording.loss_series]
    first, last = middle(losses[:8]), middle(losses[-max(8, len(losses) // 4) :])
    return first is not None and last is not None and first > 0.0 and last > LEARNED * first


def _round(value: float) -> str:
    return f"{value:.1g}" if math.isfinite(value) else "see above"
