"""model.bad-init-scale: activations grow or shrink by orders of magnitude with depth at initialisation.

Each layer multiplies the size of what it is given by about the deviation of its weights times the root of the number
of its inputs. Where that is far from one, a few layers without normalisation multiply up: the output is in the
hundreds before the first step and its gradients are as large, or what tells the samples apart is lost on the way.

Found in the first pass, along the layers after the last normalisation, each with the numbers that it made. Growth is
reported where the output is a hundred times its inputs' size and more. Loss of signal is reported where several layers
shrink it by their weights, not by a saturating activation, and the loss hasn't learned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from unstuck.diagnosis.fillings import filled_at
from unstuck.diagnosis.layers import Graph, Layer, graphs_of
from unstuck.diagnosis.optimizing import at_line, middle, part_left
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "model.bad-init-scale"

GROWTH = 100.0
"""Size of the output over that of the inputs, and by itself; both."""

SHRINKAGE = 1e-3
"""Deviation between samples at the last hidden layer over that at the first."""

FEWEST_LAYERS = 4
"""Layers along which a loss of signal counts."""

LARGE_GAIN, SMALL_GAIN = 3.0, 0.35
"""Deviation of a layer's weights times the root of its inputs: above and below, it is to blame. Torch's default is
0.58, Kaiming's 1.41."""

FELL = 0.9
"""A loss below this part of its start has learned something."""


@dataclass(frozen=True)
class Stage:
    """One layer on the way, with the size of what it takes and makes and how far it sets samples apart."""

    layer: Layer
    size: float
    apart: float | None
    gain: float | None


def rule(recording: Recording) -> list[Finding]:
    """At most one finding."""
    anatomies = recording.all(Anatomy)
    if not anatomies or anatomies[0].step > 1:
        return []
    graph = graphs_of(recording)[0]
    fed, stages = _way(graph)
    if not stages:
        return []
    finding = _growth(recording, graph, fed, stages) or _shrinkage(recording, graph, stages)
    return [] if finding is None else [finding]


def _way(graph: Graph) -> tuple[float, list[Stage]]:
    """(size of the inputs, the layers after the last normalisation) of the first pass, in the order of execution."""
    anatomy = graph.anatomy
    losses = [made for _, made in anatomy.losses() if made is not None]
    if not losses:
        return 0.0, []
    reached = set(anatomy.behind(losses[0]))
    norms = [index for index, layer in graph.layers.items() if layer.kind == "norm" and index in reached]
    norms += [index for index in reached if anatomy.ops[index].name.endswith("_norm")]
    begin = max(norms, default=-1)
    seen: dict[str, Layer] = {}
    for index, layer in sorted(graph.layers.items()):
        if begin < index <= losses[0] and index in reached and layer.kind != "norm" and layer.weight is not None:
            seen.setdefault(layer.weight, layer)
    stages = [stage for layer in seen.values() if (stage := _stage(graph, layer)) is not None]
    if not stages:
        return 0.0, []
    fed = graph.fed(stages[0].layer)
    if fed is None or stages[0].layer.kind == "embedding":
        return 1.0, stages
    return math.hypot(fed.mean or 0.0, fed.std or 0.0), stages


def _stage(graph: Graph, layer: Layer) -> Stage | None:
    op = graph.anatomy.ops[layer.index]
    made = op.outputs[0] if op.outputs else None
    if made is None or made.std is None or made.mean is None or not graph.trainable(layer):
        return None
    return Stage(layer, math.hypot(made.std, made.mean), op.measured.get("apart"), _gain(graph, layer))


def _gain(graph: Graph, layer: Layer) -> float | None:
    """Deviation of the weights times the root of the number of inputs of a unit."""
    leaf = graph.leaf(layer, layer.weight)
    if leaf is None or leaf.std is None or leaf.mean is None or len(leaf.shape) < 2:
        return None
    size = math.hypot(leaf.std, leaf.mean)
    if layer.kind == "embedding":
        return size
    return size * math.sqrt(math.prod(leaf.shape) / max(1, graph.units(layer)))


def _growth(recording: Recording, graph: Graph, fed: float, stages: list[Stage]) -> Finding | None:
    last = stages[-1]
    if not fed > 0.0 or not last.size >= GROWTH * max(1.0, fed):
        return None
    to_blame = [stage for stage in stages if stage.gain is not None and stage.gain >= LARGE_GAIN]
    if not to_blame:
        return None
    first = to_blame[0]
    gains = [stage.gain for stage in to_blame if stage.gain is not None]
    return Finding(
        CODE,
        Severity.ERROR if last.size >= 10 * GROWTH * max(1.0, fed) else Severity.WARNING,
        f"before the first step inputs of size {fed:.3g} give outputs of size {last.size:.3g}: {len(to_blame)} of "
        f"{len(stages)} layers multiply the size of what they take by about {middle(gains):.3g}",
        at_line(_lines(recording, graph, first.layer), step=0, module=first.layer.module, parameter=first.layer.weight),
        {
            "size of the inputs": fed,
            "size of the outputs": last.size,
            "sizes by layer": {stage.layer.weight or "": stage.size for stage in stages[:64]},
            "deviation of weights times root of inputs": {
                stage.layer.weight or "": stage.gain for stage in to_blame[:64]
            },
        },
        "draw weights with a deviation of about the root of 2 over the number of inputs (kaiming_normal_), or keep "
        "torch's default; normalise between layers of a deep stack",
    )


def _shrinkage(recording: Recording, graph: Graph, stages: list[Stage]) -> Finding | None:
    hidden = [stage for stage in stages[:-1] if stage.apart is not None and stage.layer.kind != "embedding"]
    if len(hidden) < FEWEST_LAYERS or (part_left(recording) or 0.0) <= FELL:
        return None
    first, last = hidden[0], hidden[-1]
    assert first.apart is not None
    assert last.apart is not None
    small = [stage for stage in hidden if stage.gain is not None and stage.gain <= SMALL_GAIN]
    if not last.apart <= SHRINKAGE * first.apart or len(small) < len(hidden) // 2:
        return None
    gains = [stage.gain for stage in small if stage.gain is not None]
    return Finding(
        CODE,
        Severity.ERROR,
        f"before the first step samples differ by {first.apart:.2g} behind {first.layer.module or first.layer.weight} "
        f"and by {last.apart:.2g} behind {last.layer.module or last.layer.weight}: {len(small)} of {len(hidden)} "
        f"layers shrink what they take to about {middle(gains):.2g} of it",
        at_line(
            _lines(recording, graph, small[0].layer),
            step=0,
            module=small[0].layer.module,
            parameter=small[0].layer.weight,
        ),
        {
            "samples apart by layer": {stage.layer.weight or "": stage.apart for stage in hidden[:64]},
            "deviation of weights times root of inputs": {stage.layer.weight or "": stage.gain for stage in small[:64]},
        },
        "draw weights with a deviation of about the root of 2 over the number of inputs (kaiming_normal_), or "
        "normalise between the layers",
    )


def _lines(recording: Recording, graph: Graph, layer: Layer) -> tuple[Frame, ...]:
    return filled_at(recording, graph, layer.weight) or graph.lines_of(layer)
