"""What the rules on dead and on saturated units share: each activation function followed over a run's anatomies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from unstuck.diagnosis.layers import Graph, Layer
from unstuck.diagnosis.optimizing import relative_step, rows_of
from unstuck.places import Frame
from unstuck.record.anatomy import Op, Units
from unstuck.record.gradients import TOTAL
from unstuck.record.recording import Recording

__all__ = ["Course", "LargeStep", "Look", "courses", "largest_step"]

HIDDEN = ("linear", "convolution", "recurrent", "norm")


@dataclass(frozen=True)
class Look:
    """The units at one anatomy, all passes of it together.

    Attributes:
        step: steps that were complete when the anatomy began.
        passes: calls that are taken together.
        off: share of the units that were off for every sample of every pass.
        share: share of single values that were off.
        samples: values that each unit was judged by.
        taken: (mean, standard deviation) of what the function took, of the last pass.
    """

    step: int
    passes: int
    off: float
    share: float
    samples: int
    taken: tuple[float, float] | None


@dataclass
class Course:
    """An activation function behind a layer, over the run.

    Attributes:
        graph: of the first anatomy in which it was seen.
        index: its operation there.
        layer: what it works on.
        units: how many.
        kind: as :attr:`Units.kind`.
        looks: by anatomy.
        steady: share of the units that were off in every pass of the last two anatomies, or of the only one; 1 also
            where every unit was off in the last one.
    """

    graph: Graph
    index: int
    layer: Layer
    units: int
    kind: str
    looks: list[Look] = field(default_factory=list)
    steady: float = 0.0

    @property
    def op(self) -> Op:
        """The operation of the activation function."""
        return self.graph.anatomy.ops[self.index]

    @property
    def chain(self) -> tuple[Frame, ...]:
        """The user's lines down to its call."""
        return self.graph.anatomy.chain(self.op.chain)


Key = tuple[str | None, str | None, str, Frame | None]


def courses(graphs: list[Graph], kinds: tuple[str, ...]) -> list[Course]:
    """Activation functions between trained layers, in the order of execution.

    Args:
        graphs: of the anatomies, the first one first.
        kinds: of units.
    """
    found: dict[Key, Course] = {}
    masks: dict[Key, list[int | None]] = {}
    for graph in graphs:
        seen: dict[Key, list[tuple[int, Units]]] = {}
        for key, index, units, layer in _activations(graph, kinds):
            found.setdefault(key, Course(graph, index, layer, units.count, units.kind))
            if found[key].units == units.count:
                seen.setdefault(key, []).append((index, units))
        for key, calls in seen.items():
            mask = _mask([units for _, units in calls])
            masks.setdefault(key, []).append(mask)
            found[key].looks.append(_look(graph, calls, mask))
    for key, course in found.items():
        last = [mask for mask in masks[key][-2:] if mask is not None]
        if course.looks[-1].off == 1.0:
            course.steady = 1.0
        elif last:
            course.steady = bin(last[0] & last[-1]).count("1") / course.units
        else:
            course.steady = min(look.off for look in course.looks[-2:])
    return list(found.values())


def _activations(graph: Graph, kinds: tuple[str, ...]) -> Iterator[tuple[Key, int, Units, Layer]]:
    for index, op in graph.anatomy.forward():
        if op.units is None or op.units.kind not in kinds or not op.grad_mode:
            continue
        layer = graph.layers.get(index) or graph.before(index)  # a recurrent layer has its function within
        if layer is None or layer.kind not in HIDDEN or not graph.after(index):
            continue
        if layer.weight is not None and not graph.trainable(layer):
            continue
        chain = graph.anatomy.chain(op.chain)
        yield (layer.weight, op.module, op.name, chain[-1] if chain else None), index, op.units, layer


def _mask(calls: list[Units]) -> int | None:
    """Units that were off in every call; None where they weren't kept one by one."""
    if any(not units.mask for units in calls):
        return None
    mask = int(calls[0].mask, 16)
    for units in calls[1:]:
        mask &= int(units.mask, 16)
    return mask


def _look(graph: Graph, calls: list[tuple[int, Units]], mask: int | None) -> Look:
    units = [item for _, item in calls]
    samples = sum(item.samples for item in units)
    off = min(item.off for item in units) if mask is None else bin(mask).count("1")
    last = calls[-1][0]
    made = None if last in graph.layers else graph.result(graph.anatomy.ops[last].inputs[0])
    taken = (made.mean, made.std) if made is not None and made.mean is not None and made.std is not None else None
    return Look(
        step=graph.anatomy.step,
        passes=len(units),
        off=off / units[0].count,
        share=sum(item.share * item.samples for item in units) / samples,
        samples=samples,
        taken=taken,
    )


@dataclass(frozen=True)
class LargeStep:
    """A step of unusual size.

    Attributes:
        step: which one.
        size: change over weights, None if unknown.
        growth: its gradient's norm over the usual one.
    """

    step: int
    size: float | None
    growth: float


def largest_step(recording: Recording, begin: int, end: int, unusual: float = 5.0) -> LargeStep | None:
    """The step with the largest gradient between two anatomies, if it stands out from those before the first one.

    Args:
        recording: of the run.
        begin: first step that counts.
        end: first step that doesn't.
        unusual: factor over the usual norm from which on it stands out; a step of half the weights' size always does.
    """
    best: LargeStep | None = None
    for record in recording.optimizers:
        rows = rows_of(record)
        usual = sorted(row.last[TOTAL] for row in rows)
        if not usual:
            continue
        middle = usual[len(usual) // 2]
        for row in rows:
            if not begin <= row.start < end:
                continue
            growth = row.high[TOTAL] / middle if middle > 0.0 else 0.0
            size = relative_step(record, row)
            if (growth >= unusual or (size is not None and size >= 0.5)) and (best is None or growth > best.growth):
                best = LargeStep(row.start, size, growth)
    return best
