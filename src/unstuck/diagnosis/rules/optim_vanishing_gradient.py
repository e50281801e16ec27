"""optim.vanishing-gradient: the gradient shrinks layer by layer on its way back, and the early layers don't move.

Saturating activations or small weights multiply the gradient by a factor below one in each layer: in a deep stack
little arrives at the first layers, and the network learns with its last ones only.

Found from the gradients' size per element, layer by layer. Reported only where all of this holds: it falls over four
orders of magnitude from the last layer to the first, little by little (one cliff between two layers has another
cause: a cut graph, dead or saturated units, a frozen block), the early layers have not moved over the whole run while
the late ones have, and the loss hasn't learned. Optimisers that divide by the gradient's size (Adam) move layers
whose gradient is tiny; then there is nothing to report.
"""

from __future__ import annotations

import itertools
import math

from unstuck.diagnosis.layers import Graph, graphs_of
from unstuck.diagnosis.optimizing import at_line, middle, rows_of
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.gradients import FIRST_PARAMETER, TOTAL, OptimizerRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "optim.vanishing-gradient"

FEWEST_LAYERS = 5
FEWEST_STEPS = 50

DECADES = 4.0
"""Orders of magnitude between the gradients of the last and the first layer."""

RISING = 0.7
"""Share of neighbouring layers between which the gradient falls towards the input."""

CLIFF = 0.6
"""A single gap that makes up more of the fall is a cliff."""

UNMOVED = 1e-3
"""Relative change over the run of a layer that stands still."""

MOVED = 10.0
"""How much more the late layers have moved."""

SATURATING = frozenset({"sigmoid", "tanh", "hardsigmoid", "hardtanh", "softsign", "softmax"})
"""Functions that pass little gradient on their flat ends."""

LEARNED = 0.75
"""A loss below this part of its start has learned."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per optimiser."""
    if not _unlearned(recording):
        return []
    findings = (_of(recording, record) for record in recording.optimizers)
    return [finding for finding in findings if finding is not None]


def _of(recording: Recording, record: OptimizerRecord) -> Finding | None:
    rows = rows_of(record)
    layers = [index for index, dims in enumerate(record.dims) if dims >= 2 and record.sizes[index] >= 16]
    if len(layers) < FEWEST_LAYERS or record.steps < FEWEST_STEPS or not record.moved or not rows:
        return None
    # where a run stands still, what is left of its gradients is rounding noise of the same size in every layer
    telling = sorted(rows, key=lambda row: row.last[TOTAL])[-max(1, len(rows) // 4) :]
    sizes = []
    for index in layers:
        norm = middle([row.last[FIRST_PARAMETER + index] for row in telling])
        if norm is None or not norm > 0.0:
            return None  # no gradient at all has another cause
        sizes.append(math.log10(norm / math.sqrt(record.sizes[index])))
    fall = sizes[-1] - sizes[0]
    gaps = [later - earlier for earlier, later in itertools.pairwise(sizes)]
    if fall < DECADES or sum(gap > 0.0 for gap in gaps) < RISING * len(gaps) or max(gaps) > CLIFF * fall:
        return None
    third = max(1, len(layers) // 3)
    early = [record.moved[index] for index in layers[:third]]
    late = [record.moved[index] for index in layers[-third:]]
    if not max(early) <= UNMOVED or not max(late) >= MOVED * max(early):
        return None
    still = sum(record.moved[index] <= UNMOVED for index in layers)
    factor = 10.0 ** (-fall / (len(layers) - 1))
    first, last = record.names[layers[0]], record.names[layers[-1]]
    return Finding(
        CODE,
        Severity.WARNING,
        f"the gradient shrinks by {factor:.2g} per layer: at {first} it is {10.0**-fall:.1e} of that at {last}, and "
        f"{still} of {len(layers)} layers have not moved",
        at_line(_lines(recording, first), parameter=first, module=first.rpartition(".")[0] or None),
        {
            "first over last": 10.0**-fall,
            "factor per layer": factor,
            "layers": len(layers),
            "first layers moved": max(early),
            "last layers moved": max(late),
            "steps": record.steps,
        },
        "use activations that don't saturate (ReLU, GELU), residual connections or normalisation between the layers, "
        "and an initialisation made for the activation (Kaiming, Xavier)",
    )


def _lines(recording: Recording, parameter: str) -> tuple[Frame, ...]:
    """Where the activation behind the first layer is made, or called if it is no module; else where the layer is."""
    graph = next(iter(graphs_of(recording)), None)
    if graph is None:
        return ()
    layer = next((item for item in graph.layers.values() if item.weight == parameter), None)
    if layer is None:
        return graph.made_at(parameter)
    return _activation(graph, layer.index) or graph.lines_of(layer)


def _activation(graph: Graph, index: int) -> tuple[Frame, ...]:
    for user in graph.users(index):
        op = graph.anatomy.ops[user]
        if op.name in SATURATING:
            own = graph.module(op.module)
            is_layer = own is not None and not own.parameters
            return (graph.made(op.module) if is_layer else ()) or graph.anatomy.chain(op.chain)
    return ()


def _unlearned(recording: Recording) -> bool:
    losses = [item.last[0] for item in recording.loss_series]
    first, last = middle(losses[:8]), middle(losses[-max(8, len(losses) // 4) :])
    return first is not None and last is not None and last > LEARNED * first > 0.0
