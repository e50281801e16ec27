"""What the rules on incidents share: which code an incident has, and how its place and evidence are written."""

from __future__ import annotations

from typing import Any

from unstuck.diagnosis.remedies import Advice, advise
from unstuck.findings import Finding, Severity, Where
from unstuck.places import Frame
from unstuck.record.incident import IncidentRecord, PrecisionRecord, SkippedStep
from unstuck.record.origin import Origin, TensorSummary
from unstuck.record.recording import Recording

__all__ = [
    "all_incidents",
    "code_of",
    "evidence_of",
    "incident_notes",
    "operation_finding",
    "origin_finding",
    "severity_of",
    "where_of",
]


_MANY_SAMPLES = 64
"""Samples of a batch up to which a finding lists them; the incident's folder has them all."""


def all_incidents(recording: Recording) -> list[IncidentRecord]:
    """The incidents of a run, those of steps that a loss scaler has skipped among them."""
    return [*recording.incidents, *(item.incident for item in recording.all(SkippedStep))]


def severity_of(recording: Recording, incident: IncidentRecord) -> Severity:
    """An error; a warning in an evaluation, which spoils no weights; mere information where a scaler drops the step."""
    if incident.kind == "evaluation":
        return Severity.WARNING
    return Severity.ERROR if any(item is incident for item in recording.incidents) else Severity.INFO


def code_of(incident: IncidentRecord) -> str | None:
    """The finding code of an incident; None if too little is known to name one."""
    origin = incident.origin
    if incident.precision is not None and incident.precision.finite:
        return "numerics.low-precision-overflow"
    if (
        incident.reworked_at
        or incident.kind in ("parameter", "state")
        or (origin is not None and origin.leaf == "parameter")
    ):
        return "numerics.nonfinite-parameter"
    if origin is not None and origin.leaf == "batch":
        return "data.nonfinite-input"
    if origin is None and incident.batch_sample is not None:
        return "data.nonfinite-input"
    # where the loss wasn't seen (gradients made by torch.autograd.grad or torch.func), the operation tells
    unseen = incident.loss is None and origin is not None and origin.op is not None
    forward = origin.phase == "forward" if unseen and origin is not None else incident.kind in ("loss", "evaluation")
    return "numerics.nonfinite-forward" if forward else "numerics.nonfinite-backward"


def where_of(incident: IncidentRecord, chain: tuple[Frame, ...], **more: Any) -> Where:
    """The place of an incident: the innermost line of ``chain``, the step and the batch."""
    last = chain[-1] if chain else None
    return Where(
        file=last.file if last else None,
        line=last.line if last else None,
        step=None if incident.late else incident.step,
        batch=None if incident.late else incident.batch,
        chain=chain,
        **more,
    )


def operation_finding(recording: Recording, code: str, incident: IncidentRecord, unknown: Advice) -> Finding:
    """The finding of an incident that an operation made, forward or backward.

    Args:
        recording: of which the incident is.
        code: of the finding.
        incident: of which it is.
        unknown: what to say where the operation isn't known.
    """
    origin = incident.origin
    chain = origin.chain if origin is not None and origin.chain else incident.chain
    if origin is None or origin.op is None:
        advice, where = unknown, where_of(incident, chain)
    else:
        advice = advise(origin)
        where = where_of(incident, chain, module=origin.module, sample=origin.sample, op=origin.op)
    return Finding(
        code,
        severity_of(recording, incident),
        advice.summary,
        where,
        evidence_of(incident, origin),
        advice.remedy,
        confirmed=incident.replayed and origin is not None,
        notes=incident_notes(incident),
    )


def origin_finding(origin: Origin, step: int, batch: int | None = None) -> Finding:
    """The finding of a value that a traced step has made, where there is no recording with an incident.

    Args:
        origin: where it was made.
        step: optimiser steps complete before the traced one.
        batch: index of the batch, where that is known.
    """
    advice = advise(origin)
    last = origin.chain[-1] if origin.chain else None
    return Finding(
        code="data.nonfinite-input" if origin.leaf == "batch" else f"numerics.nonfinite-{origin.phase}",
        severity=Severity.ERROR,
        summary=advice.summary,
        where=Where(
            file=last.file if last else None,
            line=last.line if last else None,
            step=step,
            batch=batch,
            sample=origin.sample,
            module=origin.module,
            op=origin.op,
            chain=origin.chain,
        ),
        remedy=advice.remedy,
    )


def evidence_of(incident: IncidentRecord, origin: Origin | None) -> dict[str, Any]:
    """The numbers of an incident."""
    evidence: dict[str, Any] = dict(incident.extra)
    if incident.loss is not None:
        evidence["loss"] = incident.loss
    evidence.update(_in_dataset(incident, origin))
    if origin is not None:
        evidence["result"] = origin.value
        evidence["inputs"] = [_tensor(item) for item in origin.inputs]
        if origin.scalars:
            evidence["scalars"] = list(origin.scalars)
        if origin.backward_op:
            evidence["derivative op"] = origin.backward_op
    if incident.precision is not None:
        evidence.update(_in_float32(incident.precision))
    return evidence


def _in_dataset(incident: IncidentRecord, origin: Origin | None) -> dict[str, Any]:
    """Which samples of the dataset the batch was made of: with shuffling, its number in the epoch tells nothing."""
    indices = incident.indices
    if not indices or incident.late:
        return {}
    sample = incident.batch_sample if incident.batch_key is not None else (origin.sample if origin else None)
    if sample is not None and 0 <= sample < len(indices):
        return {"dataset index": indices[sample]}
    return {"the batch's dataset indices": list(indices)} if len(indices) <= _MANY_SAMPLES else {}


def _in_float32(precision: PrecisionRecord) -> dict[str, Any]:
    found: dict[str, Any] = {"format": list(precision.formats), "finite in float32": precision.finite}
    if precision.loss is not None:
        found["loss in float32"] = precision.loss
    if precision.finite and precision.largest:
        found["largest values in float32 by layer"] = dict(precision.largest)
    return found


def _tensor(item: TensorSummary) -> dict[str, Any]:
    found: dict[str, Any] = {"shape": "x".join(map(str, item.shape)), "dtype": item.dtype}
    if item.offending is not None:
        found["offending"] = item.offending
    if item.low is not None:
        found["low"], found["high"] = item.low, item.high
    if item.nan:
        found["nan"] = item.nan
    if item.inf:
        found["inf"] = item.inf
    return found


def incident_notes(incident: IncidentRecord) -> tuple[str, ...]:
    """What isn't known of an incident, and why."""
    notes = []
    if incident.precision is not None and incident.precision.finite:
        notes.append(f"the same step in float32 is finite, so {' and '.join(incident.precision.formats)} is the cause")
    if incident.late:
        notes.append(
            f"it was noticed up to {incident.late} steps late, because looking every step would have cost too much; "
            "`unstuck run --rerun` finds the exact step"
        )
    if incident.kind == "evaluation":
        notes.append(
            f"{incident.extra.get('value')} of {incident.extra.get('method')}, loader {incident.extra.get('loader')}: "
            "training went on, the weights aren't touched"
        )
    if incident.kind in ("loss", "gradient") and incident.origin is None and not incident.reworked_at:
        reason = incident.reasons[0] if incident.reasons else "no operation was found on the way back"
        notes.append(f"the operation isn't known ({reason}); `unstuck run --rerun` traces the step as it happens")
    if incident.folder is not None and incident.kind == "parameter":
        notes.append("the incident folder holds the weights after the update; those before it are gone")
    return tuple(notes)
