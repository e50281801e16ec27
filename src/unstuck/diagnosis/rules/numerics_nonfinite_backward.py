"""numerics.nonfinite-backward: the loss is finite, the derivative of an operation made the first NaN or infinity.

The place is the forward line of that operation: sqrt and norms at 0, powers below 1 at 0, the branch of ``where`` that
isn't taken, logsumexp over nothing but -inf.
"""

from __future__ import annotations

from unstuck.diagnosis.incidents import all_incidents, code_of, operation_finding
from unstuck.diagnosis.remedies import Advice
from unstuck.findings import Finding
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "numerics.nonfinite-backward"

_UNKNOWN = Advice(
    "gradients are not finite although the loss is",
    "look for sqrt, norm, pow or division at 0 and for torch.where over unsafe values; `unstuck run --rerun` traces it",
)


def rule(recording: Recording) -> list[Finding]:
    """One finding per incident whose gradients turned non-finite although the loss was finite."""
    incidents = [item for item in all_incidents(recording) if code_of(item) == CODE]
    return [operation_finding(recording, CODE, item, _UNKNOWN) for item in incidents]
