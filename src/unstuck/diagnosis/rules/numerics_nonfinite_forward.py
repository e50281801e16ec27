"""numerics.nonfinite-forward: an operation of the forward pass made the first NaN or infinity on the way to the loss.

Found at a step that would take a non-finite loss: the step is run again under a tracer, and the walk back from the loss
ends at the first operation that makes NaN or infinity out of finite inputs, or NaN out of intended infinities.
"""

from __future__ import annotations

from unstuck.diagnosis.incidents import all_incidents, code_of, operation_finding
from unstuck.diagnosis.remedies import Advice
from unstuck.findings import Finding
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "numerics.nonfinite-forward"

_UNKNOWN = Advice(
    "the loss is not finite",
    "look at the operations that make the loss: log, division, sqrt, exp; `unstuck run --rerun` traces it",
)


def rule(recording: Recording) -> list[Finding]:
    """One finding per incident whose loss turned non-finite in the forward pass."""
    incidents = [item for item in all_incidents(recording) if code_of(item) == CODE]
    return [operation_finding(recording, CODE, item, _UNKNOWN) for item in incidents]
