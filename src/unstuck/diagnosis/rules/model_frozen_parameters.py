"""model.frozen-parameters: parameters don't require gradients although nothing was learnt that this would keep.

Freezing makes sense for weights that were trained or loaded. A part that is frozen as it was drawn (a flag that freezes
by default, a loop over names that matches too much, a new head behind a frozen backbone) gives random features to the
rest, which learns what it can. And what is switched off for a moment (a discriminator during the generator's step) and
never on again stops learning.

Found from ``requires_grad`` at every look, from what was loaded or stepped before, and from the numbers themselves: a
matrix that has learnt something has directions of large weight, which independent random numbers haven't. The traced
steps must show that the frozen part feeds what is trained, or lies between it and the loss; a frozen target or teacher
does neither. A frozen layer beside which an adapter learns from the same input isn't reported.
"""

from __future__ import annotations

from unstuck.diagnosis.adapters import has_path_beside
from unstuck.diagnosis.cuts import users
from unstuck.diagnosis.wiring import (
    FEW,
    connections,
    fresh,
    group_of,
    held,
    made_of,
    meant_fixed,
    named_by,
    place,
    told,
)
from unstuck.findings import Finding, Severity, Where
from unstuck.record.anatomy import Anatomy
from unstuck.record.connections import Connections, ParameterRecord
from unstuck.record.order import OrderRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "model.frozen-parameters"

EMPTY_STEPS = 8
"""Steps of an optimiser without any gradient, after all that it holds was frozen for good."""


def rule(recording: Recording) -> list[Finding]:
    """One finding per frozen part."""
    record = connections(recording)
    if record is None:
        return []
    return [*_never_trained(recording, record), *_left_off(recording, record), *_all_off(record)]


# -- everything is frozen ---------------------------------------------------------------------------------------------


def _all_off(record: Connections) -> list[Finding]:
    """An optimiser's parameters are all frozen from the start, so that its loss has no graph."""
    cut = [item for item in record.passes if item.graphless == item.count or (item.looks and item.cut == item.looks)]
    own = [item for item in record.parameters if item.held_by and item.home == "model"]
    if not cut or not own or any(item.trained or item.fed or item.last_frozen is None for item in own):
        return []
    return [
        Finding(
            CODE,
            Severity.ERROR,
            f"none of the {len(own)} parameters that the optimizers hold requires gradients: nothing can learn",
            _frozen_at(record, "", own),
            {"count": len(own), "numbers": sum(item.size for item in own)},
            "let the parameters that should learn require gradients: requires_grad_(True)",
        )
    ]


# -- frozen as they were drawn ----------------------------------------------------------------------------------------


def _never_trained(recording: Recording, record: Connections) -> list[Finding]:
    frozen = [
        item
        for item in record.parameters
        if item.home == "model" and item.present and item.looks >= FEW and not item.trained and not item.changed
    ]
    found = []
    anatomies = recording.all(Anatomy)
    for module, group in group_of(record, frozen).items():
        matrices = [item for item in group if len(item.shape) > 1]
        if not matrices or not fresh(group) or meant_fixed(group):
            continue
        if all(item.born_frozen and item.kind != "Embedding" for item in matrices):
            continue  # a constant that is kept as a parameter
        if anatomies and has_path_beside(anatomies[0], (item.path for item in matrices)):
            continue  # an adapter learns in its place
        if any(_matters(anatomy, {item.path for item in group}) for anatomy in anatomies):
            found.append(_finding(record, module, group))
    return found


def _matters(anatomy: Anatomy, paths: set[str]) -> bool:
    """Whether frozen parameters compute what trainable ones take, or lie between these and the loss."""
    following = users(anatomy)
    waiting = []
    for index, op in anatomy.forward():
        if any(value.leaf == "parameter" and value.name in paths for value in op.inputs):
            if any(value.grad for value in op.inputs):
                return True
            waiting.append(index)
    seen = set(waiting)
    while waiting:
        for later, _ in following.get(waiting.pop(), []):
            op = anatomy.ops[later]
            if any(value.leaf == "parameter" and value.grad for value in op.inputs):
                return True
            # a trainable weight is often turned before it meets its input
            makers = [anatomy.ops[value.op] for value in op.inputs if value.op is not None and value.grad]
            if any(value.leaf == "parameter" for maker in makers if maker.name == "t" for value in maker.inputs):
                return True
            if later not in seen:
                seen.add(later)
                waiting.append(later)
    return False


def _finding(record: Connections, module: str, group: list[ParameterRecord]) -> Finding:
    kept = " although an optimizer holds them" if any(held(record, item) for item in group) else ""
    return Finding(
        CODE,
        Severity.WARNING,
        f"{told(group, module)} don't require gradients{kept}, and hold the random numbers that they were drawn with",
        _frozen_at(record, module, group),
        {
            "parameters": [item.path for item in group[:8]],
            "count": len(group),
            "numbers": sum(item.size for item in group),
            "loaded": False,
        },
        "let them learn (requires_grad_(True), or the flag that froze them), or load trained weights before freezing",
    )


def _frozen_at(record: Connections, module: str, group: list[ParameterRecord]) -> Where:
    """The line that freezes; the one that makes the module where it freezes itself while it is made."""
    made = made_of(record, module)
    switches = [item for item in record.switches if not item.on and _covers(item.path, module, record)]
    if switches:
        chain = switches[-1].at
        inside = made and len(chain) > len(made) and chain[: len(made)] == made
        return place(made if inside else chain, module)
    statements = named_by(record.statements, "freeze", module)
    if statements and not all(item.born_frozen for item in group):
        return Where(file=statements[0].file, line=statements[0].line, module=module or None)
    return place(made, module)


def _covers(path: str, module: str, record: Connections) -> bool:
    return path in ("", module) or module.startswith(f"{path}.") or path.startswith(f"{module}.")


# -- switched off and never on again ----------------------------------------------------------------------------------


def _left_off(recording: Recording, record: Connections) -> list[Finding]:
    found = []
    for order in recording.all(OrderRecord):
        own = [item for item in record.parameters if order.number in item.held_by and item.present]
        once = [item for item in own if item.fed]
        # either its steps go on in vain, or its own pass has no graph any more and raises
        if not once or (order.bare < EMPTY_STEPS and not any(item.graphless for item in record.passes)):
            continue
        off = [item for item in once if item.last_frozen is not None and item.last_frozen > (item.last_fed or 0)]
        if len(off) < len(once):
            continue
        module = next(iter(group_of(record, off)))
        last = max(item.last_fed or 0 for item in off)
        switches = [item for item in record.switches if not item.on and item.step >= last]
        statements = named_by(record.statements, "freeze", module)
        if switches:
            where = place(switches[0].at, module)
        elif statements:
            where = Where(file=statements[0].file, line=statements[0].line, module=module)
        else:
            where = place(made_of(record, module), module)
        found.append(
            Finding(
                CODE,
                Severity.ERROR,
                f"{told(off, module)} stopped requiring gradients after step {last} and never do again, although "
                f"{order.kind} is to train them",
                where,
                {"count": len(off), "last gradient at step": last, "empty steps": order.bare, "steps": order.steps},
                "switch their gradients on again before their own pass",
            )
        )
    return found
