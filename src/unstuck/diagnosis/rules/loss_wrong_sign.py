"""loss.wrong-sign: the optimiser climbs: the objective is driven up, or the loss runs to minus infinity.

A likelihood that is minimised, the negative of an error, ``maximize=True`` on a loss, a regulariser with a flipped
sign: the number that is reported falls and falls, and what it stands for gets worse.

Two things must come together. From the operations of a traced step the terms of the loss are read with their signs, and
one of them has the wrong one: an error that goes into the loss negatively, a log-probability that goes in positively,
squares that all go in negatively, or a term without a lower bound (``exp(2 s) + 2 s``). And the run has gone where that
leads: below zero and ever further, or, with ``maximize=True``, up. Losses that are negative for good reasons
(log-likelihoods of densities, critics, policy gradients, similarities) have no such term.

Two terms are known by the names that the program gives them, since no number tells a reward from a cost: a
log-probability times a reward or an advantage that goes in positively, and a hinge over the distance of a negative
minus that of a positive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from unstuck.diagnosis.named_terms import minimised_gain, pulled_negative
from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.signed_terms import Term, first_loss, linear_terms, terms_of, using
from unstuck.diagnosis.suspicion import Course, course_of
from unstuck.diagnosis.wiring import connections
from unstuck.findings import Finding, Severity, Where
from unstuck.record.anatomy import Anatomy, Mark
from unstuck.record.order import OrderRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "loss.wrong-sign"

ERRORS = {
    "nll_loss": "negative log-likelihood",
    "nll_loss2d": "negative log-likelihood",
    "nll_loss_nd": "negative log-likelihood",
    "cross_entropy_loss": "cross-entropy",
    "mse_loss": "squared error",
    "l1_loss": "absolute error",
    "smooth_l1_loss": "absolute error",
    "huber_loss": "absolute error",
    "binary_cross_entropy": "binary cross-entropy",
    "binary_cross_entropy_with_logits": "binary cross-entropy",
    "ctc_loss": "negative log-likelihood",
}
"""Operations whose result is to be minimised."""

SQUARES = frozenset({"pow", "square"})
LOGARITHMS = frozenset({"log_softmax", "logsigmoid", "log_sigmoid_forward", "log_sigmoid"})

FELL = 2.0
"""How far below the first loss, in its own size, a loss has run away."""

MARGIN_LEFT = 0.9
"""Part of its first loss that a triplet loss loses where it learns."""

ROSE = 1.2
"""Last loss over the first one of a run that climbs."""


@dataclass(frozen=True)
class _Wrong:
    """What is wrong: ``term``: the one with the wrong sign, ``op``: whose line is to be changed."""

    op: int
    said: str
    remedy: str


def rule(recording: Recording) -> list[Finding]:
    """At most one finding."""
    course = course_of(recording)
    if course is None or len(recording.optimizers) != 1:
        return []
    record = recording.optimizers[0]
    if all(name.startswith("parameter ") for name in record.names):
        return []  # what is trained is no model: an input that is made adversarial, for one
    found = first_loss(recording.all(Anatomy))
    if found is None:
        return []
    anatomy, mark = found
    terms = terms_of(anatomy, mark)
    evidence = {"first loss": course.first, "last loss": course.last, "steps": course.steps}
    if record.settings.get("maximize") is True:
        if not _only_errors(anatomy, terms, 1) or not course.last > ROSE * abs(course.first):
            return []
        name = _name(anatomy, terms[0])
        return [
            Finding(
                CODE,
                Severity.ERROR,
                f"maximize=True drives the {name} up: from {course.first:.3g} to {course.last:.3g}",
                at_line(record.made_at),
                evidence,
                "leave maximize=True out: it is for objectives that should grow",
            )
        ]
    named = _named(recording, anatomy, mark, course)
    if named is not None:
        return [Finding(CODE, Severity.ERROR, named.said, _where(anatomy, mark, named.op), evidence, named.remedy)]
    if not _ran_away(course):
        return []
    wrong = _flipped(anatomy, terms) or _unbounded(anatomy, terms)
    if wrong is None:
        return []
    return [
        Finding(
            CODE,
            Severity.ERROR,
            f"{wrong.said}: the loss has gone from {course.first:.3g} to {course.last:.3g} and has no end below",
            _where(anatomy, mark, wrong.op),
            evidence,
            wrong.remedy,
        )
    ]


def _named(recording: Recording, anatomy: Anatomy, mark: Mark, course: Course) -> _Wrong | None:
    """What the program's own names say of a term: these losses run nowhere, they stand still at the worst."""
    record = connections(recording)
    if record is None or any(item.reworked for item in recording.all(OrderRecord)):
        return None
    gain = minimised_gain(anatomy, mark, [item for item in record.statements if item.kind == "rewarded"])
    if gain is not None:
        return _Wrong(
            gain,
            "log-probability times reward is minimised: the policy learns to avoid what is rewarded",
            "minimise its negative: -(log_prob * advantage).mean()",
        )
    swapped = [item for item in record.statements if item.kind == "swapped_triplet"]
    pulled = pulled_negative(anatomy, mark, swapped) if course.fell < MARGIN_LEFT else None
    if pulled is not None:
        return _Wrong(
            pulled,
            "the hinge pulls negatives closer and pushes positives away: it goes over the negative's distance minus "
            "the positive's",
            "swap them: relu(positive distance - negative distance + margin)",
        )
    return None


def _ran_away(course: Course) -> bool:
    """Whether the loss has fallen through zero, or far below a negative start, and is at its lowest now."""
    last = course.lowest if math.isinf(course.last) else course.last
    at_lowest = last <= course.lowest + 0.25 * abs(course.first - course.lowest)
    return at_lowest and last < (0.0 if course.first >= 0.0 else course.first * (1.0 + FELL))


def _only_errors(anatomy: Anatomy, terms: list[Term], sign: int) -> bool:
    return bool(terms) and all(
        term.op is not None and anatomy.ops[term.op].name in (*ERRORS, *SQUARES) and term.sign == sign for term in terms
    )


def _name(anatomy: Anatomy, term: Term) -> str:
    return ERRORS.get(anatomy.ops[term.op].name, "squared error") if term.op is not None else "loss"


def _flipped(anatomy: Anatomy, terms: list[Term]) -> _Wrong | None:
    """All of the loss has the wrong sign."""
    live = [term for term in terms if term.op is not None]
    if not live or any(term.sign == 0 for term in live):
        return None
    names = [anatomy.ops[term.op].name for term in live if term.op is not None]
    if _only_errors(anatomy, live, -1):
        return _Wrong(
            _turning(anatomy, live[0]),
            f"the {_name(anatomy, live[0])} goes into the loss with a minus",
            "leave the minus out: this loss is to be minimised as it is",
        )
    if all(name in LOGARITHMS for name in names) and all(term.sign == 1 for term in live):
        return _Wrong(
            _turning(anatomy, live[0]),
            "the log-probability of the target is minimised",
            "minimise its negative (torch.nn.functional.nll_loss does)",
        )
    squares = [term for term, name in zip(live, names, strict=True) if name in SQUARES]
    others = [term for term, name in zip(live, names, strict=True) if name not in (*SQUARES, "log")]
    if squares and not others and all(term.sign == -1 for term in squares):
        return _Wrong(
            _turning(anatomy, squares[0]),
            "the squared error goes into the loss with a minus",
            "minimise the negative log-likelihood: -distribution.log_prob(x), or the error itself",
        )
    return None


def _unbounded(anatomy: Anatomy, terms: list[Term]) -> _Wrong | None:
    """One part of the loss has no lower bound, since a term and the exponential of it go the same way."""
    linear: dict[int, list[Term]] = {}
    for term in terms:
        if term.op is not None and term.sign:
            linear.setdefault(term.op, []).append(term)
    for term in terms:
        if term.op is None or not term.sign:
            continue
        op = anatomy.ops[term.op]
        if op.name == "exp" and term.sign == 1:
            for inner in linear_terms(anatomy, op.inputs[0]):
                for other in linear.get(inner.op if inner.op is not None else -1, []):
                    if inner.sign and inner.sign * other.sign == 1:
                        return _log_scale(anatomy, other)
        if op.name == "log" and term.sign == 1:
            base = op.inputs[0].op
            if base is None:
                continue
            for other_op, others in linear.items():
                same = other_op == base
                square = anatomy.ops[other_op].name in SQUARES and anatomy.ops[other_op].inputs[0].op == base
                if (same or square) and any(item.sign == 1 for item in others):
                    return _log_scale(anatomy, term)
        if op.name == "exp" and term.sign == -1:
            squares = [t for t in terms if t.op is not None and anatomy.ops[t.op].name in SQUARES]
            if squares and all(item.sign == -1 for item in squares):
                return _Wrong(
                    _turning(anatomy, term),
                    "a variance goes into the loss with a minus",
                    "check the sign of the regulariser: the KL divergence is to be added to a loss",
                )
    return None


def _log_scale(anatomy: Anatomy, term: Term) -> _Wrong:
    at = using(anatomy, term)
    return _Wrong(
        _turning(anatomy, term) if at is None else at,
        "the logarithm of a scale goes into the loss with the sign that rewards a scale of zero",
        "check the signs of this term: the KL divergence to a standard normal distribution is "
        "0.5 * (exp(2 s) + mu ** 2 - 1 - 2 s) with s the logarithm of the deviation",
    )


def _turning(anatomy: Anatomy, term: Term) -> int:
    """The operation that turns a term's sign, the one next to it; where none does, the one that takes it first."""
    assert term.op is not None
    for index in reversed(term.path):
        op = anatomy.ops[index]
        other = op.settings.get("other")
        if op.name in ("neg", "sub", "rsub") or (isinstance(other, (int, float)) and other < 0):
            return index
    return term.path[-1] if term.path else term.op


def _where(anatomy: Anatomy, mark: Mark, op: int) -> Where:
    chain = anatomy.chain(anatomy.ops[op].chain) or anatomy.chain(mark.chain)
    return at_line(chain, op=anatomy.ops[op].name)
