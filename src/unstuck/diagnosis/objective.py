"""What a loss was computed from: the operations behind one ``backward`` call, and ways through them."""

from __future__ import annotations

from collections.abc import Iterator

from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy, Mark, ModelPart, Op, Value
from unstuck.record.recording import Recording

__all__ = ["CONTAINERS", "MOVES", "Objective", "making_line", "objectives", "place_of", "user_line"]

MOVES = frozenset(
    (
        *("t", "transpose", "permute", "swapaxes", "movedim", "flip", "roll"),
        *("view", "reshape", "expand", "unsqueeze", "squeeze", "flatten", "unflatten", "as_strided", "repeat"),
        *("detach", "alias", "to_copy", "clone", "contiguous", "copy", "lift_fresh"),
        *("select", "slice", "narrow", "split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "chunk"),
        *("unbind", "index", "index_select", "gather", "masked_select", "diagonal"),
        *("view_as_real", "view_as_complex"),
    )
)
"""Operations whose result holds elements of what they took first."""

CONTAINERS = frozenset(("Sequential", "ModuleList", "ModuleDict"))

_WEIGHTED = frozenset(("addmm", "mm", "bmm", "baddbmm", "matmul", "linear", "mv", "convolution", "lstm", "gru", "rnn"))


class Objective:
    """One loss.

    Attributes:
        anatomy: in which it was seen.
        mark: its ``backward`` call.
        root: operation that made it.
        members: operations in its history, along values that gradients flow through.
    """

    def __init__(self, anatomy: Anatomy, mark: Mark, root: int) -> None:
        self.anatomy = anatomy
        self.mark = mark
        self.root = root
        self.members = sorted(anatomy.behind(root))
        self._inside = frozenset(self.members)
        self._users: dict[int, list[int]] = {}
        for index in self.members:
            for value in anatomy.ops[index].inputs:
                if value.op is not None and value.op in self._inside:
                    self._users.setdefault(value.op, []).append(index)
        self._before_layers: set[int] = set()
        for index in reversed(self.members):  # a user comes after what it uses
            if any(user in self._before_layers or self.is_layer(user) for user in self.users(index)):
                self._before_layers.add(index)

    def op(self, index: int) -> Op:
        """The operation at an index."""
        return self.anatomy.ops[index]

    def contains(self, index: int) -> bool:
        """Whether an operation belongs to the loss."""
        return index in self._inside

    def users(self, index: int) -> list[int]:
        """Members that take a result of an operation."""
        return list(dict.fromkeys(self._users.get(index, ())))

    def made(self, value: Value) -> Value:
        """The value as its operation made it, with the numbers that are kept there; itself for a leaf."""
        return made(self.anatomy, value)

    def source(self, value: Value) -> tuple[int | None, Value]:
        """(operation, value) before everything that only moved elements; (None, value) for a leaf."""
        return source(self.anatomy, value)

    def readers(self, index: int) -> Iterator[int]:
        """Members that do something with a result, beyond those that only move its elements."""
        waiting, seen = [index], {index}
        while waiting:
            for user in self.users(waiting.pop()):
                if user in seen:
                    continue
                seen.add(user)
                if self.op(user).name in MOVES:
                    waiting.append(user)
                else:
                    yield user

    def downstream(self, index: int) -> set[int]:
        """Members whose results an operation's went into, itself among them."""
        found, waiting = {index}, [index]
        while waiting:
            for user in self.users(waiting.pop()):
                if user not in found:
                    found.add(user)
                    waiting.append(user)
        return found

    def is_output(self, index: int) -> bool:
        """Whether no layer with weights works on a result: what is computed here is a model's output, or later."""
        return index not in self._before_layers

    def is_layer(self, index: int) -> bool:
        """Whether an operation multiplies with a parameter (of two dimensions or more)."""
        op = self.op(index)
        if op.name == "embedding":
            return True
        if op.name not in _WEIGHTED:
            return False
        return any(self.parameter(value) is not None and len(value.shape) > 1 for value in op.inputs)

    def parameter(self, value: Value) -> str | None:
        """Name of the parameter that a value shows; None for anything else."""
        index, here = self.source(value)
        return here.name if index is None and here.leaf == "parameter" else None

    def line(self, index: int) -> tuple[Frame, ...]:
        """The user's lines down to an operation."""
        return self.anatomy.chain(self.op(index).chain)


def objectives(recording: Recording) -> list[Objective]:
    """Every loss whose making was traced, in order."""
    found = []
    for anatomy in recording.all(Anatomy):
        for mark, root in anatomy.losses():
            if root is not None:
                found.append(Objective(anatomy, mark, root))
    return found


def made(anatomy: Anatomy, value: Value) -> Value:
    """The value as its operation made it; itself for a leaf."""
    if value.op is None:
        return value
    outputs = anatomy.ops[value.op].outputs
    return outputs[value.slot] if value.slot < len(outputs) else value


def source(anatomy: Anatomy, value: Value) -> tuple[int | None, Value]:
    """(operation, value) before everything that only moved elements; (None, value) for a leaf."""
    while value.op is not None:
        op = anatomy.ops[value.op]
        if op.name not in MOVES or not op.inputs:
            return value.op, value
        value = op.inputs[-1] if op.name == "copy" else op.inputs[0]
    return None, value


def user_line(anatomy: Anatomy, index: int) -> tuple[Frame, ...]:
    """The line to change for an operation: its own, or the construction of its module where a container called that."""
    op = anatomy.ops[index]
    chain = anatomy.chain(op.chain)
    parts = {part.path: part for part in anatomy.parts}
    part = parts.get(op.module or "")
    if part is None or not part.library or op.running != part.kind or not part.path:
        return chain
    holder = parts.get(part.path.rpartition(".")[0])
    made_at = anatomy.chain(part.made_at)
    return made_at if made_at and holder is not None and _calls_by_itself(holder) else chain


def making_line(anatomy: Anatomy, index: int) -> tuple[Frame, ...]:
    """The line that made the module of torch which an operation belongs to, else the operation's own.

    For what is settled where a module is made: its dimension, ``batch_first``.
    """
    op = anatomy.ops[index]
    parts = {part.path: part for part in anatomy.parts}
    path = op.module or ""
    part = parts.get(path)
    if part is not None and part.library and op.running == part.kind:
        while part is not None:
            chain = anatomy.chain(part.made_at)
            if chain:
                return chain
            path = path.rpartition(".")[0]
            part = parts.get(path) if path else None
    return anatomy.chain(op.chain)


def _calls_by_itself(part: ModelPart) -> bool:
    return part.library or part.kind in CONTAINERS


def place_of(anatomy: Anatomy, index: int) -> tuple[str | None, str]:
    """(module, operation) of an operation as a finding's place names them; the model itself is None."""
    op = anatomy.ops[index]
    return op.module or None, op.name
