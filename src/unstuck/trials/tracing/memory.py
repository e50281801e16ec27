"""Memory as the trace sees it: storages that are told apart for good, regions of them, and who wrote which when."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from unstuck.trials.tracing.recorder import Record

__all__ = ["FINITE", "INF", "MINUS_INF", "NAN", "Geometry", "Memory", "Region", "Scan", "Storage", "Write", "scan"]

FINITE, NAN, INF, MINUS_INF = 0, 1, 2, 3

Geometry = tuple[tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True, eq=False)
class Scan:
    """What a tensor held at one moment: range of its finite values, and per element its kind if any isn't finite."""

    low: float | None
    high: float | None
    kinds: torch.Tensor | None = None

    @property
    def bad(self) -> bool:
        """Whether an element isn't finite."""
        return self.kinds is not None


EMPTY = Scan(None, None)


@dataclass(frozen=True, eq=False)
class Write:
    """One write to a storage: when, which elements, by which output of which operation, and what was written."""

    time: int
    geometry: Geometry
    itemsize: int
    record: Record
    output: int
    kinds: torch.Tensor | None


class Storage:
    """What is known of one storage; its weak reference keeps the address from being given to another one."""

    __slots__ = ("bytes", "dense", "key", "scans", "shadows", "writes")

    def __init__(self, key: int, size: int) -> None:
        self.key = key
        self.bytes = size
        self.writes: list[Write] = []
        self.scans: dict[tuple[Geometry, torch.dtype], Scan] = {}
        self.shadows: dict[Geometry, torch.Tensor | None] = {}
        self.dense: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class Region:
    """The elements of a storage that a tensor shows."""

    storage: Storage
    geometry: Geometry
    dtype: torch.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the tensor."""
        return self.geometry[0]


class Memory:
    """All storages that the trace has met."""

    def __init__(self) -> None:
        self._storages: dict[int, Storage] = {}
        self._weak: list[Any] = []

    def storage(self, tensor: torch.Tensor) -> Storage:
        """The storage of a strided tensor."""
        untyped = tensor.untyped_storage()
        key = untyped._cdata
        found = self._storages.get(key)
        if found is None:
            self._weak.append(untyped._weak_ref())
            found = self._storages[key] = Storage(key, untyped.nbytes())
        return found

    def region(self, tensor: torch.Tensor) -> Region:
        """The region that a strided tensor shows."""
        return Region(self.storage(tensor), geometry(tensor), tensor.dtype)

    def release(self) -> None:
        """Give the weak references back, and let go of all that was recorded."""
        for storage in self._storages.values():
            storage.writes.clear()  # a write knows its operation, and that the storage: a circle
            storage.shadows.clear()
        self._storages = {}
        for weak in self._weak:
            torch.UntypedStorage._free_weak_ref(weak)
        self._weak = []

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.release()


def geometry(tensor: torch.Tensor) -> Geometry:
    """Sizes, strides and offset, in elements."""
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())


def strided(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that holds the values: itself, a sparse tensor's values, or None where there is none to look at."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return None  # what vmap or grad has wrapped has no memory of its own
    if tensor.layout is torch.strided:
        return tensor if tensor.device.type != "meta" and not tensor.is_quantized else None
    if tensor.layout is torch.sparse_coo:
        return tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc):
        return tensor.values()
    return None


def _repeated(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with expanded dimensions taken once."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _kinds(values: torch.Tensor) -> torch.Tensor:
    kinds = torch.zeros(values.shape, dtype=torch.int8, device=values.device)
    kinds.masked_fill_(values == float("inf"), INF)
    kinds.masked_fill_(values == float("-inf"), MINUS_INF)
    return kinds.masked_fill_(values.isnan(), NAN).cpu()


def scan(tensor: torch.Tensor) -> Scan:
    """Look at the values of a floating point or complex strided tensor."""
    if tensor.numel() == 0:
        return EMPTY
    shape = tensor.shape
    values = _repeated(tensor)
    if values.is_complex():
        parts = torch.view_as_real(values.resolve_conj())
    else:
        parts = values.resolve_neg() if values.is_neg() else values
    if parts.dtype.itemsize == 1:
        parts = parts.float()
    extremes = torch.aminmax(parts)
    low, high = float(extremes.min), float(extremes.max)
    if low - low == 0 and high - high == 0:  # neither NaN nor infinite, half a microsecond faster than isfinite
        return Scan(low, high)
    kinds = _kinds(parts)
    finite = parts[torch.isfinite(parts)]
    inner = torch.aminmax(finite) if finite.numel() else None
    if values.is_complex():
        kinds = torch.where((kinds == NAN).any(-1), NAN, kinds.amax(-1)).to(torch.int8)
    first = kinds.flatten()[0]
    if kinds.numel() > 1 and bool((kinds == first).all()):
        kinds = first.clone().reshape((1,) * kinds.dim())
    if inner is None:
        return Scan(None, None, kinds.expand(shape))
    return Scan(float(inner.min), float(inner.max), kinds.expand(shape))


def count(kinds: torch.Tensor | None) -> tuple[int, int]:
    """Number of NaN and of infinities."""
    if kinds is None:
        return 0, 0
    return int((kinds == NAN).sum()), int((kinds >= INF).sum())


def elements(offsets_of: Geometry) -> torch.Tensor:
    """Offset in the storage, in elements, of every element of a region."""
    size, stride, offset = offsets_of
    result = torch.full((1,) * len(size), offset, dtype=torch.int64)
    for dim, (extent, step) in enumerate(zip(size, stride, strict=True)):
        shape = [1] * len(size)
        shape[dim] = extent
        result = result + (torch.arange(extent) * step).reshape(shape)
    return result


def writers(
    region: Region, wanted: torch.Tensor, before: float
) -> tuple[list[tuple[Write, torch.Tensor]], torch.Tensor]:
    """Who last wrote the wanted elements of a region.

    Args:
        region: what is read.
        wanted: bool, of the region's shape.
        before: time of the reading; only earlier writes count.

    Returns:
        Writes, each with a bool mask of its own shape that tells which of its elements are wanted; and a bool mask of
        the region's shape with those that no write covers.
    """
    found: list[tuple[Write, torch.Tensor]] = []
    rest = wanted.clone()
    offsets: torch.Tensor | None = None
    for write in reversed(region.storage.writes):
        if write.time >= before:
            continue
        if not rest.any():
            break
        if write.geometry == region.geometry and write.itemsize == region.dtype.itemsize:
            found.append((write, rest))
            return found, torch.zeros_like(rest)
        if write.itemsize != region.dtype.itemsize:
            # A view in another number format: every non-finite element that was written may be the one.
            everything = torch.ones(write.geometry[0], dtype=torch.bool)
            found.append((write, everything))
            return found, torch.zeros_like(rest)
        if offsets is None:
            offsets = elements(region.geometry).expand(region.shape)
        flat = offsets[rest]
        at, order = elements(write.geometry).expand(write.geometry[0]).flatten().sort()
        if not at.numel() or at[-1] < flat.min() or at[0] > flat.max():
            continue
        place = torch.searchsorted(at, flat).clamp_(max=at.numel() - 1)
        covered = at[place] == flat
        if not covered.any():
            continue
        mask = torch.zeros(at.numel(), dtype=torch.bool)
        mask[order[place[covered]]] = True
        found.append((write, mask.reshape(write.geometry[0])))
        left = rest.clone()
        left[rest] = ~covered
        rest = left
    return found, rest


def as_argument(value: Any) -> bool:
    """Whether a value is a tensor whose numbers can be non-finite."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
