"""numerics.low-precision-overflow: a step isn't finite, or has no gradients left, only because it is in half precision.

float16 ends at 65504 and has nothing between 0 and 6e-8; bfloat16 has three digits, so an eps of 1e-8 next to 1 is lost
in both. Found by running the failing step again in float32 (autocast off, weights, batch and casts in 32 bits): if loss
and gradients are finite there, the format is the cause, and the place is the operation that made the first value that
isn't finite. A step that a loss scaler has skipped is run again with scale 1 before.

Underflow: a step of float16 without a loss scaler whose gradients are mostly zero is run again in float32 too; nine in
ten elements that have a number there and none here, at two steps, mean that nothing is learnt.
"""

from __future__ import annotations

from unstuck.diagnosis.incidents import all_incidents, code_of, operation_finding
from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.remedies import Advice
from unstuck.findings import Finding, Severity
from unstuck.record.incident import UnderflowRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "numerics.low-precision-overflow"

FLUSHED = 0.9
"""Share of the gradient elements that half precision has lost."""

LOOKS = 2
"""Steps at which it must be so."""

_UNKNOWN = Advice(
    "the step isn't finite in half precision; in float32 it is",
    "keep the operation that overflows in float32, outside of autocast",
)


def rule(recording: Recording) -> list[Finding]:
    """One finding per incident that float32 doesn't have, and one for gradients that are flushed to zero."""
    incidents = [item for item in all_incidents(recording) if code_of(item) == CODE]
    found = [operation_finding(recording, CODE, item, _UNKNOWN) for item in incidents]
    lost = [item for item in recording.all(UnderflowRecord) if item.looks >= LOOKS and item.share >= FLUSHED]
    return [*found, *map(_underflow, lost)]


def _underflow(record: UnderflowRecord) -> Finding:
    largest = max(record.largest.values(), default=0.0)
    return Finding(
        CODE,
        Severity.ERROR,
        f"{record.share:.0%} of the gradients that float32 has are zero in {record.format}: they are too small for it "
        f"(the largest is {largest:.2g}), so nothing is learnt from them",
        at_line(record.chain, step=record.step),
        {
            "flushed to zero": record.share,
            "gradient elements": record.nonzero,
            "steps run again in float32": record.looks,
            "largest gradients in float32": record.largest,
        },
        "scale the loss (torch.amp.GradScaler), or use bfloat16, which has float32's range",
        confirmed=True,
    )
