"""model.batch-mixing: sample i's output depends on sample j outside of normalisation layers.

A softmax over the batch, a recurrent layer or attention that takes the samples for time steps since ``batch_first`` is
wrong, a ``view`` in the place of a ``transpose`` that scatters samples over the batch: training looks fine, since every
batch is mixed alike, and single samples, or batches of another size, give something else.

Found by following which sample of the batch each element belongs to through the first steps, to the first operation
inside the model (a layer lies downstream) that lets samples meet. It must be known that they are independent: a loader
has stacked them, or the loop has picked rows of a table that have one target each. What is known without that is a
softmax over the samples that gives the weights of a sum over another dimension. Normalisation over the batch,
comparisons of all pairs in a loss, products with an adjacency matrix, mixed-up inputs (mixup) and statistics of a batch
beside its samples aren't reported. At the end of a run samples of a kept batch are replaced: if no other output of the
model moves, nothing is reported either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unstuck.diagnosis.dimensions import dims_of, independent_samples, scattering_view
from unstuck.diagnosis.objective import Objective, making_line, objectives
from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.reach import reach
from unstuck.diagnosis.spelling import spelled
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy, Op, Value
from unstuck.record.recording import Recording
from unstuck.record.trials import DependenceTrial

__all__ = ["CODE", "rule"]

CODE = "model.batch-mixing"

_ALONG = frozenset(("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp"))
_RECURRENT = frozenset(("lstm", "gru", "rnn"))
_PRODUCTS = frozenset(("bmm", "baddbmm"))


@dataclass(frozen=True)
class Meeting:
    """An operation at which samples meet.

    Attributes:
        objective: of which loss.
        index: the operation.
        taken: what it takes, with samples apart.
        dims: dimensions of that which it mixes.
        scattered: the reshape that has scattered samples before.
    """

    objective: Objective
    index: int
    taken: Value
    dims: tuple[int, ...]
    scattered: int | None


def rule(recording: Recording) -> list[Finding]:
    """At most one finding: the first operation at which samples meet."""
    found: list[Meeting] = []
    for objective in objectives(recording):
        if objective.anatomy.batch_size is None:
            continue
        meeting = next(_meetings(objective), None)
        if meeting is not None and (_is_wrong_by_itself(meeting) or independent_samples(objective)):
            found.append(meeting)
    trial = next(iter(recording.all(DependenceTrial)), None)
    # outputs that move with no input at all say nothing of where samples meet
    if trial is not None and trial.model and trial.depends and not trial.touched:
        found = [item for item in found if not item.objective.op(item.index).module]  # they don't meet in the model
    return [_finding(found[0], len(found), trial)] if found else []


def _is_wrong_by_itself(meeting: Meeting) -> bool:
    """Whether an operation is wrong whatever the samples are to each other."""
    return meeting.scattered is not None or _summed_over_others(meeting)


def _summed_over_others(meeting: Meeting) -> bool:
    """Whether a softmax's results are weights of a sum that goes over another dimension than the softmax."""
    objective, op = meeting.objective, meeting.objective.op(meeting.index)
    if op.name != "softmax":
        return False
    for weighting in objective.users(meeting.index):
        product = objective.op(weighting)
        if product.name != "mul" or len(product.inputs) != 2 or not all(value.grad for value in product.inputs):
            continue
        shape, weights = product.outputs[0].shape, op.outputs[0].shape
        if len(shape) != len(weights):
            continue
        for summing in objective.users(weighting):
            total = objective.op(summing)
            dims = dims_of(total, total.inputs[0]) if total.name == "sum" and total.inputs else ()
            others = bool(dims) and len(dims) < len(shape) and not set(dims) & set(meeting.dims)
            if others and all(weights[dim] == shape[dim] > 1 for dim in dims):
                return True
    return False


def _meetings(objective: Objective) -> Iterator[Meeting]:
    for index in objective.members:
        op = objective.op(index)
        mixed = _mixed(objective, index, op)
        if mixed is not None and (objective.is_layer(index) or not objective.is_output(index)):
            yield mixed


def _mixed(objective: Objective, index: int, op: Op) -> Meeting | None:
    """An operation that surely lets samples meet."""
    if not op.inputs or not op.outputs:
        return None
    activation = spelled(objective, index)
    if op.name == "div" and activation is None:
        return _shares(objective, index, op)
    if activation is not None and activation.written == "hand":
        whole = activation.taken
        return _hit(objective, index, whole, activation.dims, _others(whole) > 1 and whole.samples == "apart")
    if op.outputs[0].samples not in ("mixed", "statistic"):
        return None
    if any(value.samples in ("mixed", "statistic") for value in op.inputs):
        return None
    taken = next((value for value in op.inputs if value.samples == "apart" and value.over), None)
    if taken is None:
        return None
    scattered = scattering_view(objective.anatomy, taken)
    if scattered is not None:
        return Meeting(objective, index, taken, (), scattered)
    if op.name in _ALONG:
        return _hit(objective, index, taken, dims_of(op, taken), len(taken.shape) > 1 and _others(taken) > 1)
    if op.name in _RECURRENT:
        time = 1 if op.settings.get("batch_first") else 0
        certain = taken.argument == "input" and len(taken.shape) == 3 and min(taken.shape[:2]) > 1
        return _hit(objective, index, taken, (time,), certain)
    if op.name == "scaled_dot_product_attention":
        return _hit(objective, index, taken, (2,), len(taken.shape) == 4 and taken.shape[0] > 1)
    if op.name in _PRODUCTS and op.inputs[-2].over == (1,):
        return _of_queries_and_keys(objective, index, op)
    if op.name in (*_PRODUCTS, "mm") and len(op.inputs) >= 2:
        return _contracted(objective, index, op)
    if op.name in ("addmm", "mm") and taken.argument in ("mat1", "self"):
        return _hit(objective, index, taken, (1,), len(taken.shape) == 2 and taken.shape[0] > 1)
    if op.name == "convolution" and taken.argument == "input":
        return _hit(objective, index, taken, tuple(range(1, len(taken.shape))), taken.shape[0] > 1)
    return None


def _hit(objective: Objective, index: int, taken: Value, dims: tuple[int, ...], certain: bool) -> Meeting | None:
    hit = tuple(dim for dim in dims if dim in taken.over)
    return Meeting(objective, index, taken, hit, None) if hit and certain else None


def _others(value: Value) -> int:
    return max((size for dim, size in enumerate(value.shape) if dim not in value.over), default=1)


def _shares(objective: Objective, index: int, op: Op) -> Meeting | None:
    """``w / w.sum(dim)`` of weights that aren't negative: shares that sum to 1."""
    if len(op.inputs) != 2:
        return None
    weights, total = op.inputs
    adding, _ = objective.source(total)
    bounds = reach(objective.anatomy, weights)
    if adding is None or bounds is None or bounds.low < 0.0 or weights.samples != "apart":
        return None
    shift = objective.op(adding)
    if shift.name in ("add", "clamp", "clamp_min") and len(shift.inputs) == 1:
        adding, _ = objective.source(shift.inputs[0])
    summing = None if adding is None else objective.op(adding)
    if summing is None or summing.name != "sum" or summing.inputs[0].op != weights.op:
        return None
    dims = dims_of(summing, summing.inputs[0])
    return _hit(objective, index, weights, dims, dims == weights.over and _others(weights) > 1)


def _contracted(objective: Objective, index: int, op: Op) -> Meeting | None:
    """A product of two different values that sums over their samples (an ``einsum`` without the batch)."""
    left, right = op.inputs[-2:]
    last, first = len(left.shape) - 1, len(right.shape) - 2
    if left.samples != "apart" or right.samples != "apart" or last not in left.over or first not in right.over:
        return None
    merged = any(
        before.op is not None
        and objective.op(before.op).name == "view"
        and len(objective.op(before.op).inputs[0].shape) > 3
        for before in (left, right)
    )
    if not merged or objective.source(left)[0] == objective.source(right)[0]:
        return None
    return _hit(objective, index, left, (last,), True)


def _of_queries_and_keys(objective: Objective, index: int, op: Op) -> Meeting | None:
    """Scores of attention between rows that are samples, computed for several positions each."""
    left, right = op.inputs[-2:]
    if left.over != (1,) or right.over != (2,) or left.samples != "apart" or right.samples != "apart":
        return None
    heads = _heads(objective, op)
    if heads is None or left.shape[0] // heads < 2:
        return None
    return Meeting(objective, index, left, (1,), None)


def _heads(objective: Objective, op: Op) -> int | None:
    """Number of heads that lie beside the positions in the product's first dimension."""
    part = next((item for item in objective.anatomy.parts if item.path == op.module), None)
    if part is not None and part.kind == "MultiheadAttention":
        return int(part.settings.get("num_heads", 1))
    value = op.inputs[-2]
    for _ in range(6):
        if value.op is None:
            return None
        made = objective.op(value.op)
        if not made.inputs:
            return None
        before = made.inputs[0]
        if made.name == "view" and len(before.shape) == 4 and len(value.shape) == 3:
            return before.shape[1]
        if made.name not in ("view", "expand", "clone", "transpose", "permute", "mul", "div"):
            return None
        value = before
    return None


# -- what is told ------------------------------------------------------------------------------------------------------


def _finding(meeting: Meeting, count: int, trial: DependenceTrial | None) -> Finding:
    objective = meeting.objective
    anatomy, op = objective.anatomy, objective.op(meeting.index)
    shape = "(" + ", ".join(map(str, meeting.taken.shape)) + ")"
    chain = _line(anatomy, meeting)
    if meeting.scattered is not None:
        view = anatomy.ops[meeting.scattered]
        sizes = "(" + ", ".join(map(str, view.outputs[0].shape)) + ")"
        before = "(" + ", ".join(map(str, view.inputs[0].shape)) + ")"
        summary = f"view from {before} to {sizes} scatters each sample over the batch, and {op.name} mixes them"
        remedy = "swap dimensions with transpose or permute instead of view"
    else:
        along = " and ".join(str(dim) for dim in meeting.dims)
        summary = f"{op.name} works along dimension {along} of {shape}, which runs over the samples of the batch"
        remedy = _remedy(op)
    return Finding(
        CODE,
        Severity.ERROR,
        f"samples of a batch meet inside the model: {summary}",
        at_line(chain, module=op.module or None, op=anatomy.ops[_place(meeting)].name),
        {"shape": shape, "dimensions": list(meeting.dims), "losses seen": count, **_shown(trial)},
        remedy,
    )


def _shown(trial: DependenceTrial | None) -> dict[str, str]:
    if trial is None or not trial.touched:
        return {}
    others = trial.samples - 1
    told = f"another sample in place {trial.place} changes the outputs of {trial.touched} of {others} others"
    return {"tried": told}


def _place(meeting: Meeting) -> int:
    return meeting.index if meeting.scattered is None else meeting.scattered


def _remedy(op: Op) -> str:
    if op.name in _RECURRENT or op.name in _PRODUCTS or op.name == "scaled_dot_product_attention":
        return "set batch_first=True where the layer is made, or give it (time, sample, feature)"
    if op.name in _ALONG:
        return f"give {op.name} the dimension over which it is meant within a sample, for example dim=-1"
    return "let the samples keep a dimension of their own"


def _line(anatomy: Anatomy, meeting: Meeting) -> tuple[Frame, ...]:
    """The reshape that scattered them; else the construction of torch's layer, else the call."""
    if meeting.scattered is not None:
        return anatomy.chain(anatomy.ops[meeting.scattered].chain)
    return making_line(anatomy, meeting.index)
