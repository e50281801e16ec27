"""loss.disconnected: the loss carries no graph to any parameter, so that no step changes anything.

It was rebuilt as a new tensor (``torch.tensor(loss.item(), requires_grad=True)``), computed from what was detached,
taken through numpy or an index, or ``requires_grad_()`` has hidden that it had no graph. Where nothing hides it,
``backward`` raises "does not require grad".

Found by walking the graph of losses that ``backward`` gets: reported when none of them reaches a parameter and what the
optimisers hold never gets a gradient from anywhere. The line is that of the cut, where the traced steps show it.
"""

from __future__ import annotations

from unstuck.diagnosis.cuts import Cut, cut_before, reaches_parameter
from unstuck.diagnosis.wiring import connections, place, without_gradients
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy
from unstuck.record.connections import Connections, PassRecord
from unstuck.record.modes import EvaluationRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "loss.disconnected"


def rule(recording: Recording) -> list[Finding]:
    """One finding, for the first line that calls backward on such a loss."""
    record = connections(recording)
    if record is None or not record.holders:
        return []
    held = [item for item in record.parameters if item.held_by]
    if not held or any(item.fed for item in held) or all(item.last_frozen is not None for item in held):
        return []
    if any(item.changed for item in held):
        return []
    for passed in record.passes:
        if passed.graphless == passed.count or (passed.looks and passed.cut == passed.looks):
            return [_finding(recording, record, passed)]
    return []


def _finding(recording: Recording, record: Connections, passed: PassRecord) -> Finding:
    cut = _cut(recording)
    raises = passed.graphless > 0
    if cut is None:
        chain, how = _without_trace(recording, record, passed), ""
    else:
        chain = without_gradients(record, cut.chain) if cut.kind == "no_grad" else cut.chain
        how = f"; the graph ends at {cut.words}"
    hidden = "requires_grad_() makes it a leaf, which hides that" if passed.leaf else "it is a new tensor"
    return Finding(
        CODE,
        Severity.ERROR,
        "the loss has no graph to any parameter: "
        + ("backward raises" if raises else f"no step changes anything ({hidden})")
        + how,
        place(chain),
        {
            "backward at line": passed.at[-1].line if passed.at else None,
            "passes": passed.count,
            "parameters with a gradient": 0,
            "cut by": None if cut is None else cut.words,
        },
        "compute the loss from the model's output by operations of torch alone, without .item(), .detach(), numpy or "
        "torch.tensor(...) in between: torch.stack(losses).mean() for a list of losses",
    )


def _without_trace(recording: Recording, record: Connections, passed: PassRecord) -> tuple[Frame, ...]:
    """The block without gradients in which the model is called, where every call of it is there; else the pass."""
    calls = recording.all(EvaluationRecord)
    if calls and not recording.all(Anatomy):
        return without_gradients(record, calls[0].at)
    return passed.at


def _cut(recording: Recording) -> Cut | None:
    for anatomy in recording.all(Anatomy):
        for mark, loss in anatomy.losses():
            if mark.value is None or not mark.value.grad or loss is None or not reaches_parameter(anatomy, loss):
                found = cut_before(anatomy, mark.at, loss)
                if found is not None:
                    return found
        if not anatomy.losses():
            found = cut_before(anatomy, len(anatomy.ops), None)
            if found is not None:
                return found
    return None
