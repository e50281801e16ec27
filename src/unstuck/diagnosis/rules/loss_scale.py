"""loss.scale: the loss is scaled so that its gradients are useless.

A factor of 1e-6 on the loss, a sum over a huge batch, a division by the number of samples after the mean has been
taken, or twice under accumulation: plain gradient descent takes steps that are as much too small or too large, and with
Adam gradients below its eps give no steps at all.

Found from the operations of a traced step and by trial. A constant factor between the loss's own reduction and
``backward``, or a sum over thousands of elements, is read from the trace; then, from the same start and on batches that
the loop has received, the run's own gradients don't learn, and gradients without that factor do. Losses that are sums
and learn, and factors that optimisers don't mind, are never reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.signed_terms import Term, first_loss, terms_of
from unstuck.diagnosis.trying import Tried, tried
from unstuck.findings import Finding, Severity
from unstuck.record.anatomy import Anatomy, Mark
from unstuck.record.recording import Recording
from unstuck.record.trials import LearningTrial

__all__ = ["CODE", "Scaling", "rule", "scaling_of"]

CODE = "loss.scale"

SMALL = 0.02
"""A factor on the loss below this is far from one."""

LARGE = 100.0
"""A factor, or a number of elements summed, above this is."""

TINY = 1e-4
"""A loss that begins below this was made small by something."""


@dataclass(frozen=True)
class Scaling:
    """What a loss is multiplied by.

    Attributes:
        factor: on all of its terms; above one also for a sum over elements.
        summed: it is a sum's.
        op: the operation whose line is to be changed.
    """

    factor: float
    summed: bool
    op: int


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per optimiser."""
    loss = first_loss(recording.all(Anatomy))
    if loss is None:
        return []
    anatomy, mark = loss
    found = []
    for item in tried(recording):
        trial = item.trials.named("another loss scale")
        scaling = scaling_of(anatomy, mark)
        if trial is None or scaling is None or not item.learns(trial):
            continue
        found.append(_finding(item, trial, scaling, anatomy, mark))
    return found


def scaling_of(anatomy: Anatomy, mark: Mark) -> Scaling | None:
    """By what all terms of a loss are multiplied; None where that isn't far from one, or not known."""
    terms = [term for term in terms_of(anatomy, mark) if term.op is not None]
    if not terms:
        return None
    sums = [term.summed * _own_sum(anatomy, term) for term in terms]
    if not all(math.isfinite(term.factor) and term.factor > 0.0 for term in terms):
        return None
    # a sum that is divided by its number of elements is a mean
    whole = [term.factor * total for term, total in zip(terms, sums, strict=True)]
    if max(whole) < SMALL:
        return Scaling(max(whole), False, _scaled_at(anatomy, terms[0]))
    if min(term.factor for term in terms) > LARGE:
        return Scaling(min(whole), False, _scaled_at(anatomy, terms[0]))
    if max(whole) > LARGE:
        return Scaling(max(whole), True, _summed_at(anatomy, terms[whole.index(max(whole))]))
    return None


def _own_sum(anatomy: Anatomy, term: Term) -> int:
    """Elements that a loss function itself sums up (``reduction="sum"``)."""
    assert term.op is not None
    op = anatomy.ops[term.op]
    if op.settings.get("reduction") not in (2, "sum") or not op.inputs:
        return 1
    return max(math.prod(value.shape) for value in op.inputs if value.argument in ("self", "target", "input"))


def _scaled_at(anatomy: Anatomy, term: Term) -> int:
    """The operation with the factor furthest from one."""
    best, size = term.path[0] if term.path else term.op, 0.0
    for index in term.path:
        op = anatomy.ops[index]
        other = op.settings.get("other")
        if op.name in ("mul", "div") and isinstance(other, (int, float)) and other != 0:
            if abs(math.log(abs(other))) > size:
                best, size = index, abs(math.log(abs(other)))
        elif op.name in ("mul", "div") and len(op.inputs) == 2 and size == 0.0:
            best = index
    assert best is not None
    return best


def _summed_at(anatomy: Anatomy, term: Term) -> int:
    assert term.op is not None
    return next((index for index in term.path if anatomy.ops[index].name in ("sum", "nansum")), term.op)


def _finding(item: Tried, trial: LearningTrial, scaling: Scaling, anatomy: Anatomy, mark: Mark) -> Finding:
    record = item.record
    what = f"a sum over {scaling.factor:.3g} elements" if scaling.summed else f"multiplied by {scaling.factor:.2g}"
    effect = "steps are far too large" if scaling.factor > 1.0 else "nothing is left of the gradient"
    return Finding(
        CODE,
        Severity.ERROR,
        f"the loss is {what}, and with {record.kind} {effect}",
        at_line(anatomy.chain(anatomy.ops[scaling.op].chain) or anatomy.chain(mark.chain)),
        {
            "factor": scaling.factor,
            "loss of the run": [item.course.first, item.course.last],
            "lr": item.own.rate,
            **item.trials.evidence(trial),
        },
        ("take the mean instead of the sum" if scaling.summed else "leave the factor out")
        + f": from the same start the loss then goes from {item.start:.3g} to {trial.losses[-1]:.3g} in "
        f"{trial.steps[-1]} steps",
        confirmed=True,
    )
