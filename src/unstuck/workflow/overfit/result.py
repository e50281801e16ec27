"""What an overfit test found, and how it prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from unstuck.diagnosis.memorised import Memory
from unstuck.findings import Finding

__all__ = ["OverfitResult", "RateTried", "best_of"]

_BETTER = 0.05
"""Share of its loss by which another rate must end below the own one to be worth telling."""


@dataclass(frozen=True)
class RateTried:
    """One other learning rate: the factor on the optimiser's own, the mean loss by pass, and whether it learns.

    The factor on a rate of 0 is infinite.
    """

    factor: float
    rate: float
    losses: tuple[float, ...]
    memory: Memory

    @property
    def learns(self) -> bool:
        """Whether the batches were memorised, or would have been with more steps."""
        return self.memory.verdict != "not memorised"


@dataclass(frozen=True)
class OverfitResult:
    """What an overfit test found; prints as a few lines.

    Attributes:
        memory: verdict and numbers.
        losses: mean loss of the batches, once per pass over them, in training mode.
        rates: what other learning rates did, tried where the optimiser's own didn't memorise.
        findings: what the diagnosis found meanwhile, the most important first.
        seconds: that all of it took.
        capacity: (numbers that are trained, numbers that the targets hold), None where those are unknown.
    """

    memory: Memory
    losses: tuple[float, ...]
    rates: tuple[RateTried, ...]
    findings: tuple[Finding, ...]
    seconds: float
    capacity: tuple[int, int] | None = None

    @property
    def verdict(self) -> Literal["memorised", "not memorised", "undecided"]:
        """``memorised``, ``not memorised`` or ``undecided``."""
        return self.memory.verdict

    @property
    def memorised(self) -> bool:
        """Whether the batches were learnt by heart."""
        return self.memory.verdict == "memorised"

    @property
    def best_rate(self) -> float | None:
        """The other learning rate that memorised, or came nearest to it; None where none did better than the own."""
        own = self.memory.last
        limit = own - _BETTER * abs(own) if math.isfinite(own) else math.inf
        better = [item for item in self.rates if item.learns and item.memory.last < limit]
        return best_of(better).rate if better else None

    def __str__(self) -> str:
        lines = [self.memory.sentence]
        if self.rates:
            best = self.best_rate
            tried = ", ".join(f"{item.rate:.3g}: {item.memory.last:.4g}" for item in self.rates)
            told = "no other learning rate learns"
            if best is not None:
                whole = any(item.memory.verdict == "memorised" for item in self.rates if item.rate == best)
                told = f"a learning rate of {best:.3g} {'learns' if whole else 'comes further'}"
            lines.append(f"{told} (loss by rate: {tried})")
        for item in self.findings:
            place = f" ({item.where.file}:{item.where.line})" if item.where.file else ""
            lines.append(f"{item.severity.value} {item.code}{place}: {item.summary}")
            lines += [f"  {item.remedy}"] if item.remedy else []
        if self.verdict == "not memorised" and not self.findings and self.best_rate is None:
            lines.append(self._without_cause())
        return "\n".join(lines)

    def _without_cause(self) -> str:
        if self.capacity is not None and self.capacity[0] < self.capacity[1]:
            return (
                f"the model may be too small for these batches: {self.capacity[0]:,} trained numbers, "
                f"{self.capacity[1]:,} in the targets"
            )
        tried = "" if self.rates else "; not tried: other learning rates"
        return f"no cause was found in what was watched: gradients, wiring, loss, data, numbers{tried}"


def best_of(tried: Sequence[RateTried]) -> RateTried:
    """The rate with the lowest loss at its end."""
    return min(tried, key=lambda item: item.memory.last if math.isfinite(item.memory.last) else math.inf)
