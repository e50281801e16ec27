"""model.dead-units: a layer's ReLU-like units are off for (nearly) every sample.

A unit that is off for every sample passes no gradient, so that nothing brings it back: the output is a constant,
and what lies before it learns nothing through it. Units die at the start, from a bias or weights that push all of
them below zero, or by a step so large that it throws the weights there.

Found from the first passes and from single later ones, unit by unit. A unit counts as off only where it was off for
every sample (and place of an image, or of a sequence) of all passes from the time on at which the layer died. Single
dead units, and sparse ones, are usual; a layer is reported where (nearly) all are off until the end.
"""

from __future__ import annotations

from unstuck.diagnosis.activations import Course, courses, largest_step
from unstuck.diagnosis.fillings import filled_at
from unstuck.diagnosis.layers import graphs_of
from unstuck.diagnosis.optimizing import at_line
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.anatomy import Value
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "model.dead-units"

NEARLY = 0.95
"""Share of a layer's units that are off, from which on it is reported, if it has many units."""

MANY = 16
"""Units of a layer that is reported although some are alive."""

SAMPLES, FEW_SAMPLES = 64, 8
"""Values that each unit was judged by, where some are alive, and where none is."""

BELOW = 2.0
"""Standard deviations by which the mean of what the units take lies below zero where a bias has killed them."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding: the first layer that died, with how many there are."""
    dead = [course for course in courses(graphs_of(recording), ("rectifier",)) if _is_dead(course)]
    if not dead:
        return []
    # the one that died first; where several did at once, one that is off altogether shows the cause best
    first = min(dead, key=lambda item: (_since(item), -item.steady))
    return [_finding(recording, first, dead)]


def _is_dead(course: Course) -> bool:
    last = course.looks[-2:]
    samples = sum(look.samples for look in last)
    if course.steady == 1.0:
        if course.units < MANY and course.graph.is_passed_by(course.index):
            return False  # a handful of units in a gate may well be off, and little is lost
        return samples >= FEW_SAMPLES and sum(look.passes for look in course.looks) > 1
    return course.steady >= NEARLY and course.units >= MANY and samples >= SAMPLES and len(course.looks) > 2


def _since(course: Course) -> int:
    """Place in the looks of the first from which on the layer was dead."""
    limit = min(NEARLY, course.steady)
    since = len(course.looks) - 1
    while since > 0 and course.looks[since - 1].off >= limit:
        since -= 1
    return since


def _finding(recording: Recording, course: Course, dead: list[Course]) -> Finding:
    since = _since(course)
    look = course.looks[since]
    off = round(course.steady * course.units)
    evidence: dict[str, object] = {
        "units": course.units,
        "off": off,
        "values per unit": sum(item.samples for item in course.looks[since:]),
        "layers": len({item.layer.weight for item in dead}),
        "share off by step": {str(item.step): round(item.off, 3) for item in course.looks},
    }
    if look.taken is not None:
        evidence["mean taken"], evidence["std taken"] = look.taken
    name = course.layer.module or course.layer.weight or course.op.module or "a layer"
    how_many = f"all {off}" if off == course.units else f"{off} of the {course.units}"
    said = f"{how_many} units behind {name} are off for every sample"
    if since == 0:
        lines, parameter, why, remedy = _from_the_start(recording, course)
        said = f"{said} from the first step on{why}"
        step = look.step
    else:
        before = course.looks[since - 1]
        large = largest_step(recording, before.step, look.step)
        lines, parameter, step = course.graph.lines_of(course.layer), None, None
        said = f"{said} since a step between {before.step} and {look.step}"
        remedy = "lower the learning rate or clip gradients; a leaky ReLU or GELU lets a gradient through"
        if large is not None:
            step = large.step
            evidence["norm over usual"], evidence["step over weights"] = large.growth, large.size
            said += f"; step {large.step} had a gradient {large.growth:.3g} times the usual"
            if large.size is not None:
                said += f" and was {large.size:.2g} times as large as the weights"
    return Finding(
        CODE,
        Severity.WARNING if off < course.units or course.graph.is_passed_by(course.index) else Severity.ERROR,
        f"{said}: they pass no gradient, so nothing brings them back",
        at_line(lines or course.chain, step=step, module=course.layer.module, parameter=parameter, op=course.op.name),
        evidence,
        remedy,
    )


def _from_the_start(recording: Recording, course: Course) -> tuple[tuple[Frame, ...], str | None, str, str]:
    """(lines, parameter, what is said of the cause, remedy) of a layer that is dead before it is trained."""
    graph, layer = course.graph, course.layer
    bias = graph.leaf(layer, layer.bias)
    taken = course.looks[0].taken
    if bias is not None and bias.high is not None and bias.mean is not None and bias.high < 0.0:  # noqa: SIM102
        if taken is None or bias.mean < -BELOW * taken[1]:
            return (
                filled_at(recording, graph, layer.bias, _single(bias)) or graph.lines_of(layer),
                layer.bias,
                f": {layer.bias} is {bias.mean:.3g}"
                + ("" if taken is None else f", while what the layer adds to it varies by {taken[1]:.2g}"),
                "begin the biases in front of a ReLU at zero; a prior belongs into the bias of the output layer alone",
            )
    weight = graph.leaf(layer, layer.weight)
    why = "" if taken is None else f": what they take is {taken[0]:.3g} on average and varies by {taken[1]:.2g}"
    if weight is not None and weight.high is not None and weight.high <= 0.0:
        why = f": no weight in {layer.weight} is above zero"
    return (
        filled_at(recording, graph, layer.weight) or graph.lines_of(layer),
        layer.weight,
        why,
        "initialise the weights around zero (torch's default, kaiming_uniform_) and feed inputs of about zero mean",
    )


def _single(value: Value) -> float | None:
    return value.low if value.low == value.high else None
