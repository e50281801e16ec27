"""What is asked of an examination, and what each of its checks answers: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from unstuck.findings import Finding, Severity

__all__ = ["Opinion", "Outcome", "Plan", "Status", "concluded"]

Status = Literal["ok", "look", "failed", "not judged", "raised", "interrupted", "not reached"]
"""``ok``: what was looked at is in order. ``look``: something is unusual, and ``why`` says what to look at. ``failed``:
the check's question is answered with no. ``not judged``: the question could not be answered. ``raised``: the program
raised an exception, or ended itself. ``interrupted``: Ctrl-C. ``not reached``: an earlier check has ended the
examination."""

_WORST_FIRST: tuple[Status, ...] = ("failed", "look", "not judged")


@dataclass(frozen=True)
class Plan:
    """How long the checks may be.

    Attributes:
        steps: optimiser steps of the overfit test and of the real run.
        batches: that are overfit.
        max_seconds: for each training.
    """

    steps: int = 200
    batches: int = 1
    max_seconds: float = 60.0


@dataclass(frozen=True)
class Opinion:
    """Why a check isn't simply ``ok``: ``failed``, ``look`` or ``not judged``, and the reason in a phrase."""

    status: Status
    why: str


@dataclass(frozen=True)
class Outcome:
    """What a check has shown.

    Attributes:
        name: of the check.
        purpose: the question that it answers.
        status: the answer.
        told: what was seen, in a line; empty where nothing was.
        why: what to look at, why it failed, or why it could not be judged; empty for ``ok``.
        findings: of the diagnosis.
        numbers: measured values by name.
        unchecked: what could not be checked, and why.
    """

    name: str
    purpose: str
    status: Status
    told: str = ""
    why: str = ""
    findings: tuple[Finding, ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()

    @property
    def certain(self) -> bool:
        """Whether a cause is certain, so that further checks would only see its consequences."""
        return any(item.severity is Severity.ERROR for item in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Without the findings, which the examination tells once for all checks."""
        return {
            "name": self.name,
            "purpose": self.purpose,
            "status": self.status,
            "told": self.told,
            "why": self.why,
            "codes": [item.code for item in self.findings],
            "numbers": self.numbers,
        }


def concluded(
    name: str,
    purpose: str,
    told: str,
    findings: Sequence[Finding] = (),
    opinions: Sequence[Opinion] = (),
    numbers: dict[str, Any] | None = None,
    unchecked: tuple[str, ...] = (),
) -> Outcome:
    """The outcome that follows from the findings and opinions of a check: the worst of them, with its reasons.

    Args:
        name: of the check.
        purpose: its question.
        told: what was seen.
        findings: an error makes the check ``failed``, a warning makes it ``look``.
        opinions: what else was noticed.
        numbers: measured values by name.
        unchecked: what could not be checked.
    """
    grades: dict[Severity, Status] = {Severity.ERROR: "failed", Severity.WARNING: "look"}
    all_opinions = [Opinion(grades[item.severity], item.code) for item in findings if item.severity in grades]
    all_opinions += opinions
    status: Status = next((grade for grade in _WORST_FIRST if any(item.status == grade for item in all_opinions)), "ok")
    reasons = [item.why for item in all_opinions if item.status == status or item.status in ("failed", "look")]
    why = "; ".join(dict.fromkeys(reasons))
    return Outcome(name, purpose, status, told, why, tuple(findings), numbers or {}, unchecked)
