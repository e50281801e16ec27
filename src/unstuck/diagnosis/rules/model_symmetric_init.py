"""model.symmetric-init: units of a layer start identical and stay so.

Equal weights get equal gradients: a layer whose units all begin with the same weights (zeros, a constant), and whose
outputs are used alike, computes one unit's result many times over, however wide it is.

Equal rows alone are no fault: a zero last layer, the second matrix of a low-rank adapter, or a zero convolution in a
residual branch get a different gradient for each unit and differ after one step. So a layer is reported only where its
rows are equal before the first step and have not moved apart some steps later, although the layer takes part in the
loss and is trained.
"""

from __future__ import annotations

from unstuck.diagnosis.fillings import filled_at
from unstuck.diagnosis.layers import Graph, Layer
from unstuck.diagnosis.optimizing import at_line
from unstuck.findings import Finding, Severity
from unstuck.record.anatomy import Anatomy
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "model.symmetric-init"

ALIKE = 1e-6
"""Spread of rows, relative to their size, of those that begin equal: what rounding leaves."""

STILL_ALIKE = 1e-2
"""Spread of rows that have stayed together; different gradients move them apart within a few steps."""

FEWEST_STEPS = 5
FEWEST_UNITS = 2


def rule(recording: Recording) -> list[Finding]:
    """At most one finding: the first layer, with how many there are."""
    anatomies = recording.all(Anatomy)
    later = [item for item in anatomies if item.step >= anatomies[0].step + FEWEST_STEPS]
    if not later:
        return []
    graph = Graph(anatomies[0])
    found = [
        layer
        for layer in _trained(graph)
        if _units(graph, layer) >= FEWEST_UNITS and _stays(graph, anatomies[0], later, layer)
    ]
    if not found:
        return []
    first = found[0]
    units = _units(graph, first)
    level = _constant(graph, first)
    said = f"the weights of all {units} units in {first.weight} begin equal" + (
        "" if level is None else f" ({level:.3g})"
    )
    evidence = {
        "units": units,
        "spread at the start": _spread(graph, anatomies[0], first),
        "spread later": max(_spread(graph, item, first) or 0.0 for item in later),
        "step": later[-1].step,
        "layers": len({layer.weight for layer in found}),
    }
    lines = filled_at(recording, graph, first.weight, level) or graph.lines_of(first)
    return [
        Finding(
            CODE,
            Severity.ERROR,
            f"{said} and are still equal at step {later[-1].step}: each unit gets the same gradient, so that the "
            "layer computes one unit's result again and again",
            at_line(lines, module=first.module, parameter=first.weight),
            evidence,
            "draw the weights at random (torch's default, kaiming_uniform_, xavier_uniform_); biases may begin at zero",
        )
    ]


def _trained(graph: Graph) -> list[Layer]:
    """Layers whose result reaches a loss, in the order of execution, each weight once."""
    reached: set[int] = set()
    for _, made in graph.anatomy.losses():
        if made is not None:
            reached.update(graph.anatomy.behind(made))
    seen: dict[str, Layer] = {}
    for index, layer in sorted(graph.layers.items()):
        if layer.weight is None or layer.kind not in ("linear", "convolution", "recurrent"):
            continue
        if index in reached and graph.trainable(layer):
            seen.setdefault(layer.weight, layer)
    return list(seen.values())


def _dimension(graph: Graph, layer: Layer) -> int:
    """The dimension of the weight along which the units lie."""
    op = graph.anatomy.ops[layer.index]
    if layer.kind == "convolution":
        return 1 if op.settings.get("transposed") else 0
    if layer.kind == "recurrent":
        return 0
    value = next(value for value in op.inputs if graph.parameter(value) == layer.weight)
    turned = False
    while value.leaf != "parameter" and value.op is not None:
        turned ^= graph.anatomy.ops[value.op].name in ("t", "transpose", "numpy_T", "mT")
        value = graph.anatomy.ops[value.op].inputs[0]
    factors = op.inputs[1:] if op.name in ("addmm", "baddbmm") else op.inputs
    on_the_left = bool(factors) and graph.parameter(factors[0]) == layer.weight
    return int(turned) if on_the_left else int(not turned)


def _units(graph: Graph, layer: Layer) -> int:
    part, name = graph.part(layer.weight)
    shape = part.parameters.get(name, ()) if part is not None else ()
    return shape[_dimension(graph, layer)] if len(shape) > 1 else 0


def _spread(graph: Graph, anatomy: Anatomy, layer: Layer) -> float | None:
    path, _, name = (layer.weight or "").rpartition(".")
    found = next((part.spread.get(name) for part in anatomy.parts if part.path == path), None)
    return None if found is None else found[_dimension(graph, layer)]


def _stays(graph: Graph, first: Anatomy, later: list[Anatomy], layer: Layer) -> bool:
    """Whether the units begin equal and are equal at every later look."""
    looks = [(first, ALIKE), *((item, STILL_ALIKE) for item in later)]
    spreads = [(_spread(graph, item, layer), limit) for item, limit in looks]
    return all(spread is not None and spread <= limit for spread, limit in spreads)


def _constant(graph: Graph, layer: Layer) -> float | None:
    """The number that a weight was filled with, if it is one."""
    for value in graph.anatomy.ops[layer.index].inputs:
        while value.leaf != "parameter" and value.op is not None and graph.anatomy.ops[value.op].inputs:
            value = graph.anatomy.ops[value.op].inputs[0]
        if value.name == layer.weight and value.low is not None and value.low == value.high:
            return value.low
    return None
