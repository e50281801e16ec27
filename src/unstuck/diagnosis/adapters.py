"""Frozen weights that have a trainable path beside them: adapters of low rank, and what else is added to a result."""

from __future__ import annotations

from collections.abc import Iterable

from unstuck.diagnosis.cuts import users
from unstuck.diagnosis.objective import MOVES, source
from unstuck.record.anatomy import Anatomy, Value

__all__ = ["has_path_beside"]

_ADDS = frozenset({"add", "addmm", "baddbmm"})


def has_path_beside(anatomy: Anatomy, matrices: Iterable[str]) -> bool:
    """Whether what each of these frozen matrices computes has something added that learns from the same input.

    ``base(x) + up(down(x))`` can become any function that ``base`` could have learnt, up to the rank; so does a matrix
    that has a trainable one added before it meets its input.
    """
    return all(_is_adapted(anatomy, path) for path in matrices)


def _is_adapted(anatomy: Anatomy, path: str) -> bool:
    following = users(anatomy)
    for index, op in anatomy.forward():
        taken = [value for value in op.inputs if _parameter(anatomy, value) == path]
        if not taken or op.name in MOVES:
            continue
        others = [value for value in op.inputs if _parameter(anatomy, value) is None]
        if op.name == "add" and any(value.grad and _learns(anatomy, value, None) for value in others):
            return True  # the matrix itself is adapted
        inputs = {_root(anatomy, value) for value in others}
        if inputs and _is_added_to(anatomy, following, index, inputs):
            return True
    return False


def _is_added_to(
    anatomy: Anatomy, following: dict[int, list[tuple[int, bool]]], start: int, inputs: set[object]
) -> bool:
    """Whether a result, moved and shifted only, has something added that learns from one of these inputs."""
    waiting, seen = [start], {start}
    while waiting:
        here = waiting.pop()
        for later, _ in following.get(here, ()):
            op = anatomy.ops[later]
            if later in seen or op.name not in (*MOVES, *_ADDS, "dropout"):
                continue
            seen.add(later)
            beside = [value for value in op.inputs if value.op not in seen]
            if op.name in _ADDS and any(value.grad and _learns(anatomy, value, inputs) for value in beside):
                return True
            if not any(value.grad for value in beside):
                waiting.append(later)
    return False


def _learns(anatomy: Anatomy, value: Value, inputs: set[object] | None) -> bool:
    """Whether trainable parameters lie between one of these inputs (any) and a value."""
    waiting, seen, reached, trained = [value], set(), inputs is None, False
    while waiting:
        item = waiting.pop()
        index, here = source(anatomy, item)
        if inputs is not None and _root(anatomy, here) in inputs:
            reached = True
            continue
        if index is None:
            trained = trained or (here.leaf == "parameter" and bool(item.grad))
            continue
        if index not in seen:
            seen.add(index)
            waiting.extend(anatomy.ops[index].inputs)
    return reached and trained


def _parameter(anatomy: Anatomy, value: Value) -> str | None:
    index, here = source(anatomy, value)
    return here.name if index is None and here.leaf == "parameter" else None


def _root(anatomy: Anatomy, value: Value) -> object:
    """What tells a value from others, however its elements were moved."""
    index, here = source(anatomy, value)
    return (here.leaf, here.name) if index is None else (index, here.slot)
