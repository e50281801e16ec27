"""numerics.amp-order: gradients were clipped, or taken by a step, while a loss scaler had still scaled them.

A gradient scaler multiplies the loss, so that small gradients survive float16, and divides the gradients again before
they are used. Clipping before that division compares gradients that are, say, 65536 times too large with the limit:
what is left after the division is a step 65536 times too small. A step past the scaler takes gradients that much too
large.

Found by following, for each optimiser, whether its gradients come from a scaled loss and whether they were unscaled
since. Steps past the scaler count only if the norm of the gradients is still what backward left, so that a script
which divides by its own hand is passed over.

Clipping by a loop of the program's own is told by norms that, whatever backward leaves, are one and the same number
when the scaler steps. Limits that were scaled on purpose (they follow the scale) are passed over too.
"""

from __future__ import annotations

import math
from dataclasses import replace

from unstuck.diagnosis.optimizing import ADAPTIVE, at_line
from unstuck.diagnosis.wiring import connections
from unstuck.findings import Finding, Severity, Where
from unstuck.record.gradients import ClipRecord, ScalerRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "numerics.amp-order"

MEANT = 0.01
"""A limit over scale of this or more is a limit that somebody has multiplied by the scale."""

SMALLEST_SCALE = 256.0
"""Below this scale a limit that was scaled on purpose can't be told from one that wasn't."""

CUT = 0.9
"""Part of its norm that a gradient must have lost by hand to count as limited."""

HAND = 4
"""Steps whose gradients must have been limited by hand."""

SAME = 0.001
"""By how much norms may differ that count as the same."""

FEWEST = 3
"""Calls, or steps, after which it is no accident."""


def rule(recording: Recording) -> list[Finding]:
    """One finding per line that clips scaled gradients, one per scaler that is passed by."""
    found = [_clip(item) for item in recording.clips if _clips_scaled(item)]
    # what such a step has blown up may end the run before there are more of them
    few = 1 if recording.incidents else FEWEST
    found += [_bypass(item) for item in recording.scalers if item.bypassed >= few]
    return found or [_limited(recording, item) for item in recording.scalers if _limits_by_hand(item)]


def _limits_by_hand(scaler: ScalerRecord) -> bool:
    """Whether norms of scaled gradients, whatever backward leaves, are brought to one and the same number."""
    cut = [(left, taken, scale) for left, taken, scale in scaler.by_hand if taken < CUT * left]
    if len(cut) < HAND or len(cut) < 0.5 * len(scaler.by_hand):
        return False
    lefts, takens = [item[0] for item in cut], [item[1] for item in cut]
    same = max(takens) <= (1.0 + SAME) * min(takens)
    differ = max(lefts) > (1.0 + 20.0 * SAME) * min(lefts)
    return same and differ and all(scale >= SMALLEST_SCALE and taken / scale < MEANT for _, taken, scale in cut)


def _limited(recording: Recording, scaler: ScalerRecord) -> Finding:
    left, taken, scale = next(item for item in scaler.by_hand if item[1] < CUT * item[0])
    record = connections(recording)
    lines = [item for item in record.statements if item.kind == "gradient_change"] if record is not None else []
    where = at_line(scaler.step_at) if len(lines) != 1 else Where(file=lines[0].file, line=lines[0].line)
    return Finding(
        CODE,
        Severity.ERROR,
        f"the program limits gradients by hand while the loss scaler has still multiplied them by {scale:g}: the limit "
        f"of {taken:.3g} really holds the norm at {taken / scale:.2g}, so steps are far too small",
        replace(where, step=0),
        {"scale": scale, "norm after backward": left, "norm at the scaler's step": taken, "looks": len(scaler.by_hand)},
        "call scaler.unscale_(optimizer) after backward and before gradients are limited",
    )


def _clips_scaled(clip: ClipRecord) -> bool:
    return (
        clip.scaled >= FEWEST
        and clip.scaled_acted > 0
        and math.isfinite(clip.limit)
        and clip.scale is not None
        and clip.scale >= SMALLEST_SCALE
        and clip.scaled_high is not None
        and clip.scaled_high < MEANT
    )


def _clip(clip: ClipRecord) -> Finding:
    scale = clip.scale or 1.0
    what = "norm" if clip.kind == "norm" else "size of an element"
    return Finding(
        CODE,
        Severity.ERROR,
        f"gradients are clipped while the loss scaler has still multiplied them by {scale:g}: the limit of "
        f"{clip.limit:g} really holds the {what} at {clip.limit / scale:.2g}, so steps are far too small",
        at_line(clip.at, step=clip.scaled_step),
        {
            "scale": scale,
            "limit": clip.limit,
            "limit after unscaling": clip.scaled_low,
            "calls while scaled": clip.scaled,
            "calls": clip.calls,
        },
        "call scaler.unscale_(optimizer) after backward and before clipping",
    )


def _bypass(scaler: ScalerRecord) -> Finding:
    adaptive = scaler.bypassed_kind in ADAPTIVE
    effect = (
        "its rate hides the factor, but overflows are taken instead of skipped, and eps and decay are out of proportion"
        if adaptive
        else "the step is as many times too large"
    )
    return Finding(
        CODE,
        Severity.WARNING if adaptive else Severity.ERROR,
        f"{scaler.bypassed_kind} steps on gradients that the loss scaler has multiplied by {scaler.scale:g}: {effect}",
        at_line(scaler.bypassed_at, step=scaler.bypassed_step),
        {"scale": scaler.scale, "steps past the scaler": scaler.bypassed},
        "replace optimizer.step() by scaler.step(optimizer) followed by scaler.update()",
    )
