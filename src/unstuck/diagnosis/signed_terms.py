"""What a loss is a sum of: its terms with their signs, read from the operations of a traced step.

From the loss back through everything linear (sums, means, signs, constant factors, views) to the operations that
aren't: each is a term, with the sign and the factor by which it goes into the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from unstuck.record.anatomy import Anatomy, Mark, Op, Value

__all__ = ["Term", "first_loss", "linear_terms", "measured", "parts_of", "terms_of", "using"]

_SAME = frozenset(
    {
        "view", "reshape", "squeeze", "unsqueeze", "flatten", "t", "transpose", "permute", "expand", "clone", "detach",
        "alias", "contiguous", "select", "slice", "index", "index_select", "gather", "masked_select", "take", "narrow",
        "unbind", "split", "chunk", "diagonal", "to", "to_copy", "copy", "movedim", "unsafe_view", "stack", "cat",
        "lift_fresh", "masked_fill", "where", "repeat", "unflatten", "split_with_sizes",
    }
)  # fmt: skip
_MEAN = frozenset({"mean", "nanmean"})
_SUM = frozenset({"sum", "nansum"})
_MOST = 4000
"""Steps of a walk: a loss over the steps of a recurrent network has as many terms."""


@dataclass(frozen=True)
class Term:
    """One operation that goes into the loss linearly.

    Attributes:
        op: index of the operation whose result is the term; None where it is a parameter or another leaf.
        value: the result as the next operation took it.
        sign: 1 or -1, 0 where it differs from element to element or isn't known.
        factor: product of the constant factors on the way; NaN where it isn't known.
        summed: number of elements over which it was summed without a mean.
        path: operations on the way, from the loss on.
    """

    op: int | None
    value: Value
    sign: int
    factor: float
    summed: int
    path: tuple[int, ...]


def first_loss(anatomies: list[Anatomy]) -> tuple[Anatomy, Mark] | None:
    """The first trace with a loss, and the mark of its first backward call with a single number."""
    for anatomy in anatomies:
        for mark, op in anatomy.losses():
            if op is not None and mark.value is not None and math.prod(mark.value.shape) == 1:
                return anatomy, mark
    return None


def terms_of(anatomy: Anatomy, mark: Mark) -> list[Term]:
    """Terms of the loss of a backward call, through which gradients flow."""
    return [] if mark.value is None else list(linear_terms(anatomy, mark.value))


def linear_terms(anatomy: Anatomy, value: Value) -> Iterator[Term]:
    """Terms of a value, nearest first."""
    waiting: list[Term] = [Term(value.op, value, 1, 1.0, 1, ())]
    seen = 0
    while waiting and seen < _MOST:
        seen += 1
        term = waiting.pop(0)
        parts = None if term.op is None else parts_of(anatomy, anatomy.ops[term.op])
        if term.op is None or parts is None:
            yield term
            continue
        for taken, sign, factor, summed in parts:
            if taken.grad:
                path = (*term.path, term.op)
                waiting.append(
                    Term(taken.op, taken, term.sign * sign, term.factor * factor, term.summed * summed, path)
                )


def using(anatomy: Anatomy, term: Term) -> int | None:
    """The operation that takes a term into the sum: not one that only cuts or turns it into another shape."""
    return next((index for index in reversed(term.path) if anatomy.ops[index].name not in _SAME), None)


def measured(anatomy: Anatomy, value: Value) -> Value:
    """A value with the numbers of the result that it is, where it has none itself."""
    if value.low is not None or value.op is None:
        return value
    made = next(
        (item for item in anatomy.ops[value.op].outputs if item.shape == value.shape and item.low is not None), None
    )
    return value if made is None else replace(value, low=made.low, high=made.high, mean=made.mean, std=made.std)


_Part = tuple[Value, int, float, int]


def parts_of(anatomy: Anatomy, op: Op) -> list[_Part] | None:
    """(input, sign, factor, elements summed) of a linear operation; None for one that isn't linear in its inputs."""
    name = op.name
    if name in _SAME or name in _MEAN:
        return [(value, 1, 1.0, 1) for value in op.inputs]
    if name in _SUM:
        return [(value, 1, 1.0, _summed(value, op)) for value in op.inputs]
    if name == "neg":
        return [(value, -1, 1.0, 1) for value in op.inputs]
    if name in ("add", "sub", "rsub"):
        return _parts_of_sum(op)
    if name in ("mul", "div", "true_divide"):
        return _parts_of_product(anatomy, op)
    return None


def _summed(value: Value, op: Op) -> int:
    left = math.prod(op.outputs[0].shape) if op.outputs else 1
    return max(1, math.prod(value.shape) // max(1, left))


def _parts_of_sum(op: Op) -> list[_Part]:
    given = op.settings.get("alpha", 1)
    alpha = float(given) if isinstance(given, (int, float)) else 1.0
    found = []
    for value in op.inputs:
        # sub: self - alpha * other, rsub: other - alpha * self
        weighted = (value.argument == "self") == (op.name == "rsub")
        weight = (1.0 if op.name == "add" else -1.0) * alpha if weighted else 1.0
        found.append((value, 1 if weight > 0.0 else -1, abs(weight), 1))
    return found


def _parts_of_product(anatomy: Anatomy, op: Op) -> list[_Part] | None:
    dividing = op.name != "mul"
    if len(op.inputs) == 1:
        other = op.settings.get("other")
        if not isinstance(other, (int, float)) or other == 0:
            return None
        factor = 1.0 / abs(other) if dividing else abs(float(other))
        return [(op.inputs[0], 1 if other > 0 else -1, factor, 1)]
    if len(op.inputs) != 2:
        return None
    one, two = (measured(anatomy, value) for value in op.inputs)
    if dividing:
        if not one.grad or (two.grad and not (two.low is not None and two.low > 0.0)):
            return None
        return [(one, _sign(two), _factor(two, dividing), 1)]
    if one.grad and two.grad:
        return None
    live, fixed = (one, two) if one.grad else (two, one)
    return [(live, _sign(fixed), _factor(fixed, dividing), 1)]


def _sign(value: Value) -> int:
    if value.low is None or value.high is None:
        return 0
    if value.low >= 0.0 and value.high > 0.0:
        return 1
    return -1 if value.high <= 0.0 and value.low < 0.0 else 0


def _factor(value: Value, dividing: bool) -> float:
    """Factor of a constant number; NaN for others."""
    if value.grad or value.low is None or value.low != value.high or value.low == 0.0:
        return math.nan
    return 1.0 / abs(value.low) if dividing else abs(value.low)
