"""Does the steps of an examination one after another, and ends where a cause is certain."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from unstuck.errors import UnstuckError
from unstuck.findings import Finding
from unstuck.places import is_user_file
from unstuck.trainer.data.seed import isolate_rng
from unstuck.workflow.doctor.steps import STEPS, Outcome, Plan
from unstuck.workflow.doctor.target import Patient, patient_of

__all__ = ["Examination", "examine"]

SEED = 0
"""Every step builds the program anew from this seed, so that they see the same one."""


@dataclass(frozen=True)
class Examination:
    """What the steps have shown.

    Attributes:
        outcomes: of the steps that were done, in order.
        failure: what the user's code raised, with its place; None if nothing.
        skipped: names of the steps that were not done.
        interruption: what ended the examination from outside (Ctrl-C), to be raised when it has been reported.
    """

    outcomes: tuple[Outcome, ...]
    failure: str | None
    skipped: tuple[str, ...]
    interruption: BaseException | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of all steps, each cause once, the worst first."""
        known: dict[tuple[str, str | None, int | None], Finding] = {}
        for outcome in self.outcomes:
            for item in outcome.findings:
                known.setdefault((item.code, item.where.file, item.where.line), item)
        return tuple(sorted(known.values(), key=lambda item: item.severity.rank))

    def as_json(self, folder: str) -> dict[str, Any]:
        """Strict-JSON form, with the keys of other reports."""
        return {
            "findings": [item.as_json(folder) for item in self.findings],
            "steps": [
                {
                    "name": item.name,
                    "purpose": item.purpose,
                    "verdict": item.verdict,
                    "told": item.told,
                    "numbers": item.numbers,
                }
                for item in self.outcomes
            ],
            "skipped": list(self.skipped),
            "failure": self.failure,
            "watched": [f"{len(self.outcomes)} steps of the workflow"],
            "unchecked": [*(f"{name}: not reached" for name in self.skipped), *self._unchecked()],
            "cost": None,
        }

    def _unchecked(self) -> list[str]:
        return [phrase for outcome in self.outcomes for phrase in outcome.unchecked]


def examine(
    target: Callable[[], Any],
    plan: Plan,
    told: Callable[[Outcome], None] = lambda outcome: None,
    begin: Callable[[str], None] = lambda name: None,
) -> Examination:
    """Examine a program.

    Args:
        target: builds it; see :func:`unstuck.workflow.doctor.target.patient_of` for what it may return.
        plan: how long the steps may be.
        told: called after every step.
        begin: called with the name of every step before it.

    Raises:
        MisconfigurationException: the target returns something else.
    """
    outcomes: list[Outcome] = []
    failure: str | None = None
    interruption: BaseException | None = None
    for step in STEPS:
        begin(step.__name__.replace("_", " "))
        with isolate_rng():
            torch.manual_seed(SEED)
            try:
                outcome = step(lambda: _built(target), plan)
            except UnstuckError:
                raise
            except Exception as error:  # noqa: BLE001 - the user's code
                failure = _failure(error)
                break
            except (KeyboardInterrupt, SystemExit) as error:
                interruption, failure = error, "it was interrupted"
                break
        outcomes.append(outcome)
        told(outcome)
        if outcome.verdict == "stopped":
            break
    names = [step.__name__.replace("_", " ") for step in STEPS[len(outcomes) + (failure is not None) :]]
    return Examination(tuple(outcomes), failure, tuple(names), interruption)


def _built(target: Callable[[], Any]) -> Patient:
    """The program, built from the seed."""
    with isolate_rng():
        torch.manual_seed(SEED)
        return patient_of(target())


def _failure(error: Exception) -> str:
    lines = [line for line in traceback.extract_tb(error.__traceback__) if is_user_file(line.filename)]
    place = f" ({lines[-1].filename}:{lines[-1].lineno}, in {lines[-1].name})" if lines else ""
    return f"{type(error).__name__}: {error}{place}"
