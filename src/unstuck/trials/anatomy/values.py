"""A tensor in an anatomy: where it came from and what its numbers look like."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from unstuck.record.anatomy import Value
from unstuck.trials.tracing.leaves import Leaves
from unstuck.trials.tracing.lineage import MIXED, SAMPLE, STATISTIC
from unstuck.trials.tracing.memory import Geometry, Memory, geometry

__all__ = ["Maker", "Makers", "described", "integer_range", "moments", "over_of", "samples_of"]

_LOOKED_AT = 2**20
"""Elements of a tensor of integers that is looked at."""

_AVERAGED = 2**14
"""Elements of a tensor that its mean is taken of."""


@dataclass(frozen=True)
class Maker:
    """Where a tensor came from: an operation and which of its results, or what kind of leaf it is and its name."""

    op: int | None = None
    slot: int = 0
    leaf: str | None = None
    name: str | None = None


class Makers:
    """Which operation of the trace made what a tensor shows.

    Args:
        memory: storages of the trace.
        leaves: what was there before.
    """

    def __init__(self, memory: Memory, leaves: Leaves) -> None:
        self._memory = memory
        self._leaves = leaves
        self._shown: dict[int, dict[Geometry, Maker]] = {}
        self._written: dict[int, list[tuple[Geometry, Maker]]] = {}

    def wrote(self, tensor: torch.Tensor, op: int, slot: int, view: bool) -> None:
        """An operation has written a tensor, or made a view."""
        storage = self._memory.storage(tensor)
        place, maker = geometry(tensor), Maker(op, slot)
        shown = self._shown.setdefault(storage.key, {})
        if not view:
            whole = tensor.numel() * tensor.element_size() >= storage.bytes
            for other in list(shown):
                if whole or overlap(other, place):
                    del shown[other]
            written = [] if whole else self._written.get(storage.key, [])
            self._written[storage.key] = [*(item for item in written if item[0] != place), (place, maker)]
        shown[place] = maker

    def of(self, tensor: torch.Tensor) -> Maker:
        """Who made what a tensor shows at present."""
        region = self._memory.region(tensor)
        shown = self._shown.get(region.storage.key)
        if shown is not None and region.geometry in shown:
            return shown[region.geometry]
        for place, maker in reversed(self._written.get(region.storage.key, [])):
            if overlap(place, region.geometry):
                return maker
        kind, name = self._leaves.name(region)
        return Maker(leaf=kind, name=name)


def overlap(one: Geometry, other: Geometry) -> bool:
    """Whether two regions of a storage share an element; exact for blocks of one array, else by their extent."""
    (sizes, strides, offset), (other_sizes, other_strides, other_offset) = one, other
    if 0 in sizes or 0 in other_sizes:
        return False
    if len(sizes) == len(other_sizes) and strides == other_strides and 0 not in strides:
        first, second = offset, other_offset
        for dim in sorted(range(len(strides)), key=lambda dim: -strides[dim]):
            begin, first = divmod(first, strides[dim])
            other_begin, second = divmod(second, strides[dim])
            if begin + sizes[dim] <= other_begin or other_begin + other_sizes[dim] <= begin:
                return False
        return True
    end = offset + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    other_end = other_offset + sum((size - 1) * step for size, step in zip(other_sizes, other_strides, strict=True))
    return offset <= other_end and other_offset <= end


def moments(tensor: torch.Tensor) -> tuple[float | None, float | None]:
    """(mean, standard deviation) of the finite elements of a floating point tensor, of a regular sample if it is large.

    None for what has none.
    """
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return None, None
    flat = tensor.detach().reshape(-1)
    step = -(-flat.numel() // _AVERAGED)
    # an odd step meets all columns of a table whose width is a power of 2
    values = flat[:: step | 1] if step > 1 else flat
    if values.dtype != torch.float64:
        values = values.float()
    mean = values.mean()
    if not math.isfinite(mean):
        values = values[values.isfinite()]
        if not values.numel():
            return None, None
        mean = values.mean()
    # twice over the values, but several times faster than torch.std_mean
    return float(mean), float(torch.linalg.vector_norm(values - mean)) / math.sqrt(values.numel())


def integer_range(tensor: torch.Tensor) -> tuple[float | None, float | None]:
    """(smallest, largest) of an integer or boolean tensor that isn't huge."""
    if tensor.numel() == 0 or tensor.numel() > _LOOKED_AT or tensor.is_complex():
        return None, None
    low, high = torch.aminmax(tensor.detach().to(torch.int64) if tensor.dtype is torch.bool else tensor.detach())
    return float(low), float(high)


def samples_of(shadow: torch.Tensor | None) -> str:
    """What a shadow says of a whole tensor; see :attr:`unstuck.record.anatomy.Value.samples`."""
    if shadow is None or shadow.numel() == 0:
        return "none"
    low, high = (int(item) for item in torch.aminmax(shadow))
    if low >= SAMPLE:
        return "apart"
    if high < SAMPLE:
        return {MIXED: "mixed", STATISTIC: "statistic"}.get(high, "none")
    if bool((shadow == MIXED).any()):
        return "mixed"
    return "statistic" if bool((shadow == STATISTIC).any()) else "apart"


def over_of(shadow: torch.Tensor | None, samples: str | None) -> tuple[int, ...]:
    """Dimensions along which a shadow's samples change; see :attr:`unstuck.record.anatomy.Value.over`.

    Args:
        shadow: of a tensor.
        samples: what :func:`samples_of` says of it.
    """
    if shadow is None or samples != "apart":
        return ()
    return tuple(dim for dim, size in enumerate(shadow.shape) if size > 1 and _changes(shadow, dim))


def _changes(shadow: torch.Tensor, dim: int) -> bool:
    return not torch.equal(shadow, shadow.narrow(dim, 0, 1).expand_as(shadow))


def described(
    argument: str,
    tensor: torch.Tensor,
    maker: Maker,
    grad: bool | None,
    span: tuple[float | None, float | None],
    middle: tuple[float | None, float | None],
    samples: str | None,
    over: tuple[int, ...] = (),
) -> Value:
    """The record of a tensor."""
    return Value(
        argument=argument,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        op=maker.op,
        leaf=maker.leaf,
        name=maker.name,
        grad=grad,
        low=span[0],
        high=span[1],
        mean=middle[0],
        std=middle[1],
        samples=samples,
        over=over,
        slot=maker.slot,
    )
