"""loss.activation-mismatch: what the loss gets isn't what it expects.

A loss function expects its input in one of three forms: scores without bounds (logits), probabilities, or
log-probabilities. Given another form it still returns a number that falls a little, and the model learns slowly,
hardly, or drives the loss to minus infinity.

Found in the operations that a loss was computed from, so that the spelling doesn't matter: a softmax in ``forward``,
inline, in a helper, written as ``exp(x) / exp(x).sum()``, behind views, casts, indexing, clamping or shifting.

- Logits are expected by ``log_softmax`` (and so by ``cross_entropy``), ``binary_cross_entropy_with_logits``,
  ``logsigmoid``, and by a softmax or sigmoid whose result a loss reads: what reaches them must not be bounded by a
  softmax or sigmoid to an interval of length 1.
- Log-probabilities are expected by ``nll_loss``, ``kl_div`` and ``ctc_loss``: what reaches them must not come from a
  softmax or sigmoid without a logarithm, nor straight from a layer.
- Probabilities are expected by ``binary_cross_entropy`` and by a logarithm: what reaches them must not be a layer's
  result that was only cut to 0..1.

``log_softmax`` of a ``log_softmax`` is the same again and harms nothing, so it isn't reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from unstuck.diagnosis.objective import MOVES, Objective, objectives, place_of, user_line
from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.reach import Reach, reach
from unstuck.diagnosis.spelling import spelled
from unstuck.findings import Finding, Severity
from unstuck.record.anatomy import Op, Value
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "loss.activation-mismatch"

WIDEST = 1.01
"""Scores that can't differ by more than this were probabilities before."""

FAR = 0.1
"""Logarithm of a sum of probabilities from which on these were none."""

_READS_PROBABILITIES = frozenset(
    ("log", "log1p", "log2", "binary_cross_entropy", "nll_loss", "nll_loss2d", "mse_loss", "l1_loss", "smooth_l1_loss")
)
"""What a loss does with probabilities, so that what made them was the last activation."""


_ADDING = frozenset(
    (
        "sum",
        "mean",
        "nanmean",
        "nansum",
        "add",
        "sub",
        "rsub",
        "mul",
        "div",
        "neg",
        "where",
        "masked_fill",
        "stack",
        "cat",
    )
)
"""What is done with the terms of a loss."""


@dataclass(frozen=True)
class Mismatch:
    """One misfit.

    Attributes:
        objective: of which loss.
        at: operation whose line is to be changed.
        summary: what is wrong.
        remedy: what to do.
        evidence: numbers.
    """

    objective: Objective
    at: int
    summary: str
    remedy: str
    evidence: dict[str, object]


def rule(recording: Recording) -> list[Finding]:
    """One finding per line; the losses in which it was seen are counted."""
    found: dict[object, list[Mismatch]] = {}
    for objective in objectives(recording):
        for item in _mismatches(objective):
            chain = user_line(objective.anatomy, item.at)
            found.setdefault(chain[-1] if chain else None, []).append(item)
    return [_finding(items) for items in found.values()]


def _finding(items: list[Mismatch]) -> Finding:
    first = items[0]
    anatomy = first.objective.anatomy
    module, op = place_of(anatomy, first.at)
    return Finding(
        CODE,
        Severity.ERROR,
        first.summary,
        at_line(user_line(anatomy, first.at), module=module, op=op),
        {**first.evidence, "calls seen": len({id(item.objective) for item in items})},
        first.remedy,
    )


def _mismatches(objective: Objective) -> Iterator[Mismatch]:
    for index in objective.members:
        op = objective.op(index)
        found = (
            _instead_of_logits(objective, index, op)
            or _instead_of_log_probabilities(objective, index, op)
            or _instead_of_probabilities(objective, index, op)
            or _over_one_class(objective, index)
            or _log_probabilities_as_logits(objective, op)
            or _rates_as_logarithms(objective, index, op)
            or _overlap_of_logits(objective, index, op)
        )
        if found is not None:
            yield found


# -- probabilities where logits are expected ---------------------------------------------------------------------------


def _instead_of_logits(objective: Objective, index: int, op: Op) -> Mismatch | None:
    name = _expects_logits(objective, index, op)
    if name is None or not objective.is_output(index):
        return None
    activation = spelled(objective, index)
    taken = op.inputs[0] if activation is None else activation.taken
    bounds = reach(objective.anatomy, taken)
    if bounds is None or bounds.kind not in ("softmax", "sigmoid") or bounds.width > WIDEST:
        return None
    if not objective.contains(bounds.index):
        return None
    evidence: dict[str, object] = {"bounds": [bounds.low, bounds.high], "activation": bounds.kind, "loss": name}
    floor = _floor(objective, index, op, taken, bounds)
    limit = ""
    if floor is not None:
        evidence["smallest loss possible"] = floor
        limit = f": the loss can't fall below {floor:.3g}"
    return Mismatch(
        objective,
        bounds.index,
        f"{name} expects logits and gets the result of a {bounds.kind}, which lies between {bounds.low:g} and "
        f"{bounds.high:g}{limit}",
        f"drop the {bounds.kind} before the loss, which applies its own; keep it where probabilities are wanted, in "
        "evaluation",
        evidence,
    )


def _expects_logits(objective: Objective, index: int, op: Op) -> str | None:
    """Name of the loss function that an operation belongs to, if it expects logits."""
    if op.name in ("binary_cross_entropy_with_logits", "soft_margin_loss", "log_sigmoid"):
        return "logsigmoid" if op.name == "log_sigmoid" else op.name
    activation = spelled(objective, index)
    if activation is None:
        return None
    readers = _read_by(objective, index)
    if activation.kind == "log_softmax":
        return "cross_entropy" if readers & {"nll_loss", "nll_loss2d"} else "log_softmax"
    if readers & _READS_PROBABILITIES:
        return f"the {activation.kind} of the loss"
    return None


def _read_by(objective: Objective, index: int) -> set[str]:
    """Names of the operations that read a result, also after clamping or adding a small number."""
    found: set[str] = set()
    waiting = [index]
    while waiting:
        for user in objective.readers(waiting.pop()):
            op = objective.op(user)
            found.add(op.name)
            if op.name in ("clamp", "clamp_min", "clamp_max") or (op.name == "add" and len(op.inputs) == 1):
                waiting.append(user)
    return found


def _floor(objective: Objective, index: int, op: Op, taken: Value, bounds: Reach) -> float | None:
    """The loss of the best scores that are possible, for a single right class."""
    if op.name == "binary_cross_entropy_with_logits":
        return math.log1p(math.exp(-bounds.high)) if bounds.low == 0.0 else None
    activation = spelled(objective, index)
    if activation is None or activation.kind != "log_softmax" or len(activation.dims) != 1:
        return None
    count = taken.shape[activation.dims[0]] if activation.dims[0] < len(taken.shape) else 0
    return math.log(math.exp(bounds.width) + count - 1) - bounds.width if count > 1 else None


def _over_one_class(objective: Objective, index: int) -> Mismatch | None:
    """``cross_entropy`` of a layer with one unit."""
    activation = spelled(objective, index)
    if activation is None or activation.kind != "log_softmax" or len(activation.dims) != 1:
        return None
    shape = activation.taken.shape
    if not shape or shape[activation.dims[0]] != 1 or max(shape) < 2 or _raw(objective, activation.taken) is None:
        return None
    if not objective.is_output(index):
        return None
    return Mismatch(
        objective,
        index,
        "cross_entropy is given a single class, whose probability is 1 whatever the score: the loss is always 0",
        "use F.binary_cross_entropy_with_logits for a single score, or two outputs",
        {"shape": list(shape)},
    )


def _log_probabilities_as_logits(objective: Objective, op: Op) -> Mismatch | None:
    if op.name != "binary_cross_entropy_with_logits":
        return None
    bounds = reach(objective.anatomy, op.inputs[0])
    if bounds is None or bounds.kind not in ("log_softmax", "log_sigmoid") or bounds.high > 0.0:
        return None
    return Mismatch(
        objective,
        bounds.index,
        f"{op.name} expects logits and gets the result of a {bounds.kind}, which is never above 0, so that "
        "probabilities stay at or below one half",
        f"drop the {bounds.kind} before the loss",
        {"bounds": [bounds.low, bounds.high], "activation": bounds.kind, "loss": op.name},
    )


def _rates_as_logarithms(objective: Objective, index: int, op: Op) -> Mismatch | None:
    """``poisson_nll_loss``, of which ``exp(x) - target * x`` is left, on a rate."""
    if op.name != "sub" or len(op.inputs) != 2 or not objective.is_output(index):
        return None
    power, _ = objective.source(op.inputs[0])
    product, _ = objective.source(op.inputs[1])
    if power is None or product is None or objective.op(power).name != "exp" or objective.op(product).name != "mul":
        return None
    taken = objective.op(power).inputs[0]
    factors = objective.op(product).inputs
    if len(factors) != 2 or all(objective.source(item)[0] != objective.source(taken)[0] for item in factors):
        return None
    if all(item.grad for item in factors):
        return None
    bounds = reach(objective.anatomy, taken)
    if bounds is None or bounds.kind not in ("softplus", "exp", "relu") or bounds.low != 0.0:
        return None
    return Mismatch(
        objective,
        bounds.index,
        f"poisson_nll_loss expects the logarithm of a rate and gets the result of a {bounds.kind}, which is never "
        "below 0, so that rates stay at or above 1",
        f"drop the {bounds.kind}, or say log_input=False",
        {"bounds": [bounds.low, bounds.high], "activation": bounds.kind, "loss": "poisson_nll_loss"},
    )


def _overlap_of_logits(objective: Objective, index: int, op: Op) -> Mismatch | None:
    """A Dice or Jaccard loss, ``(x * target).sum() / (x.sum() + target.sum())``, on a layer's result."""
    if op.name != "div" or len(op.inputs) != 2 or not objective.is_output(index):
        return None
    product = _summed(objective, op.inputs[0], "mul")
    if product is None or len(objective.op(product).inputs) != 2:
        return None
    one, other = objective.op(product).inputs
    if bool(one.grad) == bool(other.grad):
        return None
    taken, target = (one, other) if one.grad else (other, one)
    layer = _raw(objective, taken)
    seen = objective.made(target)
    if layer is None or seen.low is None or seen.high is None or (seen.low, seen.high) != (0.0, 1.0):
        return None
    plain = [user for user in objective.readers(layer) if objective.op(user).name == "sum"]
    if not any(index in objective.downstream(user) for user in plain):
        return None
    return Mismatch(
        objective,
        product,
        "an overlap (Dice or Jaccard) expects probabilities and gets a layer's result as it is",
        "apply a sigmoid before the overlap is taken",
        {"loss": "overlap", "smallest": objective.made(taken).low, "largest": objective.made(taken).high},
    )


def _summed(objective: Objective, value: Value, name: str) -> int | None:
    """The operation of a name whose result was summed, scaled and shifted by plain numbers."""
    for _ in range(8):
        index, _here = objective.source(value)
        if index is None:
            return None
        op = objective.op(index)
        if op.name == name and len(op.inputs) == 2 and op.outputs and len(op.outputs[0].shape) > 0:
            return index
        if op.name not in ("sum", "mul", "add") or (op.name != "sum" and len(op.inputs) != 1):
            return None
        value = op.inputs[0]
    return None


# -- anything else where log-probabilities are expected ----------------------------------------------------------------


def _instead_of_log_probabilities(objective: Objective, index: int, op: Op) -> Mismatch | None:
    if op.name in ("nll_loss", "nll_loss2d", "ctc_loss"):
        taken = op.inputs[0]
        if abs(op.measured.get("logsumexp", 0.0)) < FAR or not _is_term(objective, index):
            return None
        name = "nll_loss" if op.name == "nll_loss2d" else op.name
    else:
        divergence = _divergence(objective, op)
        if divergence is None:
            return None
        taken, name = divergence, "kl_div"
    bounds = reach(objective.anatomy, taken)
    if bounds is not None and bounds.kind in ("softmax", "sigmoid") and bounds.within(0.0, 1.0):
        log = "log_softmax" if bounds.kind == "softmax" else "logsigmoid"
        return Mismatch(
            objective,
            bounds.index,
            f"{name} expects log-probabilities and gets the result of a {bounds.kind} without its logarithm",
            f"use F.{log} in the place of the {bounds.kind}",
            {"activation": bounds.kind, "loss": name, **_sum_of(op)},
        )
    layer = _raw(objective, taken)
    if layer is None or _is_normalised_elsewhere(objective, layer):
        return None
    return Mismatch(
        objective,
        index,
        f"{name} expects log-probabilities and gets a layer's result as it is: nothing keeps the loss from falling "
        "without end",
        "use F.cross_entropy, which takes logits" if name == "nll_loss" else f"apply F.log_softmax before F.{name}",
        {"loss": name, **_sum_of(op)},
    )


def _sum_of(op: Op) -> dict[str, object]:
    found = op.measured.get("logsumexp")
    return {} if found is None else {"logarithm of the sum of what should be probabilities": found}


def _divergence(objective: Objective, op: Op) -> Value | None:
    """The input of ``kl_div``, of which ``xlogy(target, target) - target * input`` is left."""
    if op.name != "sub" or len(op.inputs) != 2:
        return None
    entropy, _ = objective.source(op.inputs[0])
    product, _ = objective.source(op.inputs[1])
    if entropy is None or product is None or objective.op(entropy).name != "xlogy":
        return None
    multiplied, plain = objective.op(product), objective.op(entropy)
    if multiplied.name != "mul" or len(multiplied.inputs) != 2 or len(plain.inputs) != 2:
        return None
    target, taken = multiplied.inputs
    same = (target.op, target.leaf, target.shape) == (plain.inputs[0].op, plain.inputs[0].leaf, plain.inputs[0].shape)
    return taken if same and taken.grad else None


def _raw(objective: Objective, value: Value) -> int | None:
    """The operation that made a value, if that is a layer, or adds a bias to one's result."""
    index, here = objective.source(value)
    if index is None or not here.grad:
        return None
    op = objective.op(index)
    inner: int | None = index
    if op.name == "add" and len(op.inputs) == 2 and objective.parameter(op.inputs[1]) is not None:
        inner, _ = objective.source(op.inputs[0])
    return index if inner is not None and objective.is_layer(inner) else None


def _is_normalised_elsewhere(objective: Objective, made: int) -> bool:
    """Whether the loss subtracts the normaliser by itself: ``nll_loss(x) + logsumexp(x)``."""
    names = {objective.op(index).name for index in objective.readers(made)}
    return bool(names & {"logsumexp", "exp", "amax", "max"})


def _is_term(objective: Objective, index: int) -> bool:
    """Whether the loss only weighs, adds up and averages a result, and doesn't use it to pick elements."""
    return all(
        objective.op(user).name in _ADDING or objective.op(user).name in MOVES
        for user in objective.downstream(index)
        if user != index
    )


# -- logits where probabilities are expected ---------------------------------------------------------------------------


def _instead_of_probabilities(objective: Objective, index: int, op: Op) -> Mismatch | None:
    if op.name not in ("binary_cross_entropy", "log"):
        return None
    taken = op.inputs[0]
    bounds = reach(objective.anatomy, taken)
    if bounds is None:
        if op.name == "log" or _raw(objective, taken) is None:
            return None
        how = "as it is"
    else:
        if bounds.kind not in ("clamp", "hardtanh") or _raw(objective, bounds.taken) is None:
            return None
        if not bounds.within(0.0, 1.0) or bounds.low > 0.1 or bounds.high < 0.9:
            return None
        if op.name == "log" and not _of_both_outcomes(objective, bounds):
            return None
        how = "cut to 0..1, where no gradient passes outside"
    return Mismatch(
        objective,
        index,
        f"{'a logarithm' if op.name == 'log' else op.name} expects probabilities and gets a layer's result {how}",
        "use F.binary_cross_entropy_with_logits on the layer's result, or apply a sigmoid first",
        {"loss": op.name, "smallest": objective.made(taken).low, "largest": objective.made(taken).high},
    )


def _of_both_outcomes(objective: Objective, bounds: Reach) -> bool:
    """Whether the loss takes the logarithms of ``p`` and of ``1 - p``."""
    signs = set()
    for index in objective.members:
        if objective.op(index).name == "log":
            other = reach(objective.anatomy, objective.op(index).inputs[0])
            if other is not None and other.index == bounds.index:
                maker, _ = objective.source(objective.op(index).inputs[0])
                signs.add(maker is not None and objective.op(maker).name == "rsub")
    return len(signs) == 2
