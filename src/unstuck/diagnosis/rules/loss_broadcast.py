"""loss.broadcast: output and target shapes differ and broadcast silently.

Predictions of shape (B, 1) and targets of shape (B,) broadcast to (B, B): every prediction is compared with every
target, and the best that a model can do is to predict the mean. The same with (B, 1, T) and (B, T), and where a weight
or an advantage per sample is multiplied in.

Found in the operations that a loss was computed from: one that joins a value with gradients and one without, both with
as many elements and the same sizes but for ones, whose result has more elements, because the sample's dimension of one
meets another dimension of the other. Pairwise comparisons on purpose look otherwise: the dimension of size 1 is made on
the same line, or what follows is more than a plain sum or mean (a kernel, a softmax, a minimum).
"""

from __future__ import annotations

import math

from unstuck.diagnosis.objective import MOVES, Objective, objectives
from unstuck.diagnosis.optimizing import at_line
from unstuck.findings import Finding, Severity
from unstuck.record.anatomy import Op, Value
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "loss.broadcast"

_JOINING = frozenset(
    ("sub", "rsub", "mul", "div", "mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "atan2", "hypot")
)
"""Operations that compare or weigh element by element."""

_LONGEST = 24
"""Operations on a target's way that are looked at."""

_FOLLOWING = frozenset(
    (
        *(
            "pow",
            "square",
            "abs",
            "sqrt",
            "neg",
            "log",
            "log1p",
            "cosh",
            "sgn",
            "sign",
            "xlogy",
            "log_sigmoid",
            "softplus",
        ),
        *(
            "add",
            "sub",
            "rsub",
            "mul",
            "div",
            "where",
            "masked_fill",
            "clamp",
            "clamp_min",
            "clamp_max",
            "minimum",
            "maximum",
        ),
        *("sum", "mean", "nanmean", "nansum", "stack", "cat", "relu", "detach", "to_copy", "clone", "view", "squeeze"),
    )
)
"""What may follow if the joined elements are only terms of a sum."""


def rule(recording: Recording) -> list[Finding]:
    """One finding per line; the losses in which it was seen are counted."""
    found: dict[object, tuple[Objective, int, tuple[Value, Value], set[int]]] = {}
    for objective in objectives(recording):
        for index in objective.members:
            sides = _joined_astray(objective, index)
            if sides is None:
                continue
            chain = objective.line(index)
            known = found.setdefault(chain[-1] if chain else None, (objective, index, sides, set()))
            known[3].add(id(objective))
    return [_finding(*item) for item in found.values()]


def _finding(objective: Objective, index: int, sides: tuple[Value, Value], seen: set[int]) -> Finding:
    output, target = sides
    result = _result_shape(output.shape, target.shape) or ()
    return Finding(
        CODE,
        Severity.ERROR,
        f"output {_shape(output.shape)} and target {_shape(target.shape)} broadcast to {_shape(result)}: every output "
        "is joined with the target of every sample",
        at_line(objective.line(index), op=objective.op(index).name),
        {
            "output": _shape(output.shape),
            "target": _shape(target.shape),
            "result": _shape(result),
            "losses seen": len(seen),
        },
        _remedy(output.shape, target.shape),
    )


def _remedy(output: tuple[int, ...], target: tuple[int, ...]) -> str:
    if len(output) > len(target):
        extra = "output.squeeze(-1)" if output[-1] == 1 else "output.squeeze(1)"
        return f"give both the same shape before the loss: {extra}, or target.view_as(output)"
    return "give both the same shape before the loss: target.squeeze(-1), or target.view_as(output)"


def _joined_astray(objective: Objective, index: int) -> tuple[Value, Value] | None:
    """(value with gradients, value without) that an operation joins although they broadcast to more elements."""
    op = objective.op(index)
    if op.name not in _JOINING or len(op.inputs) != 2:
        return None
    one, other = (_before_expansion(objective, op, value) for value in op.inputs)
    if bool(one.grad) == bool(other.grad):
        return None
    output, target = (one, other) if one.grad else (other, one)
    if objective.parameter(output) is not None or objective.parameter(target) is not None:
        return None
    result = _result_shape(output.shape, target.shape)
    spoilt = _spoilt_target(objective, output, target)
    if spoilt is not None:
        return spoilt
    if result is None or not _same_but_for_ones(output.shape, target.shape):
        return None
    if math.prod(result) <= math.prod(output.shape) or not _crosses(output, target, len(result)):
        return None
    if _made_here(objective, op, output) or _made_here(objective, op, target):
        return None
    following = {objective.op(user).name for user in objective.downstream(index) if user != index}
    if not following <= _FOLLOWING | MOVES - {"index", "gather", "diagonal", "masked_select", "select"}:
        return None
    return output, target


def _spoilt_target(objective: Objective, output: Value, target: Value) -> tuple[Value, Value] | None:
    """The two parts of a target that broadcast against each other when it was computed: rewards and next values."""
    count = math.prod(output.shape)
    if count < 2 or math.prod(target.shape) != count * count or target.op is None:
        return None
    waiting, seen = [target.op], set[int]()
    while waiting and len(seen) < _LONGEST:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        op = objective.op(index)
        if op.name in ("add", "sub", "mul", "where") and len(op.inputs) == 2:
            one, other = op.inputs
            result = _result_shape(one.shape, other.shape)
            if (
                result is not None
                and math.prod(one.shape) == math.prod(other.shape) == count
                and _same_but_for_ones(one.shape, other.shape)
                and math.prod(result) == count * count
                and _crosses(one, other, len(result))
                and not (_made_here(objective, op, one) or _made_here(objective, op, other))
            ):
                return one, other
        waiting += [value.op for value in op.inputs if value.op is not None and math.prod(value.shape) > count]
    return None


def _before_expansion(objective: Objective, op: Op, value: Value) -> Value:
    """What torch's loss functions have expanded to the common shape."""
    while value.op is not None:
        made = objective.op(value.op)
        if made.name != "expand" or made.chain != op.chain:
            break
        value = made.inputs[0]
    return value


def _result_shape(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...] | None:
    """Sizes after broadcasting, None where that can't be."""
    count = max(len(one), len(other))
    left, right = (1,) * (count - len(one)) + one, (1,) * (count - len(other)) + other
    if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        return None
    return tuple(max(a, b) for a, b in zip(left, right, strict=True))


def _same_but_for_ones(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return [size for size in one if size != 1] == [size for size in other if size != 1]


def _crosses(one: Value, other: Value, count: int) -> bool:
    """Whether the samples of one lie along another dimension of the result than those of the other."""
    places = [_sample_dim(value, count) for value in (one, other)]
    return None not in places and places[0] != places[1]


def _sample_dim(value: Value, count: int) -> int | None:
    """The dimension of the result along which a value's samples lie; the first one of its own where it isn't known."""
    if len(value.over) > 1 or not value.shape:
        return None
    mine = value.over[0] if value.over else 0
    if value.shape[mine] == 1:
        return None
    return mine + count - len(value.shape)


def _made_here(objective: Objective, op: Op, value: Value) -> bool:
    """Whether a dimension of size 1 was made on the line that joins: broadcasting on purpose."""
    line = objective.anatomy.chain(op.chain)[-1:]
    for _ in range(8):
        if value.op is None:
            return False
        made = objective.op(value.op)
        if made.name not in MOVES or objective.anatomy.chain(made.chain)[-1:] != line:
            return False
        before = made.inputs[0]
        if made.name in ("unsqueeze", "view", "slice") and value.shape.count(1) > before.shape.count(1):
            return True
        value = before
    return False


def _shape(sizes: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, sizes)) + ("," if len(sizes) == 1 else "") + ")"
