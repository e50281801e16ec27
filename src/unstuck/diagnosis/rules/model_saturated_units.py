"""model.saturated-units: sigmoid- or tanh-like units of a hidden layer sit on their flat ends.

On its flat ends such a function has hardly a slope: what lies before it gets hardly a gradient, and its output says
little more than a sign. Units saturate where weights or inputs are too large from the start, or after a step that has
thrown the weights far out.

Found from the first passes and from single later ones: the share of values within a hundredth of a flat end. Only
functions between trained layers count, and no gates (what another value is multiplied by may be 0 or 1). Reported where
it is so from the first step to the last look, or has come about by a step of unusual size.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.activations import Course, LargeStep, courses, largest_step
from unstuck.diagnosis.fillings import filled_at
from unstuck.diagnosis.layers import graphs_of
from unstuck.diagnosis.optimizing import at_line, part_left
from unstuck.findings import Finding, Severity
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "model.saturated-units"

MOST = 0.7
"""Share of values at a flat end, on average over the looks, that is reported whatever the loss does."""

MANY = 0.6
"""Share at every look that is reported where the loss hasn't learned, and always the least."""

LEARNED = 0.7
"""A loss below this part of its start has learned."""

STEEP = 2.0
"""Factor in front of a function that is meant to be steep."""

FEW_SAMPLES = 16
_ELEMENTWISE = frozenset(("mul", "addcmul", "lerp"))
_PRODUCTS = frozenset(("bmm", "baddbmm", "mm", "matmul"))
WIDE = 3.0
"""Size of what the layer in front is fed from which on that, and not its weights, is to blame."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding: the first layer in the order of execution, with how many there are."""
    learned = (part_left(recording) or 0.0) <= LEARNED
    found: list[tuple[Course, int, LargeStep | None]] = []
    for course in courses(graphs_of(recording), ("sigmoid", "tanh")):
        if _is_gate(course) or _is_steep(course) or sum(look.samples for look in course.looks) < FEW_SAMPLES:
            continue
        since = _since(course)
        if since is None or (learned and _average(course) < MOST):
            continue
        large = None
        if since > 0:
            large = largest_step(recording, course.looks[since - 1].step, course.looks[since].step)
            if large is None or large.size is None or large.size < 0.5 or learned:
                continue
        found.append((course, since, large))
    if not found:
        return []
    course, since, large = min(found, key=lambda item: item[1])
    return [_finding(recording, course, since, large, len({item.layer.weight for item, _, _ in found}))]


def _average(course: Course) -> float:
    return sum(look.share for look in course.looks) / len(course.looks)


def _since(course: Course) -> int | None:
    """Place of the first look from which on the share was never below the limit, None where the last one is."""
    since = None
    for place in range(len(course.looks) - 1, -1, -1):
        if course.looks[place].share < MANY:
            break
        since = place
    if since == 0 and sum(look.passes for look in course.looks) < 2:
        return None
    return since


def _is_gate(course: Course) -> bool:
    """Whether data are multiplied by the result, element by element or as by attention weights."""
    graph = course.graph
    for user in graph.users(course.index):
        op = graph.anatomy.ops[user]
        if op.name in _ELEMENTWISE:
            return True
        factors = op.inputs[1:] if op.name == "baddbmm" else op.inputs
        # weights of a mean stand on the left; on the right they would be what is averaged
        if op.name in _PRODUCTS and user not in graph.layers and graph.source(factors[0]) == course.index:
            return True
    return False


def _is_steep(course: Course) -> bool:
    """Whether the program multiplies what the function takes by a number: it is meant to be near a step."""
    source = course.op.inputs[0]
    op = None if source.op is None else course.graph.anatomy.ops[source.op]
    if op is None or op.name not in ("mul", "div"):
        return False
    factor = op.settings.get("other")
    if not isinstance(factor, (int, float)) or factor == 0:
        return False
    return abs(factor if op.name == "mul" else 1.0 / factor) >= STEEP


def _finding(recording: Recording, course: Course, since: int, large: LargeStep | None, layers: int) -> Finding:
    graph, look = course.graph, course.looks[since]
    name = course.layer.module or course.layer.weight or course.op.module or "a layer"
    shares = {str(item.step): round(item.share, 3) for item in course.looks}
    evidence: dict[str, object] = {"share by step": shares, "units": course.units, "layers": layers}
    said = f"{look.share:.0%} of the {course.kind} values behind {name} lie on a flat end"
    lines = graph.lines_of(course.layer)
    step: int | None
    if large is None:
        step = look.step
        said += " from the first step on"
        remedy = "scale the weights so that the units take values of about one (xavier_uniform_)"
        if look.taken is not None:
            evidence["mean taken"], evidence["std taken"] = look.taken
            said += f": what they take varies by {look.taken[1]:.3g}"
        fed = graph.fed(course.layer)
        size = math.hypot(fed.mean or 0.0, fed.std or 0.0) if fed is not None else 0.0
        if size >= WIDE:
            evidence["size of the layer's input"] = size
            said += f", since {name} is fed values of size {size:.3g}"
            remedy = "standardise the inputs, or normalise in front of this layer"
        else:
            lines = filled_at(recording, graph, course.layer.weight) or lines
    else:
        step = large.step
        evidence["norm over usual"], evidence["step over weights"] = large.growth, large.size
        said += f" since step {large.step}, which was {large.size:.2g} times as large as the weights"
        remedy = "lower the learning rate or clip gradients"
    return Finding(
        CODE,
        Severity.WARNING if look.share < MOST else Severity.ERROR,
        f"{said}; hardly a gradient passes there",
        at_line(lines or course.chain, step=step, module=course.layer.module, op=course.op.name),
        evidence,
        remedy,
    )
