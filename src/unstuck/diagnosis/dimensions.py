"""What the dimensions of a tensor stand for: samples, classes, positions; followed through what only moves elements."""

from __future__ import annotations

import math

from unstuck.diagnosis.objective import Objective
from unstuck.record.anatomy import Anatomy, Op, Value

__all__ = ["before_moves", "comparisons", "dims_of", "independent_samples", "scattering_view", "through"]

_COMPARING = frozenset(
    (
        *(
            "mse_loss",
            "smooth_l1_loss",
            "huber_loss",
            "sub",
            "binary_cross_entropy",
            "binary_cross_entropy_with_logits",
        ),
        *("nll_loss", "nll_loss2d"),
    )
)
_PICKING = frozenset(("index", "slice", "index_select"))


def dims_of(op: Op, value: Value, name: str = "dim") -> tuple[int, ...]:
    """The dimensions that an operation's setting names, counted from the front; all of them where it names none."""
    dims = op.settings.get(name)
    count = max(len(value.shape), 1)
    if dims is None or dims == []:
        return tuple(range(len(value.shape)))
    return tuple(sorted(int(dim) % count for dim in (dims if isinstance(dims, (list, tuple)) else (dims,))))


def comparisons(objective: Objective) -> list[tuple[int, Value, Value]]:
    """(operation, output, target) of each place where a loss compares an output with something without gradients."""
    found = []
    for index in objective.members:
        op = objective.op(index)
        if op.name in _COMPARING and len(op.inputs) >= 2 and objective.is_output(index):
            one, other = op.inputs[:2]
            if bool(one.grad) != bool(other.grad):
                found.append((index, *((one, other) if one.grad else (other, one))))
    return found


def independent_samples(objective: Objective) -> bool:
    """Whether the first dimension of the batch runs over samples that have nothing to do with each other.

    A loader has stacked them, or the loop has picked them out of a larger table and each has one target of its own.
    """
    anatomy = objective.anatomy
    size = anatomy.batch_size
    if size is None or size < 2:
        return False
    batches = [mark for mark in anatomy.marks if mark.kind == "batch"]
    if batches:
        return all(mark.name == "stacked" for mark in batches)
    targets = [target.shape for _, _, target in comparisons(objective)]
    return bool(targets) and all(shape in ((size,), (size, 1)) for shape in targets) and _picks(anatomy, size)


def _picks(anatomy: Anatomy, size: int) -> bool:
    for op in anatomy.ops:
        if op.name in _PICKING and op.running is None and op.inputs and op.outputs:
            table, rows = op.inputs[0].shape, op.outputs[0].shape
            if table and rows and rows[0] == size < table[0] and rows[1:] == table[1:]:
                return True
    return False


def scattering_view(anatomy: Anatomy, value: Value) -> int | None:
    """The first reshape by which samples came to lie across several dimensions; None if there is none.

    Looked for behind what only moves elements or works on each place by itself.
    """
    size, seen = anatomy.batch_size, set()
    found: int | None = None
    while size is not None and value.op is not None and value.op not in seen:
        seen.add(value.op)
        op = anatomy.ops[value.op]
        if not op.inputs:
            break
        before, after = op.inputs[0], op.outputs[value.slot] if value.slot < len(op.outputs) else value
        # a split of the samples' dimension in two leaves as many places as there are samples
        places = math.prod(after.shape[dim] for dim in after.over)
        if op.name == "view" and len(before.over) == 1 and len(after.over) > 1 and places > size:
            found = value.op
        value = next((item for item in op.inputs if item.samples == "apart"), before)
    return found


def before_moves(anatomy: Anatomy, value: Value, dim: int) -> tuple[int | None, int, Value] | None:
    """(operation, dimension, value) from which a dimension came through what only moves elements.

    Args:
        anatomy: in which the value was seen.
        value: where to start.
        dim: its dimension, counted from the front.

    Returns:
        None where it isn't one dimension any more.
    """
    while value.op is not None:
        op = anatomy.ops[value.op]
        mapped = through(op, dim)
        if mapped is None:
            return None
        if mapped < 0:
            return value.op, dim, value
        value, dim = op.inputs[-1] if op.name == "copy" else op.inputs[0], mapped
    return None, dim, value


def through(op: Op, dim: int) -> int | None:
    """The dimension before an operation; -1 for one that does more than move elements, None where it isn't known."""
    if not op.inputs or not op.outputs:
        return -1
    before, after = op.inputs[0].shape, op.outputs[0].shape
    if op.name in (
        "alias",
        "detach",
        "clone",
        "to_copy",
        "contiguous",
        "lift_fresh",
        "slice",
        "narrow",
        "copy",
        "expand",
    ):
        shift = len(after) - len(before)
        return dim - shift if dim >= shift else None
    if op.name == "t":
        return 1 - dim if len(before) == 2 else dim
    if op.name == "transpose":
        one, other = (int(op.settings[name]) % len(before) for name in ("dim0", "dim1"))
        return {one: other, other: one}.get(dim, dim)
    if op.name == "permute":
        return int(op.settings["dims"][dim]) % len(before)
    if op.name == "select":
        gone = int(op.settings.get("dim", 0)) % len(before)
        return dim if dim < gone else dim + 1
    if op.name == "unsqueeze":
        new = int(op.settings.get("dim", 0)) % len(after)
        return None if dim == new else dim - (dim > new)
    if op.name in ("view", "squeeze", "flatten", "unflatten"):
        return _through_view(before, after, dim)
    if op.name in (
        "index",
        "index_select",
        "gather",
        "masked_select",
        "unbind",
        "split",
        "as_strided",
        "repeat",
        "roll",
    ):
        return None
    return -1


def _through_view(before: tuple[int, ...], after: tuple[int, ...], dim: int) -> int | None:
    """The dimension of the same size with as many elements before and behind it."""
    if after[dim] == 1:
        return None
    left, right = math.prod(after[:dim]), math.prod(after[dim + 1 :])
    for place, size in enumerate(before):
        if size == after[dim] and math.prod(before[:place]) == left and math.prod(before[place + 1 :]) == right:
            return place
    return None
