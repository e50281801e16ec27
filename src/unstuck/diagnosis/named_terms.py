"""Terms of a loss whose right sign only the program's own names tell: a policy's gain, the distances of a triplet."""

from __future__ import annotations

from collections.abc import Iterable

from unstuck.diagnosis.objective import MOVES
from unstuck.diagnosis.signed_terms import parts_of
from unstuck.record.anatomy import Anatomy, Mark, Op
from unstuck.record.connections import Statement

__all__ = ["minimised_gain", "pulled_negative"]

_RISING = frozenset({"exp", "minimum", "maximum", "min", "max", "clamp", "clamp_min", "clamp_max", "relu", "softplus"})
"""Operations whose result grows with what they take."""

_DISTANCES = frozenset({"pow", "square", "abs", "linalg_vector_norm", "norm", "cdist", "cdist_forward", "pairwise"})
_STEPS = frozenset({"sum", "mean", "sqrt", "clamp", "clamp_min", "add", *MOVES})
_MOST = 4000


def minimised_gain(anatomy: Anatomy, mark: Mark, statements: Iterable[Statement]) -> int | None:
    """The product of a log-probability and a reward that goes into a loss with a plus; None if there is none.

    Args:
        anatomy: of a traced step.
        mark: its backward call.
        statements: lines that multiply the two.
    """
    for index, sign in _signs(anatomy, mark).items():
        op = anatomy.ops[index]
        if op.name == "mul" and sign == 1 and _stands_in(anatomy, op, statements):
            weights = [value for value in op.inputs if not value.grad]
            # a number times another term, on the same line, has one input only
            if len(op.inputs) == 2 and len(weights) == 1:
                return index
    return None


def pulled_negative(anatomy: Anatomy, mark: Mark, statements: Iterable[Statement]) -> int | None:
    """The difference of a negative's and a positive's distance that goes into a loss with a plus.

    Args:
        anatomy: of a traced step.
        mark: its backward call.
        statements: hinges over what is named like that.
    """
    for index, sign in _signs(anatomy, mark).items():
        op = anatomy.ops[index]
        if op.name != "sub" or sign != 1 or len(op.inputs) != 2 or not _stands_in(anatomy, op, statements):
            continue
        if all(value.grad and _is_distance(anatomy, value.op) for value in op.inputs):
            return index
    return None


def _stands_in(anatomy: Anatomy, op: Op, statements: Iterable[Statement]) -> bool:
    chain = anatomy.chain(op.chain)
    return bool(chain) and any(
        item.file == chain[-1].file and item.line <= chain[-1].line <= max(item.line, item.end) for item in statements
    )


def _signs(anatomy: Anatomy, mark: Mark) -> dict[int, int]:
    """By operation the sign with which the loss grows with its result: 1 or -1, only where it is known and one."""
    if mark.value is None or mark.value.op is None:
        return {}
    found: dict[int, set[int]] = {}
    waiting = [(mark.value.op, 1)]
    while waiting and len(found) < _MOST:
        index, sign = waiting.pop()
        if sign in found.setdefault(index, set()):
            continue
        found[index].add(sign)
        op = anatomy.ops[index]
        parts = [(value, 1) for value in op.inputs] if op.name in _RISING else None
        if parts is None:
            parts = [(value, turned) for value, turned, _, _ in parts_of(anatomy, op) or ()]
        waiting += [(value.op, sign * turned) for value, turned in parts if value.grad and value.op is not None]
    return {index: min(signs) for index, signs in found.items() if len(signs) == 1}


def _is_distance(anatomy: Anatomy, index: int | None) -> bool:
    for _ in range(12):
        if index is None:
            return False
        op = anatomy.ops[index]
        if op.name in _DISTANCES:
            return True
        if op.name not in _STEPS or not op.inputs:
            return False
        index = op.inputs[0].op
    return False
