"""Which sample of the batch each element of a tensor belongs to, carried along with every operation.

A *shadow* is a small integer tensor that broadcasts to the tensor's sizes (a dimension along which nothing changes has
size 1). Codes: ``NONE``: no data of the batch (parameters, constants); ``STATISTIC``: a reduction over several
samples; ``MIXED``: several samples meet in one element, or it isn't known which; from ``SAMPLE`` on the sample's index.
No shadow at all is the same as ``NONE`` everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from unstuck.trials.tracing.alignment import ALL, IGNORED, UNKNOWN, Alignment, Operand, align
from unstuck.trials.tracing.memory import Geometry, Memory, Storage, geometry
from unstuck.trials.tracing.ops import Operation, bound_arguments

__all__ = ["MIXED", "NONE", "SAMPLE", "STATISTIC", "Lineage"]

NONE, STATISTIC, MIXED, SAMPLE = 0, 1, 2, 3

# Above this many elements a shadow that can't be kept compact is given up.
LARGEST = 2**25

Shadow = torch.Tensor

# Arguments of value-moving operations whose elements turn up in the result; the others only say where.
_DATA = frozenset(("self", "tensors", "src", "source", "values", "other", "value", "grad_output", "grad", "input"))
_FILLS = frozenset(("value", "fill_value"))


class Lineage:
    """Shadows of all tensors of one trace, by memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def seed(self, tensor: torch.Tensor) -> None:
        """Declare a tensor whose leading dimension runs over the samples."""
        shadow = torch.arange(SAMPLE, SAMPLE + tensor.shape[0], dtype=torch.int32)
        shadow = shadow.reshape(-1, *(1,) * (tensor.dim() - 1))
        storage = self.memory.storage(tensor)
        storage.shadows[geometry(tensor)] = shadow

    def tell(self, tensor: torch.Tensor, shadow: Shadow | None) -> None:
        """Give a tensor that was made unseen its shadow."""
        self._store(tensor, shadow)

    def of(self, tensor: torch.Tensor) -> Shadow | None:
        """The shadow of a strided tensor, None where it holds no data of the batch."""
        storage = self.memory.storage(tensor)
        if not storage.shadows and storage.dense is None:
            return None
        place = geometry(tensor)
        if place in storage.shadows:
            return storage.shadows[place]
        dense = _dense(storage, tensor.element_size())
        if dense is None:
            return uniform(MIXED, tensor.dim())
        size, stride, offset = place
        try:
            shadow = compact(dense.as_strided(size, stride, offset))
        except RuntimeError:
            return uniform(MIXED, tensor.dim())
        storage.shadows[place] = shadow
        return shadow

    def follow(
        self,
        op: Operation,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        inputs: Sequence[tuple[str, int, torch.Tensor]],
        shadows: Sequence[Shadow | None],
        outputs: Sequence[tuple[int, int, torch.Tensor, bool]],
    ) -> list[Shadow | None]:
        """Give the results of an operation their shadows.

        Args:
            op: the operation.
            func: its overload.
            args: its arguments.
            kwargs: its keyword arguments.
            inputs: its tensor inputs, as ``tensor_arguments`` gives them.
            shadows: their shadows before it ran.
            outputs: index, place in a list, tensor, and whether it lies in memory that existed before.

        Returns:
            One shadow per output.
        """
        if all(shadow is None for shadow in shadows):
            for _, _, tensor, existed in outputs:
                if existed and not op.view:
                    self._store(tensor, None)
            return [None] * len(outputs)
        args, kwargs = on_cpu(args), on_cpu(kwargs)
        try:
            if op.view:
                found = self._through_view(op, func, args, kwargs, inputs, shadows, outputs)
            else:
                found = _through(op, func, args, kwargs, inputs, shadows, outputs)
        except (RuntimeError, IndexError, ValueError, TypeError, KeyError):
            # An operation in a form that its rule doesn't know: nothing is claimed.
            found = [uniform(MIXED, tensor.dim()) for _, _, tensor, _ in outputs]
        for (_, _, tensor, _), shadow in zip(outputs, found, strict=True):
            if op.view:
                storage = self.memory.storage(tensor)
                storage.shadows.setdefault(geometry(tensor), shadow)
            else:
                self._store(tensor, shadow)
        return found

    def _store(self, tensor: torch.Tensor, shadow: Shadow | None) -> None:
        storage = self.memory.storage(tensor)
        place = geometry(tensor)
        known = storage.shadows
        if not known and storage.dense is None and shadow is None:
            return
        whole = tensor.numel() * tensor.element_size() == storage.bytes and 0 not in tensor.stride()
        if whole or not (known or storage.dense is not None):
            # Where the rest of the storage was never data of the batch, the region alone says all.
            storage.dense = None
            storage.shadows = {place: shadow}
            return
        if len(known) == 1 and place in known and storage.dense is None:
            known[place] = shadow
            return
        dense = _dense(storage, tensor.element_size())
        if dense is None:
            storage.shadows = {place: uniform(MIXED, tensor.dim())}
            return
        _put(dense, place, shadow)
        storage.shadows = {place: shadow}

    def _through_view(
        self,
        op: Operation,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        inputs: Sequence[tuple[str, int, torch.Tensor]],
        shadows: Sequence[Shadow | None],
        outputs: Sequence[tuple[int, int, torch.Tensor, bool]],
    ) -> list[Shadow | None]:
        source, shadow = inputs[0][2], shadows[0]
        assert shadow is not None
        if op.name in ("detach", "alias", "lift_fresh", "conj", "neg_view"):
            return [shadow] * len(outputs)
        if op.name in ("view", "unsafe_view", "reshape_alias", "flatten", "unflatten"):
            target = outputs[0][2]
            if source.dtype != target.dtype:
                return [uniform(MIXED, target.dim())]
            return [reshaped(shadow, tuple(source.shape), tuple(target.shape))]
        if op.name == "view_as_real":
            return [shadow.unsqueeze(-1)]
        if op.name == "view_as_complex":
            return [shadow.select(-1, 0)]
        if op.name in ("real", "imag"):
            return [shadow]
        if op.name == "as_strided":
            dense = _dense(self.memory.storage(source), source.element_size())
            target = outputs[0][2]
            if dense is None:
                return [uniform(MIXED, target.dim())]
            return [compact(dense.as_strided(*geometry(target)))]
        result = func(shadow.expand(source.shape), *args[1:], **kwargs)
        return [folded(part) for part in (result if isinstance(result, (list, tuple)) else [result])]


def _dense(storage: Storage, itemsize: int) -> Shadow | None:
    """One code per element of the storage; made on demand from what is known of its regions."""
    if storage.dense is not None:
        return storage.dense
    extent = storage.bytes // max(itemsize, 1)
    if extent > LARGEST:
        return None
    dense = torch.zeros(extent, dtype=torch.int32)
    for place, shadow in storage.shadows.items():
        _put(dense, place, shadow)
    storage.dense = dense
    return dense


def _put(dense: Shadow, place: Geometry, shadow: Shadow | None) -> None:
    """Write a region's shadow into its storage's."""
    view = folded(dense.as_strided(*place))
    if shadow is None:
        view.zero_()
    elif any(size > 1 == kept for size, kept in zip(shadow.shape, view.shape, strict=True)):
        view.fill_(MIXED)  # expanded memory that several samples share
    else:
        view.copy_(shadow.expand(view.shape))


def uniform(code: int, ndim: int) -> Shadow:
    """The same code everywhere."""
    return torch.full((1,) * ndim, code, dtype=torch.int32)


def folded(shadow: Shadow) -> Shadow:
    """Expanded dimensions taken once."""
    for dim, (size, stride) in enumerate(zip(shadow.shape, shadow.stride(), strict=True)):
        if stride == 0 and size > 1:
            shadow = shadow.narrow(dim, 0, 1)
    return shadow


def compact(shadow: Shadow) -> Shadow:
    """Dimensions along which nothing changes taken once; the result has memory of its own."""
    shadow = folded(shadow)
    for dim, size in enumerate(shadow.shape):
        if size > 1:
            first = shadow.narrow(dim, 0, 1)
            if torch.equal(shadow, first.expand_as(shadow)):
                shadow = first
    return shadow.clone(memory_format=torch.contiguous_format)


def reshaped(shadow: Shadow, source: tuple[int, ...], target: tuple[int, ...]) -> Shadow:
    """The shadow after a reshape, expanded only where dimensions that differ are merged or split."""
    pieces: list[int] = []
    sizes: list[int] = []
    expanded: list[int] = []
    left = right = 0
    if math.prod(source) == 0:
        return uniform(NONE, len(target))
    while left < len(source) or right < len(target):
        # The smallest group of dimensions on either side with the same number of elements.
        start_left, start_right = left, right
        a = source[left] if left < len(source) else 1
        b = target[right] if right < len(target) else 1
        left, right = left + 1, right + 1
        while a != b:
            if a < b:
                a, left = a * source[left], left + 1
            else:
                b, right = b * target[right], right + 1
        group = range(start_left, min(left, len(source)))
        goal = target[start_right:right]
        if all(shadow.shape[dim] == 1 for dim in group):
            expanded += [1] * len(group)
            sizes += [1] * len(goal)
        else:
            expanded += [source[dim] for dim in group]
            sizes += goal
        pieces.append(len(group))
    return folded(shadow.expand(expanded).reshape(sizes))


def combined(one: Shadow | None, other: Shadow | None) -> Shadow | None:
    """The shadow of an element that depends on one element of each."""
    if one is None or one is other:
        return other
    if other is None:
        return one
    if one.shape == other.shape and torch.equal(one, other):
        return one
    larger, smaller = torch.maximum(one, other), torch.minimum(one, other)
    # The larger code wins over NONE; a sample over a STATISTIC; equal samples stay; everything else is MIXED.
    keep = (smaller == larger) | (smaller == NONE) | ((smaller == STATISTIC) & (larger >= SAMPLE))
    return torch.where(keep | (larger == MIXED), larger, MIXED).to(torch.int32)


def reduced(shadow: Shadow, dims: Sequence[int]) -> Shadow:
    """The shadow of a reduction, the reduced dimensions kept with size 1."""
    dims = [dim for dim in dims if shadow.shape[dim] > 1]
    if not dims:
        return shadow
    highest = shadow.amax(dims, keepdim=True)
    mixed = (
        (shadow == MIXED).any(dims[0], keepdim=True) if len(dims) == 1 else (shadow == MIXED).amax(dims, keepdim=True)
    )
    lowest = torch.where(shadow >= SAMPLE, shadow, torch.iinfo(torch.int32).max).amin(dims, keepdim=True)
    several = (highest >= SAMPLE) & (lowest != highest)
    result = torch.where(several, STATISTIC, highest)
    return torch.where(mixed, MIXED, result).to(torch.int32)


def aligned(shadow: Shadow | None, alignment: Alignment, ndim: int) -> Shadow | None:
    """An input's shadow in the dimensions of the result."""
    if shadow is None or alignment == IGNORED:
        return None
    if alignment == UNKNOWN:
        return uniform(MIXED, ndim) if bool((shadow != NONE).any()) else None
    assert not isinstance(alignment, str)
    shadow = reduced(shadow, [dim for dim, to in enumerate(alignment) if to == ALL])
    sizes = [1] * ndim
    order = [dim for _, dim in sorted((to, dim) for dim, to in enumerate(alignment) if to != ALL)]
    for dim in order:
        sizes[alignment[dim]] = shadow.shape[dim]
    if order != sorted(order):
        rest = [dim for dim, to in enumerate(alignment) if to == ALL]
        shadow = shadow.permute(order + rest)
    return shadow.reshape(sizes)


def on_cpu(value: Any) -> Any:
    """Arguments with their indices and masks where shadows are."""
    if isinstance(value, torch.Tensor):
        return value if value.device.type == "cpu" or value.is_floating_point() else value.detach().cpu()
    if isinstance(value, (list, tuple)):
        return [on_cpu(item) for item in value]
    if isinstance(value, dict):
        return {name: on_cpu(item) for name, item in value.items() if name != "device"}
    return value


def _through(
    op: Operation,
    func: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    inputs: Sequence[tuple[str, int, torch.Tensor]],
    shadows: Sequence[Shadow | None],
    outputs: Sequence[tuple[int, int, torch.Tensor, bool]],
) -> list[Shadow | None]:
    arguments = bound_arguments(op, args, kwargs)
    operands: list[Operand] = [(name, place, tuple(tensor.shape)) for name, place, tensor in inputs]
    found: list[Shadow | None] = []
    for index, slot, tensor, _ in outputs:
        ndim = tensor.dim()
        if op.name in ("pack_padded_sequence", "pad_packed_sequence"):
            found.append(_packed(op, func, args, kwargs, shadows[0]) if index == 0 else None)
            continue
        if op.moving and not op.elementwise:
            found.append(_moved(op, func, args, kwargs, arguments, inputs, shadows, index, tensor))
            continue
        alignments = align(op, arguments, operands, tuple(tensor.shape), index, slot)
        if _normalises_over_batch(op, index):
            # Mixing through the batch's statistics is left out of account: a row stays its sample's.
            alignments = [
                tuple(range(ndim)) if len(operand[2]) == ndim else alignment
                for operand, alignment in zip(operands, alignments, strict=True)
            ]
        result: Shadow | None = None
        for shadow, alignment in zip(shadows, alignments, strict=True):
            result = combined(result, aligned(shadow, alignment, ndim))
        found.append(result)
    return found


def _packed(
    op: Operation, func: Any, args: Sequence[Any], kwargs: dict[str, Any], shadow: Shadow | None
) -> Shadow | None:
    """Packing sequences of different lengths and unpacking them: the same movement of the codes of one feature."""
    source = args[0]
    if shadow is None:
        return None
    leading = 2 if op.name == "pack_padded_sequence" else 1
    if any(size > 1 for size in shadow.shape[leading:]):
        return uniform(MIXED, source.dim())
    sizes = (*source.shape[:leading], *(1,) * (source.dim() - leading))
    moved: torch.Tensor = func(shadow.expand(sizes), *args[1:], **kwargs)[0]
    return compact(moved)


def _normalises_over_batch(op: Operation, index: int) -> bool:
    return "batch_norm" in op.name and index == 0


def _moved(
    op: Operation,
    func: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    arguments: dict[str, Any],
    inputs: Sequence[tuple[str, int, torch.Tensor]],
    shadows: Sequence[Shadow | None],
    index: int,
    tensor: torch.Tensor,
) -> Shadow | None:
    """Operations that move values: the same movement of the shadow's codes."""
    by_name = {name: shadow for (name, _, _), shadow in zip(inputs, shadows, strict=True)}
    ndim = tensor.dim()
    if op.name == "cat":
        return _concatenated(arguments, inputs, shadows, tensor)
    if op.name == "embedding":
        operands: list[Operand] = [(name, place, tuple(t.shape)) for name, place, t in inputs]
        alignments = align(op, arguments, operands, tuple(tensor.shape), 0, 0)
        parts = [aligned(shadow, alignment, ndim) for shadow, alignment in zip(shadows, alignments, strict=True)]
        return combined(parts[0], parts[1])
    if op.name in ("index", "unsafe_index", "gather", "index_select"):
        moved = _picked(op, func, arguments, by_name.get("self"))
        return combined(moved, _index_shadow(op, arguments, inputs, shadows, tensor))
    if op.name in ("index_put", "unsafe_index_put") and arguments.get("accumulate"):
        indices = arguments["indices"]
        counts = torch.zeros(tensor.shape, dtype=torch.int32)
        values = torch.ones((), dtype=torch.int32)
        if int(counts.index_put_(indices, values, accumulate=True).max()) > 1:
            operands = [(name, place, tuple(t.shape)) for name, place, t in inputs]
            alignments = align(op, arguments, operands, tuple(tensor.shape), 0, 0)
            result: Shadow | None = None
            for shadow, alignment in zip(shadows, alignments, strict=True):
                result = combined(result, aligned(shadow, alignment, ndim))
            return result
    if tensor.numel() > LARGEST:
        return uniform(MIXED, ndim)
    codes = [shadow for shadow in shadows if shadow is not None]
    if any(shadow is None or shadow.numel() > 1 for shadow in shadows) or len(codes) > 1:
        moved = compact(substituted(op, func, args, kwargs, list(_fulls(inputs, shadows)))[index])
    else:
        moved = codes[0]
    return moved


def _fulls(
    inputs: Sequence[tuple[str, int, torch.Tensor]], shadows: Sequence[Shadow | None]
) -> Sequence[tuple[str, int, torch.Tensor]]:
    return [
        (name, place, (shadow if shadow is not None else uniform(NONE, tensor.dim())).expand(tensor.shape))
        for (name, place, tensor), shadow in zip(inputs, shadows, strict=True)
        if name in _DATA
    ]


def substituted(
    op: Operation,
    func: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    replacements: Sequence[tuple[str, int, torch.Tensor]],
) -> list[torch.Tensor]:
    """Run a value-moving operation on other (integer) data; a number that it fills in becomes 0.

    Args:
        op: the operation.
        func: its overload.
        args: its arguments.
        kwargs: its keyword arguments.
        replacements: new tensors, by argument and place in the argument's list.

    Returns:
        Its results.
    """
    new = {(name, place): tensor for name, place, tensor in replacements}

    def replace(name: str, value: Any) -> Any:
        if name in _FILLS and isinstance(value, (int, float, complex)):
            return 0
        if name == "accumulate":
            return False
        if isinstance(value, (list, tuple)):
            return [new.get((name, place), item) for place, item in enumerate(value)]
        replacement = new.get((name, 0), value)
        # Written in place: the stand-in may be expanded.
        return replacement.clone() if name in op.written and isinstance(replacement, torch.Tensor) else replacement

    result = func(
        *[replace(name, value) for name, value in zip(op.parameters, args, strict=False)],
        **{name: replace(name, value) for name, value in kwargs.items()},
    )
    return list(result) if isinstance(result, (list, tuple)) else [result]


def _concatenated(
    arguments: dict[str, Any],
    inputs: Sequence[tuple[str, int, torch.Tensor]],
    shadows: Sequence[Shadow | None],
    tensor: torch.Tensor,
) -> Shadow | None:
    ndim = tensor.dim()
    dim = int(arguments.get("dim") or 0) % max(ndim, 1)
    parts = [
        (shadow if shadow is not None else uniform(NONE, ndim), source)
        for (_, _, source), shadow in zip(inputs, shadows, strict=True)
        if source.dim() == ndim
    ]
    sizes = [max(shadow.shape[d] for shadow, _ in parts) for d in range(ndim)]
    full = []
    for shadow, source in parts:
        sizes[dim] = source.shape[dim]
        full.append(shadow.expand(sizes))
    return compact(torch.cat(full, dim))


def _picked(op: Operation, func: Any, arguments: dict[str, Any], shadow: Shadow | None) -> Shadow | None:
    """``index``, ``gather`` and ``index_select`` on a shadow, expanded only where the index acts."""
    if shadow is None:
        return None
    source = arguments["self"]
    sizes = list(shadow.shape)
    if op.name == "gather":
        dim = int(arguments["dim"]) % max(source.dim(), 1)
        index = arguments["index"]
        if source.dim() and shadow.shape[dim] == 1:
            # Whichever element is picked along the dimension, it belongs to the same sample.
            for d in range(source.dim()):
                if d != dim and shadow.shape[d] > 1:
                    shadow = shadow.narrow(d, 0, index.shape[d])
            return shadow
        return compact(func(shadow.expand(source.shape), arguments["dim"], index))
    if op.name == "index_select":
        dim = int(arguments["dim"]) % max(source.dim(), 1)
        if source.dim() and shadow.shape[dim] == 1:
            return shadow
        return folded(func(shadow, arguments["dim"], arguments["index"]))
    dim = 0
    for index in arguments["indices"]:
        if index is None:
            dim += 1
            continue
        span = index.dim() if index.dtype in (torch.bool, torch.uint8) else 1
        for d in range(dim, dim + span):
            sizes[d] = source.shape[d]
        dim += span
    return compact(torch.ops.aten.index.Tensor(shadow.expand(sizes), arguments["indices"]))


def _index_shadow(
    op: Operation,
    arguments: dict[str, Any],
    inputs: Sequence[tuple[str, int, torch.Tensor]],
    shadows: Sequence[Shadow | None],
    tensor: torch.Tensor,
) -> Shadow | None:
    """What the indices themselves carry: a table looked up with a sample's labels gives that sample's rows."""
    found = [(source, shadow) for (name, _, source), shadow in zip(inputs, shadows, strict=True) if name != "self"]
    if all(shadow is None for _, shadow in found):
        return None
    if op.name == "gather":
        return found[0][1]
    if op.name == "index_select":
        dim = int(arguments["dim"]) % max(tensor.dim(), 1)
        sizes = [1] * tensor.dim()
        codes = found[0][1]
        assert codes is not None
        if tensor.dim():
            sizes[dim] = codes.numel()
        return codes.reshape(sizes)
    indices = arguments["indices"]
    if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
        return None  # a mask selects, and what it selects carries its own sample
    result: Shadow | None = None
    for _, shadow in found:
        if shadow is not None:
            result = combined(result, shadow)
    assert result is not None
    width = max(index.dim() for index in indices if index is not None)
    used = [place for place, index in enumerate(indices) if index is not None]
    adjacent = used == list(range(used[0], used[-1] + 1))
    before = used[0] if adjacent else 0
    sizes = [1] * tensor.dim()
    for place, size in enumerate((1,) * (width - result.dim()) + tuple(result.shape)):
        sizes[before + place] = size
    return result.reshape(sizes)
