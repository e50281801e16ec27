"""Which numbers an expression can give whatever the weights are: what an activation at its end lets through."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from unstuck.diagnosis.objective import MOVES
from unstuck.diagnosis.spelling import spelled
from unstuck.record.anatomy import Anatomy, Op, Value

__all__ = ["Reach", "reach"]

_INFINITE = math.inf
_DEPTH = 40

_RANGES: dict[str, tuple[float, float]] = {
    "tanh": (-1.0, 1.0),
    "softsign": (-1.0, 1.0),
    "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0),
    "relu": (0.0, _INFINITE),
    "softplus": (0.0, _INFINITE),
    "exp": (0.0, _INFINITE),
    "abs": (0.0, _INFINITE),
    "square": (0.0, _INFINITE),
    "sqrt": (0.0, _INFINITE),
    "log_softmax": (-_INFINITE, 0.0),
    "log_sigmoid": (-_INFINITE, 0.0),
    "elu": (-1.0, _INFINITE),
    "gelu": (-0.17, _INFINITE),
    "silu": (-0.2785, _INFINITE),
}
_KEEPING = frozenset(("nan_to_num", "masked_fill", "native_dropout"))


@dataclass(frozen=True)
class Reach:
    """Bounds of an expression.

    Attributes:
        low: smallest number that it can give.
        high: largest.
        kind: what sets the bounds: ``softmax``, ``sigmoid``, ``tanh``, ``relu``, ``clamp``, ...
        index: operation of that.
        taken: what that works on.
    """

    low: float
    high: float
    kind: str
    index: int
    taken: Value

    @property
    def width(self) -> float:
        """Distance between the bounds."""
        return self.high - self.low

    def within(self, low: float, high: float) -> bool:
        """Whether nothing outside of an interval can be given."""
        return self.low >= low and self.high <= high


def reach(anatomy: Anatomy, value: Value, depth: int = _DEPTH) -> Reach | None:
    """The bounds of a value; None where an activation sets none, or it isn't known.

    Moving elements, adding and multiplying with plain numbers are followed; whatever mixes in another tensor isn't.
    """
    if value.op is None or depth == 0:
        return None
    index, op = value.op, anatomy.ops[value.op]
    activation = spelled(anatomy, index)
    if activation is not None and activation.kind == "softmax":
        return Reach(0.0, 1.0, "softmax", index, activation.taken)
    if activation is not None and activation.kind == "sigmoid":
        inner = reach(anatomy, activation.taken, depth - 1)
        low, high = (-_INFINITE, _INFINITE) if inner is None else (inner.low, inner.high)
        return Reach(_logistic(low), _logistic(high), "sigmoid", index, activation.taken)
    if op.name in _RANGES:
        low, high = _RANGES[op.name]
        return Reach(low, high, op.name, index, op.inputs[0])
    if op.name in ("lstm", "gru", "rnn"):
        return _recurrent(value, index, op)
    if op.name in ("clamp", "clamp_min", "clamp_max", "hardtanh"):
        return _clamped(anatomy, index, op, depth)
    if op.name == "pow" and op.settings.get("exponent") == 2:
        return Reach(0.0, _INFINITE, "square", index, op.inputs[0])
    if op.name in ("cat", "stack"):
        return _joined(anatomy, op, depth)
    if op.name in MOVES or op.name in _KEEPING:
        return reach(anatomy, op.inputs[-1] if op.name == "copy" else op.inputs[0], depth - 1)
    return _shifted(anatomy, op, depth)


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else 0.0


def _recurrent(value: Value, index: int, op: Op) -> Reach | None:
    """States of a recurrent layer, which lie between -1 and 1; the cells of an LSTM don't, nor what it projects."""
    projected = any((item.name or "").rpartition(".")[2].startswith("weight_hr") for item in op.inputs)
    if projected or (op.name == "lstm" and value.slot == 2) or op.settings.get("mode") == "RNN_RELU":
        return None
    return Reach(-1.0, 1.0, op.name, index, op.inputs[0])


def _clamped(anatomy: Anatomy, index: int, op: Op, depth: int) -> Reach | None:
    low, high = op.settings.get("min", op.settings.get("min_val")), op.settings.get("max", op.settings.get("max_val"))
    low = -_INFINITE if low is None else float(low)
    high = _INFINITE if high is None else float(high)
    inner = reach(anatomy, op.inputs[0], depth - 1)
    if len(op.inputs) > 1:
        return inner  # limits that are tensors
    if inner is None:
        kind = "relu" if low == 0 and high == _INFINITE else "clamp"
        return Reach(low, high, kind, index, op.inputs[0])
    return replace(inner, low=max(low, inner.low), high=min(high, inner.high))


def _joined(anatomy: Anatomy, op: Op, depth: int) -> Reach | None:
    parts = [reach(anatomy, value, depth - 1) for value in op.inputs]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return replace(known[0], low=min(part.low for part in known), high=max(part.high for part in known))


def _shifted(anatomy: Anatomy, op: Op, depth: int) -> Reach | None:
    """Arithmetic with a plain number."""
    if op.name == "neg":
        return _scaled(reach(anatomy, op.inputs[0], depth - 1), -1.0, 0.0)
    if op.name not in ("add", "sub", "rsub", "mul", "div"):
        return None
    number = _plain_operand(op)
    if number is None:
        return None
    inner = reach(anatomy, op.inputs[0], depth - 1)
    alpha = float(op.settings.get("alpha") or 1)
    if op.name == "mul":
        return _scaled(inner, number, 0.0)
    if op.name == "div":
        return _scaled(inner, 1.0 / number, 0.0) if number and not op.settings.get("rounding_mode") else None
    if op.name == "rsub":
        return _scaled(inner, -alpha, number)
    return _scaled(inner, 1.0, number * alpha if op.name == "add" else -number * alpha)


def _plain_operand(op: Op) -> float | None:
    other = op.settings.get("other")
    if len(op.inputs) == 1 and isinstance(other, (int, float)):
        return float(other)
    if len(op.inputs) == 2:
        constant = op.inputs[1]
        if not constant.shape and not constant.grad and constant.low is not None and constant.low == constant.high:
            return constant.low
    return None


def _scaled(inner: Reach | None, factor: float, shift: float) -> Reach | None:
    if inner is None or factor == 0 or not math.isfinite(factor):
        return None
    ends = sorted((inner.low * factor + shift, inner.high * factor + shift))
    return replace(inner, low=ends[0], high=ends[1])
