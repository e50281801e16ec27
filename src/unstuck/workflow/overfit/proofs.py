"""What another training of the same batches has proved of the first one."""

from __future__ import annotations

from collections.abc import Sequence

from unstuck.diagnosis.memorised import Memory
from unstuck.findings import Finding, Severity
from unstuck.trials.overfit.training import Curve
from unstuck.workflow.overfit.causes import is_unexplained
from unstuck.workflow.overfit.result import RateTried, best_of

__all__ = ["decay_finding", "rate_finding"]

_OF_STEPS_TOO_LARGE = ("model.dead-units", "model.saturated-units", "optim.exploding-gradient")
"""Findings, and those on numbers that aren't finite, beside which a rate may still be the cause."""


def rate_finding(
    memory: Memory, curve: Curve, rates: Sequence[RateTried], findings: Sequence[Finding], targets: str
) -> tuple[Finding, ...]:
    """What another rate has proved, where the optimiser's own did not learn and another one does.

    Args:
        memory: of the own rate.
        curve: of the own rate.
        rates: the others.
        findings: what is known already.
        targets: how large they are, where they are so large that the steps must be, too.
    """
    learning = [item for item in rates if item.memory.verdict == "memorised"]
    learning = learning or [item for item in rates if item.learns and item.memory.last < 0.5 * memory.last]
    if not learning or memory.verdict != "not memorised":
        return ()
    best = best_of(learning)
    own = best.rate / best.factor
    high = best.factor < 1
    others = [item for item in findings if item.code != ("optim.lr-too-high" if high else "optim.lr-too-low")]
    if not is_unexplained([item for item in others if not (high and _follows_from_steps(item))]):
        return ()
    return (
        Finding(
            code="optim.lr-too-high" if high else "optim.lr-too-low",
            severity=Severity.ERROR,
            summary=f"at the learning rate {own:.3g} the batches are not learnt "
            f"(loss {memory.first:.4g} -> {memory.last:.4g}), at {best.rate:.3g} "
            f"{'they are' if best.memory.verdict == 'memorised' else 'the loss falls further'} "
            f"(-> {best.memory.last:.4g})",
            evidence={
                "rate": own,
                "rate that learns": best.rate,
                "curve": _thinned(curve.losses),
                "curve at the other rate": _thinned(best.losses),
            },
            remedy=f"{targets}: standardise them, or raise the learning rate to about {best.rate:.3g}"
            if targets and not high
            else f"{'lower' if high else 'raise'} the learning rate to about {best.rate:.3g}",
            confirmed=True,
        ),
    )


def decay_finding(decay: float, memory: Memory, curve: Curve, other: Curve) -> Finding:
    """What a training without weight decay has proved, where it memorised and the one with it did not.

    Args:
        decay: the optimiser's weight decay.
        memory: of the training with it.
        curve: of the training with it.
        other: of the training without it.
    """
    return Finding(
        code="optim.weight-decay",
        severity=Severity.ERROR,
        summary=f"with a weight decay of {decay:.3g} the batches are not learnt (loss {memory.first:.4g} -> "
        f"{memory.last:.4g}), without it they are (-> {other.losses[-1]:.4g})",
        evidence={
            "weight decay": decay,
            "curve": _thinned(curve.losses),
            "curve without it": _thinned(other.losses),
        },
        remedy="lower the weight decay: 0 to 0.1 is usual",
        confirmed=True,
    )


def _follows_from_steps(item: Finding) -> bool:
    return item.code in _OF_STEPS_TOO_LARGE or item.code.startswith("numerics.nonfinite")


def _thinned(losses: Sequence[float]) -> list[float]:
    """At most some twenty values of a curve, its end included."""
    step = max(1, len(losses) // 20)
    return [*losses[:-1:step], losses[-1]]
