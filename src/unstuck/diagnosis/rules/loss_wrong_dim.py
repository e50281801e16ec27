"""loss.wrong-dim: softmax, mean, argmax or normalisation taken over the wrong dimension.

Probabilities that sum to 1 over the samples of a batch, or over time, instead of over the classes; embeddings that are
given unit length over the batch instead of over their features. The loss falls, towards something else.

Found in the operations that a loss was computed from:

- what ``nll_loss`` picks a class from is followed back to the softmax behind it; that must have gone over the same
  dimension, through every view and permutation in between;
- a view mustn't cut the rows that a class is picked from out of several places, as ``scores.view(-1, classes)`` of
  (batch, classes, height, width) does;
- a softmax at the end of a model mustn't go over the dimension of independent samples;
- ``cross_entropy`` takes its classes from dimension 1; scores (batch, time, class) of a linear layer have them last,
  which is only accepted where both sizes happen to be equal;
- where similarities are summed over features, lengths mustn't have been taken over samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unstuck.diagnosis.dimensions import before_moves, dims_of, independent_samples, through
from unstuck.diagnosis.objective import MOVES, Objective, making_line, objectives
from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.spelling import Spelled, spelled
from unstuck.findings import Finding, Severity
from unstuck.record.anatomy import Op, Value
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "loss.wrong-dim"

_LIKELIHOODS = frozenset(("nll_loss", "nll_loss2d"))
_TERMS = frozenset(
    (
        *(
            "log",
            "neg",
            "add",
            "sub",
            "rsub",
            "mul",
            "div",
            "pow",
            "clamp",
            "clamp_min",
            "clamp_max",
            "sum",
            "mean",
            "abs",
        ),
        *(
            "mse_loss",
            "smooth_l1_loss",
            "huber_loss",
            "binary_cross_entropy",
            "nll_loss",
            "nll_loss2d",
            "xlogy",
            "where",
        ),
        *("masked_fill", "stack", "cat", "square", "sqrt"),
    )
)
"""What a loss does with probabilities."""


@dataclass(frozen=True)
class Astray:
    """An operation that goes over the wrong dimension.

    Attributes:
        objective: of which loss.
        index: the operation.
        what: the sentence.
        remedy: what to do.
        shape: of what it takes.
    """

    objective: Objective
    index: int
    what: str
    remedy: str
    shape: tuple[int, ...]


def rule(recording: Recording) -> list[Finding]:
    """One finding per line; the losses in which it was seen are counted."""
    found: dict[object, list[Astray]] = {}
    for objective in objectives(recording):
        for item in _astray(objective):
            chain = making_line(objective.anatomy, item.index)
            found.setdefault(chain[-1] if chain else None, []).append(item)
    return [_finding(items) for items in found.values()]


def _finding(items: list[Astray]) -> Finding:
    first = items[0]
    op = first.objective.op(first.index)
    return Finding(
        CODE,
        Severity.ERROR,
        first.what,
        at_line(making_line(first.objective.anatomy, first.index), module=op.module or None, op=op.name),
        {"shape": list(first.shape), "losses seen": len({id(item.objective) for item in items})},
        first.remedy,
    )


def _astray(objective: Objective) -> Iterator[Astray]:
    for index in objective.members:
        op = objective.op(index)
        found = None
        if op.name in _LIKELIHOODS:
            found = _another_than_the_classes(objective, op) or _rows_of_places(objective, op)
        elif op.name == "div":
            found = _unit_length_over_samples(objective, index, op)
        activation = spelled(objective, index)
        if found is None and activation is not None and "softmax" in activation.kind:
            found = _over_samples(objective, index, activation) or _over_time(objective, index, activation)
        if found is not None:
            yield found


def _along(dims: tuple[int, ...], shape: tuple[int, ...]) -> str:
    return f"dimension {' and '.join(map(str, dims))} of ({', '.join(map(str, shape))})"


# -- classes -----------------------------------------------------------------------------------------------------------


def _another_than_the_classes(objective: Objective, op: Op) -> Astray | None:
    taken = op.inputs[0]
    if len(taken.shape) < 2:
        return None
    found = _normaliser(objective, taken, 1)
    if found is None:
        return None
    index, activation, classes = found
    shape = activation.taken.shape
    if classes in activation.dims or shape[classes] < 2:
        return None
    return Astray(
        objective,
        index,
        f"{activation.kind} goes over {_along(activation.dims, shape)}, but the loss picks a class along dimension "
        f"{classes}",
        f"let {activation.kind} go over the classes, dim={classes - len(shape)}",
        shape,
    )


def _normaliser(objective: Objective, value: Value, dim: int) -> tuple[int, Spelled, int] | None:
    """(operation, activation, dimension there) of the softmax that a dimension of log-probabilities goes back to."""
    for _ in range(8):
        place = before_moves(objective.anatomy, value, dim)
        if place is None or place[0] is None:
            return None
        index, dim = place[0], place[1]
        activation = spelled(objective, index)
        if activation is not None:
            return (index, activation, dim) if "softmax" in activation.kind else None
        op = objective.op(index)
        if op.name not in ("log", "clamp", "clamp_min", "clamp_max", "add") or len(op.inputs) != 1:
            return None
        value = op.inputs[0]
    return None


def _rows_of_places(objective: Objective, op: Op) -> Astray | None:
    """A view cuts rows out of a layer's scores that run over places or samples where classes are to be.

    ``scores.view(-1, classes)`` of (batch, classes, height, width), ``scores.view(batch, classes, time)`` of (batch,
    time, classes): the sizes fit, and each row holds numbers of several places.
    """
    value, dim = op.inputs[0], 1
    if len(value.shape) < 2:
        return None
    classes = value.shape[1]
    while value.op is not None:
        maker = objective.op(value.op)
        before = through(maker, dim)
        if before is None:
            return _cut_wrongly(objective, value.op, classes) if maker.name == "view" else None
        if before < 0:
            if "softmax" not in maker.name and maker.name not in ("log", "clamp", "clamp_min"):
                return None
            before = dim
        value, dim = maker.inputs[0], before
    return None


def _cut_wrongly(objective: Objective, index: int, classes: int) -> Astray | None:
    """A view of what a layer made, where that has the classes in a dimension of their own."""
    view = objective.op(index)
    before, after = view.inputs[0], view.outputs[0]
    layer = _layer_behind(objective, before)
    if layer is None or len(before.shape) < 3 or after.shape.count(classes) != 1:
        return None
    held = 1 if layer.name == "convolution" else len(before.shape) - 1
    if before.shape[held] != classes:
        return None
    first, last = ("1", "-1") if held == 1 else ("1", "2")
    return Astray(
        objective,
        index,
        f"view from ({', '.join(map(str, before.shape))}) to ({', '.join(map(str, after.shape))}) doesn't move the "
        f"classes out of dimension {held}: each row of {classes} numbers is cut out of several places",
        f"move the classes with movedim({first}, {last}) before reshaping, or give it (batch, class, places)",
        before.shape,
    )


def _layer_behind(objective: Objective, value: Value) -> Op | None:
    """The layer with weights that made a value, its bias added or not, its dimensions where it left them."""
    while value.op is not None:
        op = objective.op(value.op)
        if op.name in ("convolution", "addmm", "mm", "linear"):
            return op if objective.is_layer(value.op) else None
        if op.name not in ("view", "unsafe_view", "alias", "clone", "add") or not op.inputs:
            return None
        value = op.inputs[0]
    return None


# -- samples -----------------------------------------------------------------------------------------------------------


def _over_samples(objective: Objective, index: int, activation: Spelled) -> Astray | None:
    taken = activation.taken
    if taken.samples != "apart" or not activation.dims or activation.dims != taken.over or len(taken.shape) < 2:
        return None
    others = [size for dim, size in enumerate(taken.shape) if dim not in taken.over]
    if max(others) < 2 or not objective.is_output(index) or not independent_samples(objective):
        return None
    if not _is_read_as_probabilities(objective, index):
        return None
    return Astray(
        objective,
        index,
        f"{activation.kind} goes over {_along(activation.dims, taken.shape)}, which runs over the samples of the batch",
        f"let {activation.kind} go over the classes, dim=-1",
        taken.shape,
    )


def _is_read_as_probabilities(objective: Objective, index: int) -> bool:
    """Whether a loss is all that follows, and no weighted sum of something else that has gradients."""
    for user in objective.downstream(index):
        op = objective.op(user)
        if user == index:
            continue
        if op.name not in _TERMS and op.name not in MOVES:
            return False
        if op.name == "mul" and len(op.inputs) == 2 and all(value.grad and value.shape for value in op.inputs):
            inside = [objective.source(value)[0] for value in op.inputs]
            if not all(item is not None and item in objective.downstream(index) for item in inside):
                return False
    return True


def _unit_length_over_samples(objective: Objective, index: int, op: Op) -> Astray | None:
    if len(op.inputs) != 2 or op.inputs[0].samples != "apart" or len(op.inputs[0].shape) != 2:
        return None
    taken = op.inputs[0]
    length = _length(objective, op.inputs[1])
    if length is None or dims_of(length, length.inputs[0]) != taken.over or taken.shape[1] < 2:
        return None
    if not independent_samples(objective) or not _features_are_summed(objective, index):
        return None
    return Astray(
        objective,
        index,
        f"vectors get unit length over {_along(taken.over, taken.shape)}, which runs over the samples of the batch, "
        "and are compared over their features",
        "let the norm go over the features: F.normalize(x, dim=-1)",
        taken.shape,
    )


def _length(objective: Objective, value: Value) -> Op | None:
    for _ in range(6):
        index, _here = objective.source(value)
        if index is None:
            return None
        op = objective.op(index)
        if op.name in ("linalg_vector_norm", "norm"):
            return op
        if op.name not in ("clamp_min", "clamp", "add") or len(op.inputs) != 1:
            return None
        value = op.inputs[0]
    return None


def _features_are_summed(objective: Objective, index: int) -> bool:
    """Whether a matrix product sums over the second dimension of a result."""
    for user in objective.readers(index):
        op = objective.op(user)
        if op.name not in ("mm", "addmm") or len(op.inputs) < 2:
            continue
        left, right = op.inputs[-2:]
        for value, dim in ((left, 1), (right, 0)):
            place = before_moves(objective.anatomy, value, dim)
            if place is not None and place[0] == index and place[1] == 1:
                return True
    return False


# -- time --------------------------------------------------------------------------------------------------------------


def _over_time(objective: Objective, index: int, activation: Spelled) -> Astray | None:
    """Scores (batch, time, class) given to ``cross_entropy`` as they are, where time and class have the same size."""
    taken = activation.taken
    if activation.kind != "log_softmax" or activation.dims != (1,) or len(taken.shape) != 3:
        return None
    if taken.shape[1] != taken.shape[2] or taken.shape[2] < 3:
        return None
    readers = {objective.op(user).name for user in objective.readers(index)}
    place = before_moves(objective.anatomy, taken, 2)
    if not readers & _LIKELIHOODS or place is None or place[0] is None or place[1] != len(place[2].shape) - 1:
        return None
    layer = objective.op(place[0])
    if layer.name == "add" and layer.inputs:
        inner, _ = objective.source(layer.inputs[0])
        layer = layer if inner is None else objective.op(inner)
    if layer.name not in ("addmm", "mm", "linear"):
        return None
    return Astray(
        objective,
        index,
        f"cross_entropy takes its classes from {_along((1,), taken.shape)}, but the last layer has them in dimension 2",
        "give it (batch, class, time): scores.transpose(1, 2)",
        taken.shape,
    )
