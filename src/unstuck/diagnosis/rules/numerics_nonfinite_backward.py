"""numerics.nonfinite-backward: the loss is finite, the derivative of an operation made the first NaN or infinity.

The place is the forward line of that operation: sqrt and norms at 0, powers below 1 at 0, the branch of ``where`` that
isn't taken, logsumexp over nothing but -inf.
"""

from __future__ import annotations

from unstuck.diagnosis.incidents import code_of, evidence_of, incident_notes, where_of
from unstuck.diagnosis.remedies import advise
from unstuck.findings import Finding, Severity
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "numerics.nonfinite-backward"


def rule(recording: Recording) -> list[Finding]:
    """One finding per incident whose gradients turned non-finite although the loss was finite."""
    found = []
    for incident in recording.incidents:
        if code_of(incident) != CODE:
            continue
        origin = incident.origin
        chain = origin.chain if origin is not None and origin.chain else incident.chain
        if origin is None or origin.op is None:
            summary = "gradients are not finite although the loss is"
            remedy = (
                "look for sqrt, norm, pow or division at 0 and for torch.where over unsafe values; run with --rerun"
            )
            where = where_of(incident, chain)
        else:
            advice = advise(origin)
            summary, remedy = advice.summary, advice.remedy
            where = where_of(incident, chain, module=origin.module, sample=origin.sample, op=origin.op)
        found.append(
            Finding(
                CODE,
                Severity.ERROR,
                summary,
                where,
                evidence_of(incident, origin),
                remedy,
                confirmed=incident.replayed,
                notes=incident_notes(incident),
            )
        )
    return found
