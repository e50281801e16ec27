"""model.output-activation: an activation on the head makes the target unreachable.

A ReLU on the output of a regression can't give the negative half of standardised targets, and where it is off, no
gradient comes back; tanh can't give targets outside -1..1, a sigmoid none outside 0..1, a softmax none that don't sum
to 1. Before a loss that expects logits, a ReLU keeps probabilities at or above one half, a tanh keeps them off their
ends.

Found by comparing what the output's last activation lets through, whatever the weights are, with quantiles of the
targets that the loss compares it with; followed through views, casts, and arithmetic with plain numbers
(``100 * sigmoid(x)`` reaches 100).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from unstuck.diagnosis.objective import MOVES, Objective, objectives, user_line
from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.reach import Reach, reach
from unstuck.diagnosis.spelling import spelled
from unstuck.findings import Finding, Severity
from unstuck.record.anatomy import Op
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "model.output-activation"

MARGIN = 0.1
"""Share of the targets' own range by which they must lie outside."""

NARROW = 2.01
"""Logits that can't differ by more than this (a tanh) keep probabilities away from 0 and 1."""

_COMPARING = frozenset(("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "sub"))
_RECTIFIERS = frozenset(("relu", "softplus", "exp", "abs", "square", "sqrt"))
_SIGMOIDAL = frozenset(("softmax", "sigmoid"))
_FOLLOWING = frozenset(
    (
        *(
            "pow",
            "square",
            "abs",
            "sqrt",
            "log",
            "log1p",
            "cosh",
            "where",
            "clamp",
            "clamp_min",
            "clamp_max",
            "minimum",
        ),
        *(
            "add",
            "sub",
            "rsub",
            "mul",
            "div",
            "neg",
            "sum",
            "mean",
            "nanmean",
            "stack",
            "cat",
            "masked_fill",
            "maximum",
        ),
    )
)
"""What follows a difference between output and target in a loss."""


@dataclass(frozen=True)
class Misfit:
    """One output that can't reach its targets.

    Attributes:
        objective: of which loss.
        bounds: what the output can be.
        severity: how much is out of reach.
        what: the sentence.
        evidence: numbers.
    """

    objective: Objective
    bounds: Reach
    severity: Severity
    what: str
    evidence: dict[str, object]


def rule(recording: Recording) -> list[Finding]:
    """One finding per activation that stands at a line; the losses in which it was seen are counted."""
    found: dict[object, list[Misfit]] = {}
    for objective in objectives(recording):
        for item in _misfits(objective):
            chain = user_line(objective.anatomy, item.bounds.index)
            found.setdefault(chain[-1] if chain else None, []).append(item)
    return [_finding(items) for items in found.values()]


def _finding(items: list[Misfit]) -> Finding:
    first = min(items, key=lambda item: item.severity.rank)
    objective, index = first.objective, first.bounds.index
    op = objective.op(index)
    return Finding(
        CODE,
        first.severity,
        first.what,
        at_line(user_line(objective.anatomy, index), module=_layer_before(objective, first.bounds), op=op.name),
        {**first.evidence, "losses seen": len({id(item.objective) for item in items})},
        _remedy(first.bounds),
    )


def _remedy(bounds: Reach) -> str:
    if bounds.kind in ("lstm", "gru", "rnn"):
        return f"put a linear layer behind the {bounds.kind}, whose states stay between -1 and 1"
    if bounds.kind == "softmax" and bounds.low == bounds.high:
        return "use a sigmoid for a single unit, or binary_cross_entropy_with_logits on the score itself"
    return f"drop the {bounds.kind} from the output, or scale it to the range of the targets"


def _layer_before(objective: Objective, bounds: Reach) -> str | None:
    index, _ = objective.source(bounds.taken)
    if index is not None:
        op = objective.op(index)
        if op.name == "add" and op.inputs and not objective.is_layer(index):
            inner, _ = objective.source(op.inputs[0])
            index = index if inner is None else inner
        for value in objective.op(index).inputs:
            name = objective.parameter(value)
            if name is not None and "." in name:
                return name.rpartition(".")[0]
    return objective.op(bounds.index).module or None


def _misfits(objective: Objective) -> Iterator[Misfit]:
    for index in objective.members:
        op = objective.op(index)
        found = (
            _beside_targets(objective, index, op)
            or _before_logits(objective, index, op)
            or _of_one_unit(objective, index, op)
            or _for_several_labels(objective, op)
        )
        if found is not None and objective.contains(found.bounds.index):
            yield found


# -- regression --------------------------------------------------------------------------------------------------------


def _beside_targets(objective: Objective, index: int, op: Op) -> Misfit | None:
    if op.name not in _COMPARING or "target 5%" not in op.measured or len(op.inputs) < 2:
        return None
    output, target = op.inputs[:2] if op.inputs[0].grad else (op.inputs[1], op.inputs[0])
    if objective.parameter(target) is not None:
        return None
    if op.name == "sub" and not _is_difference(objective, index):
        return None
    bounds = reach(objective.anatomy, output)
    if bounds is None or not objective.is_output(bounds.index):
        return None
    if op.name == "binary_cross_entropy" and bounds.kind not in _SIGMOIDAL:
        return None  # what its input has to be is another matter
    low, some_low, some_high, high = (op.measured[f"target {share}"] for share in ("5%", "20%", "80%", "95%"))
    room = MARGIN * max(high - low, 1e-12)
    if low >= bounds.low - room and high <= bounds.high + room:
        return None
    many = some_low < bounds.low or some_high > bounds.high
    return Misfit(
        objective,
        bounds,
        Severity.ERROR if many else Severity.WARNING,
        f"the output's {bounds.kind} gives {_interval(bounds)}, but the targets lie between {low:.3g} and {high:.3g} "
        "(5 % and 95 % quantile)",
        {
            "reach": [bounds.low, bounds.high],
            "targets 5% to 95%": [low, high],
            "targets 20% to 80%": [some_low, some_high],
        },
    )


def _is_difference(objective: Objective, index: int) -> bool:
    """Whether a difference is a term of the loss: no layer and no other comparison with data follows."""
    for user in objective.downstream(index):
        op = objective.op(user)
        if user != index and ((op.name not in _FOLLOWING and op.name not in MOVES) or _joins_data(op)):
            return False
    return True


def _joins_data(op: Op) -> bool:
    return op.name in (*_COMPARING, "add", "rsub") and any(
        not value.grad and math.prod(value.shape) > 1 for value in op.inputs
    )


def _interval(bounds: Reach) -> str:
    if bounds.low == -math.inf:
        return f"nothing above {bounds.high:g}"
    if bounds.high == math.inf:
        return f"nothing below {bounds.low:g}"
    return f"only numbers from {bounds.low:g} to {bounds.high:g}"


# -- before a loss that expects logits ---------------------------------------------------------------------------------


def _before_logits(objective: Objective, index: int, op: Op) -> Misfit | None:
    if op.name == "binary_cross_entropy_with_logits":
        taken = op.inputs[0]
    else:
        activation = spelled(objective, index)
        if activation is None or activation.kind != "log_softmax":
            return None
        taken = activation.taken
    bounds = reach(objective.anatomy, taken)
    if bounds is None or bounds.kind in _SIGMOIDAL or not objective.is_output(bounds.index):
        return None
    loss = "binary_cross_entropy_with_logits" if op.name.startswith("binary") else "cross_entropy"
    evidence: dict[str, object] = {"reach": [bounds.low, bounds.high], "loss": loss}
    if bounds.width <= NARROW:
        return Misfit(
            objective,
            bounds,
            Severity.ERROR,
            f"the scores' {bounds.kind} gives {_interval(bounds)}, so that {loss} can't come near 0",
            evidence,
        )
    if bounds.kind not in _RECTIFIERS:
        return None
    if loss == "cross_entropy":
        return Misfit(
            objective,
            bounds,
            Severity.WARNING,
            f"the scores' {bounds.kind} gives nothing below {bounds.low:g} before {loss}: where it is off, no gradient "
            "passes",
            evidence,
        )
    if (bounds.low, bounds.high) != (0.0, math.inf) or not _has_zeros(objective, op):
        return None
    return Misfit(
        objective,
        bounds,
        Severity.ERROR,
        f"the scores' {bounds.kind} gives nothing below 0, so that probabilities stay at or above one half",
        evidence,
    )


def _has_zeros(objective: Objective, op: Op) -> bool:
    target = op.taken("target")
    seen = None if target is None else objective.made(target)
    return seen is not None and seen.low is not None and seen.low < 0.5


# -- softmax -----------------------------------------------------------------------------------------------------------


def _of_one_unit(objective: Objective, index: int, op: Op) -> Misfit | None:
    activation = spelled(objective, index)
    if activation is None or activation.kind != "softmax" or len(activation.dims) != 1:
        return None
    shape = activation.taken.shape
    if not shape or shape[activation.dims[0]] != 1 or max(shape) == 1 or not objective.is_output(index):
        return None
    if not objective.is_layer(objective.source(activation.taken)[0] or index):
        return None
    return Misfit(
        objective,
        Reach(1.0, 1.0, "softmax", index, activation.taken),
        Severity.ERROR,
        "the output is a softmax over a single unit, which is always 1",
        {"shape": list(shape)},
    )


def _for_several_labels(objective: Objective, op: Op) -> Misfit | None:
    if op.name != "binary_cross_entropy" or "target sum" not in op.measured:
        return None
    bounds = reach(objective.anatomy, op.inputs[0])
    if bounds is None or bounds.kind != "softmax" or not objective.is_output(bounds.index):
        return None
    activation = spelled(objective, bounds.index)
    shape = op.inputs[0].shape
    if activation is None or activation.dims != (len(activation.taken.shape) - 1,) or shape != activation.taken.shape:
        return None
    total = op.measured["target sum"]
    if shape[-1] < 2 or total <= 1.0 + MARGIN:
        return None
    return Misfit(
        objective,
        bounds,
        Severity.ERROR,
        f"the output's softmax shares 1 among the labels, but {total:.2g} of them hold for a sample on average",
        {"labels per sample": total, "classes": shape[-1]},
    )
