"""numerics.nonfinite-forward: an operation of the forward pass made the first NaN or infinity on the way to the loss.

Found at a step that would take a non-finite loss: the step is run again under a tracer, and the walk back from the loss
ends at the first operation that makes NaN or infinity out of finite inputs, or NaN out of intended infinities.
"""

from __future__ import annotations

from unstuck.diagnosis.incidents import code_of, evidence_of, incident_notes, where_of
from unstuck.diagnosis.remedies import advise
from unstuck.findings import Finding, Severity
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "numerics.nonfinite-forward"


def rule(recording: Recording) -> list[Finding]:
    """One finding per incident whose loss turned non-finite in the forward pass."""
    found = []
    for incident in recording.incidents:
        if code_of(incident) != CODE:
            continue
        origin = incident.origin
        chain = origin.chain if origin is not None and origin.chain else incident.chain
        if origin is None or origin.op is None:
            summary = f"the loss is {incident.loss}" if incident.loss is not None else "the loss is not finite"
            remedy = "look at the operations that make the loss: log, division, sqrt, exp; run with --rerun"
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
