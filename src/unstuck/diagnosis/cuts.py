"""Where the graph of a traced step is cut: gradients flow into an operation, and what it makes is used without them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy, Op

__all__ = ["Cut", "cut_before", "cut_behind", "reaches_parameter", "users"]

_OUT = frozenset({"local_scalar_dense", "item"})
_NAMES = {
    "detach": "detach()",
    "alias": ".data",
    "local_scalar_dense": "item()",
    "item": "item()",
    "lift_fresh": "torch.tensor(...)",
}


@dataclass(frozen=True)
class Cut:
    """One place.

    Attributes:
        chain: the user's lines down to it.
        op: base name of the operation.
        kind: ``operation`` (detach, argmax), ``no_grad``, ``out`` (item, numpy), ``unused`` (the result is dropped).
        module: innermost module that was running.
    """

    chain: tuple[Frame, ...]
    op: str
    kind: str
    module: str | None

    @property
    def words(self) -> str:
        """``detach()``."""
        if self.kind == "no_grad":
            return "torch.no_grad()"
        return _NAMES.get(self.op, self.op)


def users(anatomy: Anatomy) -> dict[int, list[tuple[int, bool]]]:
    """By operation the (later operation that takes its result, whether with gradients)."""
    found: dict[int, list[tuple[int, bool]]] = {}
    for index, op in anatomy.forward():
        for value in op.inputs:
            if value.op is not None:
                found.setdefault(value.op, []).append((index, bool(value.grad)))
    return found


def cut_behind(anatomy: Anatomy, parameters: Iterable[str]) -> Cut | None:
    """Where what is computed from parameters loses its graph; None if it doesn't, or if they aren't used.

    Args:
        anatomy: the traced step.
        parameters: dotted paths.
    """
    wanted = set(parameters)
    following = users(anatomy)
    counts = _behind_losses(anatomy)
    waiting = [
        index
        for index, op in anatomy.forward()
        if any(value.leaf == "parameter" and value.name in wanted for value in op.inputs)
    ]
    seen = set(waiting)
    used: list[int] = []
    aside: list[int] = []
    out: list[int] = []
    dropped: list[int] = []
    while waiting:
        waiting.sort()
        index = waiting.pop(0)
        op = anatomy.ops[index]
        after = following.get(index, [])
        leaves = _takes_gradients(op) and _leaves(anatomy, following, index)
        cut = not op.grad_mode or (_takes_gradients(op) and any(not grad for _, grad in after) and not leaves)
        if cut:
            (used if index in counts else aside).append(index)
        elif leaves or (not after and _takes_gradients(op)):
            (out if leaves or op.name in _OUT else dropped).append(index)
        for later, grad in after:
            if grad and op.grad_mode and later not in seen:
                seen.add(later)
                waiting.append(later)
    if used or (aside and not out):
        index = (used or aside)[0]
        return _cut(anatomy, index, "operation" if anatomy.ops[index].grad_mode else "no_grad")
    if out:
        return _cut(anatomy, out[-1], "out")
    return _cut(anatomy, dropped[-1], "unused") if dropped else None


def _behind_losses(anatomy: Anatomy) -> set[int]:
    """Operations whose results go into a loss, with gradients or without."""
    return {index for _, loss in anatomy.losses() if loss is not None for index in anatomy.behind(loss, through=False)}


def cut_before(anatomy: Anatomy, end: int, loss: int | None) -> Cut | None:
    """Where a loss without a graph has lost it.

    Args:
        anatomy: the traced step.
        end: number of operations before the backward call.
        loss: index of the operation that made the loss, None for one that was there before.
    """
    waiting = [] if loss is None else [loss]
    seen = set(waiting)
    while waiting:
        waiting.sort()
        index = waiting.pop()
        op = anatomy.ops[index]
        if _takes_gradients(op) and reaches_parameter(anatomy, index):
            return _cut(anatomy, index, "operation" if op.grad_mode else "no_grad")
        for value in op.inputs:
            if value.op is not None and value.op not in seen:
                seen.add(value.op)
                waiting.append(value.op)
    begin = max((mark.at for mark in anatomy.marks if mark.kind == "step" and mark.at < end), default=0)
    span = range(begin, min(end, len(anatomy.ops)))
    out = [
        index
        for index in span
        if anatomy.ops[index].name in _OUT and _takes_gradients(anatomy.ops[index]) and not anatomy.ops[index].backward
    ]
    if out:
        return _cut(anatomy, out[-1], "out")
    following = users(anatomy)
    # torch.tensor(losses, requires_grad=True) reads the numbers of a list without an operation
    made = [
        index
        for index in sorted(seen)
        if anatomy.ops[index].name == "lift_fresh" and any(grad for _, grad in following.get(index, ()))
    ]
    if made:
        return _cut(anatomy, made[-1], "out")
    detached = [index for index in span if _takes_gradients(anatomy.ops[index]) and _leaves(anatomy, following, index)]
    if detached:
        return _cut(anatomy, detached[-1], "out")
    blind = [index for index in span if not anatomy.ops[index].grad_mode and _takes_gradients(anatomy.ops[index])]
    return _cut(anatomy, blind[0], "no_grad") if blind else None


def _leaves(anatomy: Anatomy, following: dict[int, list[tuple[int, bool]]], index: int) -> bool:
    """Whether an operation detaches what no later one takes: it goes to numpy, or nowhere."""
    after = following.get(index, [])
    return anatomy.ops[index].name == "detach" and all(_leaves(anatomy, following, later) for later, _ in after)


def reaches_parameter(anatomy: Anatomy, index: int) -> bool:
    """Whether gradients flow from an operation back to a parameter."""
    return any(
        value.leaf == "parameter" and value.grad for at in anatomy.behind(index) for value in anatomy.ops[at].inputs
    )


def _takes_gradients(op: Op) -> bool:
    return any(value.grad for value in op.inputs)


def _cut(anatomy: Anatomy, index: int, kind: str) -> Cut:
    op = anatomy.ops[index]
    return Cut(anatomy.chain(op.chain), op.name, kind, op.module)
