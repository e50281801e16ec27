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

ALIKE = 1e-4
"""Spread of rows, relative to their size, of those that begin equal but for a trace of noise."""

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
        if graph.units(layer) >= FEWEST_UNITS and graph.after(layer.index) and _stays(graph, anatomies[0], later, layer)
    ]
    if not found:
        return []
    first = found[0]
    units = graph.units(first)
    leaf = graph.leaf(first, first.weight)
    level = leaf.low if leaf is not None and leaf.low == leaf.high else None
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


def _spread(graph: Graph, anatomy: Anatomy, layer: Layer) -> float | None:
    path, _, name = (layer.weight or "").rpartition(".")
    found = next((part.spread.get(name) for part in anatomy.parts if part.path == path), None)
    return None if found is None else found[graph.unit_dimension(layer)]


def _stays(graph: Graph, first: Anatomy, later: list[Anatomy], layer: Layer) -> bool:
    """Whether the units begin equal and are equal at every later look."""
    looks = [(first, ALIKE), *((item, STILL_ALIKE) for item in later)]
    spreads = [(_spread(graph, item, layer), limit) for item, limit in looks]
    return all(spread is not None and spread <= limit for spread, limit in spreads)
