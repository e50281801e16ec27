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
        if cut is not None:
            key = (cut.chain[-1:], cut.kind)
            cuts.setdefault(key, (cut, []))[1].extend(group)
    return [_finding(record, cut, group) for cut, group in cuts.values()]


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
    if cut.kind == "unused":
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
