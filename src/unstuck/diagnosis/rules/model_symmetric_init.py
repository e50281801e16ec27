"""model.symmetric-init: units of a layer start identical and stay so.

Equal weights get equal gradients: a layer whose units all begin with the same weights (zeros, a constant), and whose
outputs are used alike, computes one unit's result many times over, however wide it is.

Equal rows alone are no fault: a zero last layer, the second matrix of a low-rank adapter, or a zero convolution in a
residual branch get a different gradient for each unit and differ after one step. So a layer is reported only where its
rows are equal before the first step and have not moved apart some steps later, although the layer takes part in the
loss and is trained.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.fillings import filled_at
from unstuck.diagnosis.layers import Graph, Layer, graphs_of
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

OF_MOVEMENT = 0.1
"""Part of a weight's relative movement that the spread makes up at most: a slow rate moves nothing far apart."""

FEWEST_STEPS = 5
FEWEST_UNITS = 2


def rule(recording: Recording) -> list[Finding]:
    """At most one finding: the first layer, with how many there are."""
    anatomies = recording.all(Anatomy)
    later = [item for item in anatomies if item.step >= anatomies[0].step + FEWEST_STEPS]
    if not later:
        return []
    graph = graphs_of(recording)[0]
    found = [
        layer
        for layer in _trained(graph)
        if graph.units(layer) >= FEWEST_UNITS and graph.after(layer.index) and _stays(recording, graph, later, layer)
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
    found = _spreads(anatomy, layer)
    return None if found is None else found[graph.unit_dimension(layer)]


def _spreads(anatomy: Anatomy, layer: Layer) -> tuple[float, float] | None:
    path, _, name = (layer.weight or "").rpartition(".")
    return next((part.spread.get(name) for part in anatomy.parts if part.path == path), None)


def _stays(recording: Recording, graph: Graph, later: list[Anatomy], layer: Layer) -> bool:
    """Whether the units begin equal and are equal at every later look, though the weight has moved if it could."""
    begin = _spread(graph, graph.anatomy, layer)
    spreads = [spread for item in later if (spread := _spread(graph, item, layer)) is not None]
    if begin is None or begin > ALIKE or len(spreads) < len(later) or max(spreads) > STILL_ALIKE:
        return False
    leaf = graph.leaf(layer, layer.weight)
    if leaf is not None and leaf.low == leaf.high == 0.0:
        return True  # any gradient would show as a spread of about 1
    moved = _moved(recording, layer.weight)
    if moved is None or moved == 0.0:  # of a sample of its elements, which may all belong to an input that is always 0
        began = _spreads(graph.anatomy, layer)
        return spreads[-1] <= ALIKE and any(_spreads(item, layer) != began for item in later)
    return spreads[-1] <= OF_MOVEMENT * moved


def _moved(recording: Recording, parameter: str | None) -> float | None:
    """Change of a parameter over the run over its size."""
    for record in recording.optimizers:
        for name, moved in zip(record.names, record.moved, strict=False):
            if name == parameter and math.isfinite(moved):
                return moved
    return None
