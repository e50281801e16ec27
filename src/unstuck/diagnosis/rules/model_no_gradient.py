"""model.no-gradient: parameters take part in the model's output and never get a gradient, or hide in a plain list.

A part of the graph is cut (``detach``, ``.data``, ``item``, numpy, ``argmax``, ``torch.no_grad()``), the result of a
layer is dropped, or layers lie in a plain Python list, so that ``parameters()`` doesn't list them and no optimiser gets
them.

Found by looking, pass by pass, at which parameters get gradients; the cut is read from the traced first steps: the
operation that takes gradients in and whose result is used without. Reported are parameters that an optimiser holds,
that never get a gradient in the whole run, never change by other means (moving averages, copies), weren't loaded and
look freshly drawn. Layers that no traced step uses may be kept for later and aren't reported.
"""

from __future__ import annotations

import re

from unstuck.diagnosis.cuts import Cut, cut_behind
from unstuck.diagnosis.wiring import (
    FEW,
    common_module,
    connections,
    fresh,
    group_of,
    held,
    made_of,
    meant_fixed,
    orphans,
    place,
    told,
    without_gradients,
)
from unstuck.findings import Finding, Severity
from unstuck.record.anatomy import Anatomy
from unstuck.record.connections import Connections, ParameterRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "model.no-gradient"

_NUMBERED = re.compile(r"(?P<stem>.*?)(?P<number>\d+)(?P<rest>\D*)$")

FEWEST_STEPS = 8
"""Steps of the optimiser before which gradients may still come."""


def rule(recording: Recording) -> list[Finding]:
    """One finding per list of layers, one per line that cuts the graph."""
    record = connections(recording)
    if record is None or not any(item.fed for item in record.parameters):
        return []  # no gradient at all is another finding
    return [*_hidden(record), *_cut_off(recording, record)]


def _hidden(record: Connections) -> list[Finding]:
    lists: dict[str, list[ParameterRecord]] = {}
    for item in orphans(record):
        if item.home == "hidden":
            lists.setdefault(_container(record, item.path), []).append(item)
    found = []
    for container, group in lists.items():
        if not fresh(group) or meant_fixed(group) or not any(item.steps for item in record.holders):
            continue
        chain = made_of(record, next(path for path in record.hidden_in if group[0].path.startswith(f"{path}.")))
        found.append(
            Finding(
                CODE,
                Severity.ERROR,
                f"{container} is a plain list or dictionary: the model doesn't see what lies in it, so no optimizer "
                f"holds {told(group, None)}, and they stay as they were drawn",
                place(chain, container),
                {
                    "parameters": [item.path for item in group[:8]],
                    "count": len(group),
                    "numbers": sum(item.size for item in group),
                    "passes with a gradient": max(item.fed for item in group),
                },
                "keep layers in nn.ModuleList or nn.ModuleDict (parameters in nn.ParameterList)",
            )
        )
    return found


def _container(record: Connections, path: str) -> str:
    return next((value for key, value in record.hidden_in.items() if path.startswith(f"{key}.")), path)


def _cut_off(recording: Recording, record: Connections) -> list[Finding]:
    anatomies = [item for item in recording.all(Anatomy) if item.losses()]
    unfed = [item for item in record.parameters if _never_fed(record, item)]
    cuts: dict[tuple[object, ...], tuple[Cut, list[ParameterRecord]]] = {}
    for group in group_of(record, unfed).values():
        if not fresh(group) or meant_fixed(group):
            continue
        paths = [item.path for item in group]
        cut = next((found for anatomy in anatomies if (found := cut_behind(anatomy, paths)) is not None), None)
        if cut is None:
            cut = next((found for anatomy in anatomies if (found := _mistaken(record, anatomy, group))), None)
        if cut is not None:
            key = (cut.chain[-1:], cut.kind)
            cuts.setdefault(key, (cut, []))[1].extend(group)
    return [_finding(record, cut, group) for cut, group in cuts.values()]


def _mistaken(record: Connections, anatomy: Anatomy, group: list[ParameterRecord]) -> Cut | None:
    """Where a pass uses a numbered layer a second time, while its twin (``conv2`` beside ``conv1``) is used by nothing.

    A layer that is merely there may be kept for later; one whose place another takes was forgotten.
    """
    unused = {item.path for item in group}
    if any(value.name in unused for op in anatomy.ops for value in op.inputs if value.leaf == "parameter"):
        return None
    first = next((item for item in group if len(item.shape) > 1), None)
    twin = None if first is None else _NUMBERED.match(first.path)
    if first is None or twin is None:
        return None
    for other in record.parameters:
        found = _NUMBERED.match(other.path)
        if found is None or other.shape != first.shape or not other.fed or other.kind != first.kind:
            continue
        if (found["stem"], found["rest"]) != (twin["stem"], twin["rest"]):
            continue
        uses = _uses_in_a_pass(anatomy, other.path)
        if len(uses) > 1 and len({anatomy.chain(anatomy.ops[index].chain)[-1:] for index in uses}) > 1:
            op = anatomy.ops[uses[1]]
            return Cut(anatomy.chain(op.chain), op.name, "mistaken", op.module)
    return None


def _uses_in_a_pass(anatomy: Anatomy, path: str) -> list[int]:
    """Operations of the first pass that take a parameter."""
    end = next((mark.at for mark in anatomy.marks if mark.kind == "backward"), len(anatomy.ops))
    return [
        index
        for index, op in anatomy.forward()
        if index < end and any(value.leaf == "parameter" and value.name == path for value in op.inputs)
    ]


def _never_fed(record: Connections, item: ParameterRecord) -> bool:
    return (
        item.home == "model"
        and item.present
        and item.looks >= FEW
        and item.trained == item.looks
        and not item.fed
        and not item.changed
        and any(holder.steps >= FEWEST_STEPS for holder in held(record, item))
    )


def _finding(record: Connections, cut: Cut, group: list[ParameterRecord]) -> Finding:
    tops = list(group_of(record, group))
    module = tops[0] if len(tops) > 1 else common_module(tops)
    chain = without_gradients(record, cut.chain) if cut.kind == "no_grad" else cut.chain
    if cut.kind == "mistaken":
        how = "nothing uses them, while their twin is used twice in a pass"
        remedy = "call the layer that was meant here"
    elif cut.kind == "unused":
        how, remedy = "their result is computed and not used", "use the result, or take the layer out"
    else:
        how = f"{cut.words} takes what they compute out of the graph"
        remedy = f"compute this part by differentiable operations, without {cut.words}"
    return Finding(
        CODE,
        Severity.WARNING,
        f"{told(group, module)} never get a gradient: {how}",
        place(chain, module, group[0].path if len(group) == 1 else None),
        {
            "parameters": [item.path for item in group[:8]],
            "count": len(group),
            "numbers": sum(item.size for item in group),
            "cut by": cut.words,
            "looks": max(item.looks for item in group),
        },
        remedy,
    )
