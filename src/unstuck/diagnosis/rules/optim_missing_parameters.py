"""optim.missing-parameters: trainable parameters get gradients, but no optimiser holds them.

Parameter groups made by name that match too little, a second network or a loss module with parameters of its own whose
parameters were never passed on, layers unfrozen after the optimiser was made from what was trainable then.

Found by comparing who gets gradients with what the optimisers hold, pass by pass, modules of loss functions and single
``nn.Parameter`` objects included. A parameter that an optimiser holds at any time, or that changes by whatever means,
is not missing. What was loaded, or doesn't look like freshly drawn numbers, may be left as it is on purpose (a
pretrained backbone); it is reported only if its gradients were switched on after the optimiser was made.
"""

from __future__ import annotations

from unstuck.diagnosis.rules.optim_stale_parameters import replaced
from unstuck.diagnosis.wiring import (
    FEW,
    common_module,
    connections,
    fresh,
    meant_fixed,
    orphans,
    place,
    released,
    told,
    trains_tensors_only,
)
from unstuck.findings import Finding, Severity
from unstuck.record.connections import Connections, HolderRecord, ParameterRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "optim.missing-parameters"

LARGE = 0.25
"""Share of all trainable numbers from which training can't succeed without them."""


def rule(recording: Recording) -> list[Finding]:
    """One finding for all parameters that are missing."""
    record = connections(recording)
    if record is None or not any(item.steps for item in record.holders) or trains_tensors_only(record):
        return []
    explained = {id(new) for new, _, _ in replaced(record)}
    candidates = [item for item in orphans(record) if id(item) not in explained and item.home != "hidden"]
    roots: dict[str, list[ParameterRecord]] = {}
    for item in candidates:
        roots.setdefault(_root(item), []).append(item)
    missing = [item for group in roots.values() if _is_missing(group) for item in group]
    known = {id(item) for item in missing}
    missing += [item for item in released(record) if id(item) not in known | explained]
    found = [_finding(record, missing)] if missing else []
    return [*found, *_made_anew(record)]


def _made_anew(record: Connections) -> list[Finding]:
    """Layers that are constructed in the pass itself: new random numbers each time."""
    lines = [item for item in record.fleeting if item.passes >= FEW]
    if not lines:
        return []
    first = max(lines, key=lambda item: item.passes)
    return [
        Finding(
            CODE,
            Severity.ERROR,
            f"layers are made anew in every pass ({sum(item.parameters for item in lines)} parameters): no optimizer "
            "can hold them, and what they would learn is thrown away",
            place(first.at),
            {"parameters in a pass": sum(item.parameters for item in lines), "passes seen": first.passes},
            "construct layers once, in __init__, and use them in forward",
        )
    ]


def _root(item: ParameterRecord) -> str:
    """What is judged together: all of a module that stands apart, all that is missing of a model."""
    return item.path.partition(".")[0] if item.home == "apart" else item.home


def _is_missing(group: list[ParameterRecord]) -> bool:
    if meant_fixed(group):
        return False
    return all(item.home == "bare" for item in group) or fresh(group)


def _finding(record: Connections, missing: list[ParameterRecord]) -> Finding:
    modules = [item.path.rpartition(".")[0] for item in missing]
    module = common_module(modules)
    holder = _responsible(record, missing)
    total = sum(item.size for item in record.parameters if item.present and item.trained)
    share = sum(item.size for item in missing) / max(1, total)
    return Finding(
        CODE,
        Severity.ERROR if share >= LARGE else Severity.WARNING,
        f"{told(missing, module)} get gradients but no optimizer holds them, so they stay as they are",
        place(holder.made_at, module, missing[0].path if len(missing) == 1 else None),
        {
            "parameters": [item.path for item in missing[:8]],
            "count": len(missing),
            "numbers": sum(item.size for item in missing),
            "share of all": share,
            "passes with a gradient": max(item.fed for item in missing),
            "optimizers": [f"{item.kind}: {item.parameters} parameters" for item in record.holders[:4]],
        },
        "give them to an optimizer; where groups are made by name, check at the end that they hold every parameter "
        "that requires gradients",
    )


def _responsible(record: Connections, missing: list[ParameterRecord]) -> HolderRecord:
    """The optimiser that should hold them: one that holds what another holds already, else their neighbours'."""
    stepped = [index for index, item in enumerate(record.holders) if item.steps]
    sets = {
        index: frozenset(number for number, item in enumerate(record.parameters) if index in item.held_by)
        for index in stepped
    }
    for index in stepped:
        if any(other < index and sets[other] == sets[index] for other in stepped):
            return record.holders[index]
    roots = {_root(item) for item in missing}
    near = [
        index for index in stepped if any(index in item.held_by and _root(item) in roots for item in record.parameters)
    ]
    return record.holders[(near or stepped)[-1]]
