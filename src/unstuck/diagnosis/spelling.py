"""Activations at the end of a model, recognised by what is computed, in whatever way they are written."""

from __future__ import annotations

from dataclasses import dataclass

from unstuck.diagnosis.objective import Objective, made, source
from unstuck.record.anatomy import Anatomy, Op, Value

__all__ = ["Spelled", "spelled"]


@dataclass(frozen=True)
class Spelled:
    """An activation.

    Attributes:
        kind: ``softmax``, ``log_softmax``, ``sigmoid`` or ``log_sigmoid``.
        taken: what it takes.
        dims: dimensions that it normalises over, counted from the front.
        written: ``op`` for torch's own, ``hand`` for an expression.
    """

    kind: str
    taken: Value
    dims: tuple[int, ...] = ()
    written: str = "op"


def spelled(graph: Objective | Anatomy, index: int) -> Spelled | None:
    """The activation whose result an operation makes; None for anything else."""
    anatomy = graph.anatomy if isinstance(graph, Objective) else graph
    op = anatomy.ops[index]
    if op.name in ("softmax", "log_softmax", "sigmoid", "log_sigmoid", "hardsigmoid"):
        taken = op.inputs[0]
        kind = "sigmoid" if op.name == "hardsigmoid" else op.name
        return Spelled(kind, taken, _dims(op, taken) if "softmax" in op.name else ())
    if op.name == "div":
        return _share(anatomy, op)
    if op.name == "sub":
        return _log_share(anatomy, op)
    if op.name == "reciprocal":
        return _logistic(anatomy, op)
    return None


def _dims(op: Op, taken: Value) -> tuple[int, ...]:
    dims = op.settings.get("dim")
    count = max(len(taken.shape), 1)
    if dims is None:
        return tuple(range(len(taken.shape)))
    return tuple(sorted(int(dim) % count for dim in (dims if isinstance(dims, (list, tuple)) else (dims,))))


def _by(anatomy: Anatomy, value: Value, *names: str) -> Op | None:
    """The operation of one of these names that made a value."""
    index, _ = source(anatomy, value)
    if index is None or anatomy.ops[index].name not in names:
        return None
    return anatomy.ops[index]


def _same(anatomy: Anatomy, one: Value, other: Value) -> bool:
    """Whether two values are the same one, or were computed in the same way from the same."""
    first, second = source(anatomy, one)[0], source(anatomy, other)[0]
    if first is None or second is None:
        return False
    if first == second:
        return True
    left, right = anatomy.ops[first], anatomy.ops[second]
    if left.name != right.name or left.settings != right.settings or len(left.inputs) != 1 or len(right.inputs) != 1:
        return False
    return left.inputs[0].op is not None and left.inputs[0].op == right.inputs[0].op


def _share(anatomy: Anatomy, op: Op) -> Spelled | None:
    """``exp(x) / exp(x).sum(dim)``: a softmax."""
    numerator, denominator = op.taken("self"), op.taken("other")
    if numerator is None or denominator is None:
        return None
    exponential, total = _by(anatomy, numerator, "exp"), _by(anatomy, denominator, "sum")
    if exponential is None or total is None or not _same(anatomy, numerator, total.inputs[0]):
        return None
    taken = _without_largest(anatomy, exponential.inputs[0])
    return Spelled("softmax", taken, _dims(total, total.inputs[0]), "hand")


def _log_share(anatomy: Anatomy, op: Op) -> Spelled | None:
    """``x - logsumexp(x)``, also with the logarithm of a sum of exponentials: a log-softmax."""
    whole, normaliser = op.taken("self"), op.taken("other")
    if whole is None or normaliser is None:
        return None
    total = _by(anatomy, normaliser, "logsumexp")
    if total is not None:
        summed = total.inputs[0]
    else:
        logarithm = _by(anatomy, normaliser, "log")
        total = None if logarithm is None else _by(anatomy, logarithm.inputs[0], "sum")
        exponential = None if total is None else _by(anatomy, total.inputs[0], "exp")
        if total is None or exponential is None:
            return None
        summed = exponential.inputs[0]
    if not _same(anatomy, whole, summed):
        return None
    return Spelled("log_softmax", _without_largest(anatomy, whole), _dims(total, total.inputs[0]), "hand")


def _without_largest(anatomy: Anatomy, value: Value) -> Value:
    """What the largest element was subtracted from, for the sake of the exponential's range."""
    op = _by(anatomy, value, "sub")
    if op is None or len(op.inputs) != 2:
        return value
    largest = _by(anatomy, op.inputs[1], "amax", "max")
    if largest is None or not _same(anatomy, largest.inputs[0], op.inputs[0]):
        return value
    return op.inputs[0]


def _logistic(anatomy: Anatomy, op: Op) -> Spelled | None:
    """``1 / (1 + exp(-x))``: a sigmoid."""
    plus = _by(anatomy, op.inputs[0], "add")
    if plus is None or plus.settings.get("other") != 1 or len(plus.inputs) != 1:
        return None
    exponential = _by(anatomy, plus.inputs[0], "exp")
    negative = None if exponential is None else _by(anatomy, exponential.inputs[0], "neg")
    if exponential is None:
        return None
    taken = made(anatomy, exponential.inputs[0]) if negative is None else negative.inputs[0]
    return Spelled("sigmoid", taken, (), "hand")
