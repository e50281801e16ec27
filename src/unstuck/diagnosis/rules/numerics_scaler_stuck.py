"""numerics.scaler-stuck: the loss scaler skips step after step, so nothing is learned.

A gradient scaler halves its scale whenever a gradient isn't finite and skips that step. A few skips at the start are
how it finds its scale. When it goes on skipping at a scale of 1 and less, the gradients aren't too large for float16:
they are NaN or infinite whatever the scale, so the cause lies in the model, the loss or the data.

Found by counting skipped calls of the scaler's ``step`` and reading the scale after them. A scaler that grows its
scale again at every step skips every other one on purpose and is passed over.
"""

from __future__ import annotations

from unstuck.diagnosis.optimizing import at_line
from unstuck.findings import Finding, Severity
from unstuck.record.gradients import ScalerRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "numerics.scaler-stuck"

RUN = 8
"""Skips in a row after which a scale below 1 says that it isn't searching any more."""

LOW = 1.0
"""A scale below this helps no gradient."""

LONG_RUN = 32
"""Skips in a row that are too many whatever the scale."""

SHARE = 0.8
"""Share of skipped steps that is too much over a whole run ..."""

ATTEMPTS = 64
"""... of at least this many."""


def rule(recording: Recording) -> list[Finding]:
    """One finding per scaler that is stuck."""
    return [_finding(item) for item in recording.scalers if _stuck(item)]


def _stuck(scaler: ScalerRecord) -> bool:
    if scaler.longest >= LONG_RUN or (scaler.longest >= RUN and scaler.longest_scale < LOW):
        return True
    return scaler.attempts >= ATTEMPTS and scaler.skipped >= SHARE * scaler.attempts


def _finding(scaler: ScalerRecord) -> Finding:
    return Finding(
        CODE,
        Severity.ERROR,
        f"the loss scaler skipped {scaler.skipped} of {scaler.attempts} steps, {scaler.longest} of them in a row, and "
        + _course(scaler),
        at_line(scaler.step_at, step=scaler.longest_step),
        {
            "skipped": scaler.skipped,
            "attempts": scaler.attempts,
            "longest run": scaler.longest,
            "first scale": scaler.first_scale,
            "scale after it": scaler.longest_scale,
        },
        _MAKE_ONE if _is_new_each_time(scaler) else _LET_IT_FALL if _is_held(scaler) else _LOOK_IN_FLOAT32,
    )


def _is_held(scaler: ScalerRecord) -> bool:
    """Whether a scale at which gradients overflow was never lowered: it says nothing about lower ones."""
    return scaler.longest_scale >= max(LOW, scaler.first_scale)


def _is_new_each_time(scaler: ScalerRecord) -> bool:
    """Whether the program makes a scaler for every step, so that none learns from the steps that it skips."""
    return scaler.made_anew >= 0.5 * scaler.attempts


def _course(scaler: ScalerRecord) -> str:
    if _is_new_each_time(scaler):
        return f"each time it is a new one that begins at {scaler.first_scale:g}, at which gradients aren't finite"
    if _is_held(scaler):
        return f"its scale was not lowered: it is {scaler.longest_scale:g}, at which gradients aren't finite"
    went = f"its scale went from {scaler.first_scale:g} to {scaler.longest_scale:g}"
    return f"{went}: gradients aren't finite at any scale" if scaler.longest_scale < LOW else went


_MAKE_ONE = "make one scaler before the loop and keep it: it lowers its scale until gradients fit into the format"
_LET_IT_FALL = (
    "let the scaler lower its scale: call scaler.update() without new_scale after every step, with one scaler for the "
    "whole run, or start with a lower init_scale"
)
_LOOK_IN_FLOAT32 = (
    "run some steps in float32 (GradScaler and autocast with enabled=False): what is non-finite then is named with "
    "its line; if nothing is, keep the operation that overflows in float32"
)
