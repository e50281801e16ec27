"""data.nonfinite-input: a batch already held NaN or infinity, and it reached the loss or a gradient.

Found when the walk back from an incident ends at a tensor of the batch. The place is the line that drew the batch or,
without a loader, the line that first used it.
"""

from __future__ import annotations

from unstuck.diagnosis.incidents import all_incidents, code_of, evidence_of, incident_notes, severity_of, where_of
from unstuck.findings import Finding
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "data.nonfinite-input"


def rule(recording: Recording) -> list[Finding]:
    """One finding per incident whose value came with the batch."""
    found = []
    for incident in all_incidents(recording):
        if code_of(incident) != CODE:
            continue
        origin = incident.origin
        drawn = incident.batch_key is not None
        chain = incident.draw_chain if drawn and incident.draw_chain else (origin.chain if origin else incident.chain)
        sample = incident.batch_sample if drawn else (origin.sample if origin else None)
        value = origin.value if origin is not None else "a non-finite number"
        name = incident.batch_key or (origin.leaf_name if origin else None)
        key = f" at {name}" if name else ""
        summary = f"the batch{key} already holds {value}" + (f" in sample {sample}" if sample is not None else "")
        found.append(
            Finding(
                CODE,
                severity_of(recording, incident),
                summary,
                where_of(incident, chain or incident.chain, sample=sample),
                evidence_of(incident, origin),
                "clean the data set: drop the sample, or fill the missing value and mask it out of the loss "
                "(torch.isfinite tells which)",
                confirmed=incident.replayed,
                notes=incident_notes(incident),
            )
        )
    return found
