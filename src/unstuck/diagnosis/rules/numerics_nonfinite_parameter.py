"""numerics.nonfinite-parameter: loss and gradients were finite, the update itself made a weight or state non-finite.

Found by looking at parameters and optimiser state after steps. The update is repeated on copies to name the operation:
an eps that is zero in half precision, a square that overflows, a rate that multiplies to infinity.
"""

from __future__ import annotations

from typing import Any

from unstuck.diagnosis.incidents import all_incidents, code_of, incident_notes, severity_of, where_of
from unstuck.findings import Finding
from unstuck.record.incident import IncidentRecord, UpdateRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "numerics.nonfinite-parameter"

_SMALLEST = {"float16": 6e-8, "bfloat16": 9.2e-41, "float32": 1.4e-45, "float64": 5e-324}
"""Smallest positive number of each format."""


_DIVIDING = frozenset({"div", "addcdiv", "reciprocal", "rsqrt"})


def rule(recording: Recording) -> list[Finding]:
    """One finding per incident of a poisoned parameter or optimiser state."""
    found = []
    for incident in all_incidents(recording):
        if code_of(incident) != CODE:
            continue
        update = incident.update
        evidence: dict[str, Any]
        if incident.reworked_at:
            where = where_of(incident, incident.reworked_at)
            summary = (
                "gradients are finite after backward, and are not when the step takes them: this line changes them"
            )
            evidence = dict(incident.extra) if incident.loss is None else {**incident.extra, "loss": incident.loss}
            remedy = "make it safe for gradients that are all zero: add an eps to the divisor, or pass over them"
        elif update is None:
            origin = incident.origin
            name = origin.leaf_name if origin is not None else None
            where = where_of(incident, incident.chain, parameter=name)
            summary = f"the parameter {name or ''} was not finite before the forward pass".replace("  ", " ")
            evidence = dict(incident.extra)
            if incident.loss is not None:
                evidence["loss"] = incident.loss
            remedy = "look at what changes the weights outside the optimiser: initialisation, loading, in-place edits"
        else:
            chain = (*incident.chain, *update.chain)
            where = where_of(incident, chain, parameter=update.parameter, op=update.op)
            summary, remedy = _summary(update), _remedy(incident, update)
            evidence = {**incident.extra, **_evidence(update)}
        found.append(
            Finding(
                CODE,
                severity_of(recording, incident),
                summary,
                where,
                evidence,
                remedy,
                confirmed=bool(incident.reworked_at) or (update is not None and update.op is not None),
                notes=incident_notes(incident),
            )
        )
    return found


def _summary(update: UpdateRecord) -> str:
    what = (
        f"{update.count} of {update.total} elements of {update.parameter or 'a parameter'} ({update.dtype})"
        if update.count
        else f"the state {', '.join(update.state)} of {update.parameter or 'a parameter'}"
    )
    others = f", and {update.parameters - 1} more parameters," if update.parameters > 1 else ""
    return f"{update.optimizer}'s update made {what}{others} non-finite; loss and gradients were finite"


def _eps_vanishes(update: UpdateRecord) -> bool:
    eps = update.settings.get("eps")
    smallest = _SMALLEST.get(update.dtype)
    return isinstance(eps, float) and smallest is not None and eps < smallest / 2


def _remedy(incident: IncidentRecord, update: UpdateRecord) -> str:
    if _eps_vanishes(update):
        return (
            f"eps={update.settings['eps']:g} is zero in {update.dtype}, so the update divides by zero: keep weights "
            "in float32 (autocast for the forward pass), or set an eps that the format can hold"
        )
    if update.chain and update.op in _DIVIDING:
        return f"make {update.op} safe in the optimiser's own step: add an eps to what it divides by"
    if update.state:
        return (
            "the optimiser's state overflowed: clip gradients before the step, lower the learning rate, or keep state "
            "and weights in float32"
        )
    return "lower the learning rate or clip the gradients; check the hyper-parameters of this group"


def _evidence(update: UpdateRecord) -> dict[str, Any]:
    evidence: dict[str, Any] = dict(update.settings)
    evidence = {key: evidence[key] for key in ("lr", "eps", "betas", "momentum", "weight_decay") if key in evidence}
    if update.gradient_limits is not None:
        evidence["gradient"] = list(update.gradient_limits)
    if update.inputs:
        evidence["inputs"] = list(update.inputs)
    return evidence
