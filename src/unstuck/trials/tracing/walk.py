"""The walk back from a non-finite value through the operations that it came from, to the one that made it.

Non-finite elements that matter are followed from each operation's result to the elements of its inputs that they can
have come from: NaN through NaN, an infinity through infinities. Where NaN came out of infinities only, these are
followed on their own: infinities that were put there on purpose (constants, masks) leave the blame with the operation
that made NaN of them, an infinity that an operation made out of finite numbers takes it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from unstuck.trials.tracing.alignment import ALL, IGNORED, UNKNOWN, Alignment, align
from unstuck.trials.tracing.lineage import substituted
from unstuck.trials.tracing.memory import INF, NAN, Region, Storage, writers
from unstuck.trials.tracing.ops import bound_arguments
from unstuck.trials.tracing.recorder import Input, Output, Record

__all__ = ["Found", "Trail", "walk"]

# Operations that let NaN pass unnoticed, so that a NaN in their result has another source.
_SKIPPING_NAN = frozenset(("nansum", "nanmedian", "nan_to_num"))
_INFINITE_SOURCES = 64


@dataclass(eq=False)
class Found:
    """Where non-finite elements came from.

    Attributes:
        time: of the operation that made them; -1 where they were there before the trace.
        record: the operation that made them, or that first read them.
        output: which of its outputs, None for what was there before.
        places: bool, which elements of that output (of the input that was read).
        storage: memory in which they were, where they were there before.
        region: the region that was read there.
        infinite: whether they are infinities (else NaN).
        from_infinity: whether NaN was made out of infinities.
        at: the last operation on the way that turned infinities into NaN, if another one.
    """

    time: int
    record: Record | None
    output: int | None
    places: torch.Tensor
    region: Region | None = None
    infinite: bool = False
    from_infinity: bool = False
    at: Record | None = None


@dataclass(eq=False)
class Trail:
    """What a walk has come upon: sources that are to blame, and infinities that were meant."""

    made: list[Found] = field(default_factory=list)
    intended: list[Found] = field(default_factory=list)

    def first(self) -> Found | None:
        """The earliest source; an intended infinity only where nothing else is to blame."""
        return min(self.made or self.intended, key=lambda found: found.time, default=None)


Intended = Callable[[Storage, bool], bool]


def walk(start: Sequence[tuple[Region, torch.Tensor]], scalars: Sequence[Record], intended: Intended) -> Trail:
    """Follow non-finite elements back to their sources.

    Args:
        start: regions, each with the kinds of its elements now.
        scalars: the operations that read a non-finite number out of a tensor, in order.
        intended: tells of a storage that no operation wrote, and whether its element is infinite, if that was meant.
    """
    return _follow([(region, kinds == NAN, kinds >= INF) for region, kinds in start], math.inf, scalars, intended)


Demand = tuple[Region, torch.Tensor, torch.Tensor]


def _follow(demands: Sequence[Demand], before: float, scalars: Sequence[Record], intended: Intended) -> Trail:
    trail = Trail()
    pending: dict[int, tuple[Record, dict[int, list[torch.Tensor]]]] = {}
    queue: list[int] = []
    infinities: list[tuple[Found, list[Demand]]] = []

    def push(region: Region, nan: torch.Tensor, inf: torch.Tensor, reader: Record | None) -> None:
        limit = before if reader is None else reader.time
        found, rest = writers(region, nan | inf, limit)
        for write, mask in found:
            if write.kinds is None:
                continue  # changed behind torch's back since, or another view of the same memory
            entry = pending.get(write.time)
            if entry is None:
                entry = pending[write.time] = (write.record, {})
                heapq.heappush(queue, -write.time)
            masks = entry[1].setdefault(write.output, [torch.zeros_like(mask), torch.zeros_like(mask)])
            if bool(nan.any()):
                masks[0] |= mask & (write.kinds == NAN)
            if bool(inf.any()):
                masks[1] |= mask & (write.kinds >= INF)
        for wanted, infinite in ((nan & rest, False), (inf & rest, True)):
            if bool(wanted.any()):
                leaf = Found(-1, reader, None, wanted, region, infinite)
                (trail.intended if intended(region.storage, infinite) else trail.made).append(leaf)

    for region, nan, inf in demands:
        push(region, nan, inf, None)
    while queue:
        record, outputs = pending[-heapq.heappop(queue)]
        for index, (nan, inf) in outputs.items():
            _through(record, index, nan, inf, scalars, push, trail, infinities)

    for source, sources in sorted(infinities, key=lambda pair: pair[0].time)[:_INFINITE_SOURCES]:
        if trail.made and min(found.time for found in trail.made) < 0:
            break
        deeper = _follow(sources, source.time, scalars, intended)
        for found in deeper.made:
            found.at = source.record
        trail.made += deeper.made or [source]
    return trail


Push = Callable[[Region, torch.Tensor, torch.Tensor, "Record | None"], None]


def _through(
    record: Record,
    index: int,
    nan: torch.Tensor,
    inf: torch.Tensor,
    scalars: Sequence[Record],
    push: Push,
    trail: Trail,
    infinities: list[tuple[Found, list[Demand]]],
) -> None:
    """One step back: which wanted elements of an output come from which elements of the inputs, and which are new."""
    output = record.outputs[index]
    relations = _relations(record, output)
    nothing = torch.zeros((), dtype=torch.bool)

    nan_rest, inf_rest = nan, inf
    sources: list[Demand] = []
    for entry, relation in zip(record.inputs, relations, strict=True):
        kinds = entry.scan.kinds
        if kinds is None or entry.region is None or relation is None:
            continue
        if record.op.name not in _SKIPPING_NAN:
            bad = kinds == NAN
            reached = relation.forward(bad)
            wanted = bad & relation.backward(nan & reached)
            if bool(wanted.any()):
                push(entry.region, wanted, nothing.expand(wanted.shape), record)
            nan_rest = nan_rest & ~reached
        bad = kinds >= INF
        if bool(inf.any()):
            reached = relation.forward(bad)
            wanted = bad & relation.backward(inf & reached)
            if bool(wanted.any()):
                push(entry.region, nothing.expand(wanted.shape), wanted, record)
            inf_rest = inf_rest & ~reached

    from_infinite = torch.zeros_like(nan_rest)
    if bool(nan_rest.any()):
        for entry, relation in zip(record.inputs, relations, strict=True):
            kinds = entry.scan.kinds
            if kinds is None or entry.region is None or relation is None:
                continue
            bad = kinds >= INF
            reached = relation.forward(bad) & nan_rest
            wanted = bad & relation.backward(reached)
            if bool(wanted.any()):
                sources.append((entry.region, nothing.expand(wanted.shape), wanted))
                from_infinite |= reached

    number = next((value for value in record.numbers if not math.isfinite(value)), None)
    if number is not None and (bool(nan_rest.any()) or bool(inf_rest.any())):
        made = _read_from(number, record, scalars)
        if made is not None:
            entry = made.inputs[0]
            if entry.region is not None and entry.scan.kinds is not None:
                kinds = entry.scan.kinds
                push(entry.region, kinds == NAN, kinds >= INF, made)
                return
    finite = nan_rest & ~from_infinite
    if bool(finite.any()):
        meant = number is not None and math.isnan(number)
        (trail.intended if meant else trail.made).append(
            Found(record.time, record, index, finite, from_infinity=number is not None and math.isinf(number))
        )
    if sources:
        infinities.append((Found(record.time, record, index, from_infinite, from_infinity=True), sources))
    if bool(inf_rest.any()):
        meant = number is not None and math.isinf(number)
        found = Found(record.time, record, index, inf_rest, infinite=True)
        (trail.intended if meant else trail.made).append(found)


def _read_from(number: float, record: Record, scalars: Sequence[Record]) -> Record | None:
    """The operation that read ``number`` out of a tensor, the latest before ``record``."""
    for candidate in reversed(scalars):
        if candidate.time < record.time and candidate.scalar is not None:
            same = candidate.scalar == number or (math.isnan(number) and math.isnan(candidate.scalar))
            if same or -candidate.scalar == number:
                return candidate
    return None


class _Aligned:
    """Elements belong together by dimension."""

    def __init__(self, alignment: tuple[int, ...], source: tuple[int, ...], result: tuple[int, ...]) -> None:
        self.alignment, self.source, self.result = alignment, source, result

    def forward(self, mask: torch.Tensor) -> torch.Tensor:
        """Elements of the result that depend on a marked element of the input."""
        dims = [dim for dim, to in enumerate(self.alignment) if to == ALL]
        if dims:
            mask = mask.amax(dims, keepdim=True) if mask.numel() else torch.zeros((1,) * mask.dim(), dtype=torch.bool)
        order = sorted((to, dim) for dim, to in enumerate(self.alignment) if to != ALL)
        sizes = [1] * len(self.result)
        for to, dim in order:
            sizes[to] = mask.shape[dim]
        rest = dims
        return mask.permute([dim for _, dim in order] + rest).reshape(sizes).expand(self.result)

    def backward(self, mask: torch.Tensor) -> torch.Tensor:
        """Elements of the input on which a marked element of the result depends."""
        unused = [dim for dim in range(len(self.result)) if dim not in self.alignment]
        broadcast = [to for dim, to in enumerate(self.alignment) if to != ALL and self.source[dim] == 1]
        gone = unused + [to for to in broadcast if self.result[to] != 1]
        if gone:
            mask = mask.amax(gone, keepdim=True) if mask.numel() else torch.zeros((1,) * mask.dim(), dtype=torch.bool)
        order = [to for to in self.alignment if to != ALL]
        mask = mask.permute([*order, *unused]).reshape([mask.shape[to] for to in order])
        for dim, to in enumerate(self.alignment):
            if to == ALL:
                mask = mask.unsqueeze(dim)
        return mask.expand(self.source)


class _Moved:
    """Elements belong together by where a moving operation took them."""

    def __init__(self, came_from: torch.Tensor, first: int, source: tuple[int, ...]) -> None:
        self.came_from, self.first, self.source = came_from, first, source

    def forward(self, mask: torch.Tensor) -> torch.Tensor:
        """Elements of the result that are a marked element of the input."""
        flat = mask.reshape(-1)
        here = (self.came_from >= self.first) & (self.came_from < self.first + flat.numel())
        result = torch.zeros_like(here)
        result[here] = flat[self.came_from[here] - self.first]
        return result

    def backward(self, mask: torch.Tensor) -> torch.Tensor:
        """Elements of the input that are a marked element of the result."""
        total = math.prod(self.source)
        taken = self.came_from[mask] - self.first
        taken = taken[(taken >= 0) & (taken < total)]
        result = torch.zeros(total, dtype=torch.bool)
        result[taken] = True
        return result.reshape(self.source)


class _Selected:
    """Of elements that belong together by dimension, only those that an index selects."""

    def __init__(self, relation: _Aligned, selected: torch.Tensor) -> None:
        self.relation, self.selected = relation, selected

    def forward(self, mask: torch.Tensor) -> torch.Tensor:
        """Elements of the result that depend on a marked and selected element of the input."""
        return self.relation.forward(mask & self.selected)

    def backward(self, mask: torch.Tensor) -> torch.Tensor:
        """Selected elements of the input on which a marked element of the result depends."""
        return self.relation.backward(mask) & self.selected


Relation = _Aligned | _Moved | _Selected


def _relations(record: Record, output: Output) -> list[Relation | None]:
    """How each input's elements belong to the output's; None where they don't."""
    assert record.arguments is not None
    args, kwargs = record.arguments
    if record.op.moving and not record.op.foreach:
        moved = _movements(record, output)
        if moved is not None:
            return moved
    arguments = bound_arguments(record.op, args, kwargs)
    operands = [(entry.name, entry.place, entry.shape) for entry in record.inputs]
    try:
        alignments = align(record.op, arguments, operands, output.shape, output.index, output.slot)
    except (IndexError, KeyError, TypeError, ValueError):
        alignments = [UNKNOWN] * len(operands)
    relations: list[Relation | None] = [
        _related(alignment, entry, output) if entry.name not in record.op.out_only else None
        for alignment, entry in zip(alignments, record.inputs, strict=True)
    ]
    if record.op.name in ("nll_loss_forward", "nll_loss2d_forward"):
        return [_picked(relation, entry, arguments) for relation, entry in zip(relations, record.inputs, strict=True)]
    return relations


def _picked(relation: Relation | None, entry: Input, arguments: dict[str, Any]) -> Relation | None:
    """A negative log likelihood reads the targets' classes only."""
    target = arguments["target"]
    if entry.name != "self" or not isinstance(relation, _Aligned) or not isinstance(target, torch.Tensor):
        return relation
    classes = 1 if len(entry.shape) > 1 else 0
    counted = target != arguments["ignore_index"]
    index = target.clamp(0, entry.shape[classes] - 1).unsqueeze(classes)
    selected = torch.zeros(entry.shape, dtype=torch.bool)
    return _Selected(relation, selected.scatter(classes, index, counted.unsqueeze(classes)))


def _related(alignment: Alignment, entry: Input, output: Output) -> _Aligned | None:
    if alignment == IGNORED:
        return None
    if isinstance(alignment, str) or len(alignment) != len(entry.shape) or not _fits(alignment, entry, output):
        alignment = (ALL,) * len(entry.shape)
    return _Aligned(alignment, entry.shape, output.shape)


def _fits(alignment: tuple[int, ...], entry: Input, output: Output) -> bool:
    """Whether a rule's answer makes sense for these sizes; if not, anything may depend on anything."""
    used = [to for to in alignment if to != ALL]
    return len(set(used)) == len(used) and all(
        to == ALL or (to < len(output.shape) and entry.shape[dim] in (1, output.shape[to]))
        for dim, to in enumerate(alignment)
    )


def _movements(record: Record, output: Output) -> list[Relation | None] | None:
    """Run a moving operation once more on the numbers of its inputs' elements."""
    assert record.arguments is not None
    args, kwargs = record.arguments
    replacements: list[tuple[str, int, torch.Tensor]] = []
    firsts: list[int | None] = []
    first = 1  # 0 is what the operation fills in itself
    for entry in record.inputs:
        if not entry.dtype.is_floating_point and not entry.dtype.is_complex:
            firsts.append(None)
            continue
        total = math.prod(entry.shape)
        replacements.append((entry.name, entry.place, torch.arange(first, first + total).reshape(entry.shape)))
        firsts.append(first)
        first += total
    try:
        results = substituted(record.op, record.func, args, kwargs, replacements)
    except (RuntimeError, TypeError, IndexError, ValueError):
        return None
    came_from = results[output.slot if len(results) > 1 else 0]
    if tuple(came_from.shape) != output.shape or came_from.dtype is not torch.int64:
        return None
    return [
        None if start is None else _Moved(came_from, start, entry.shape)
        for start, entry in zip(firsts, record.inputs, strict=True)
    ]
