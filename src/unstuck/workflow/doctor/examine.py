"""Does the checks of an examination one after another, and ends where a cause is certain."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unstuck.errors import UnstuckError
from unstuck.findings import Finding
from unstuck.places import Frame, user_chain
from unstuck.session.session import Session
from unstuck.workflow.doctor.blame import described, is_fault_of_unstuck, is_interrupt, whole
from unstuck.workflow.doctor.checks import CHECKS, Check
from unstuck.workflow.doctor.outcome import Outcome, Plan
from unstuck.workflow.doctor.restored import Belongings, put_back
from unstuck.workflow.doctor.seeding import seeded
from unstuck.workflow.doctor.target import Patient, TargetError, give_lazy_parameters_their_shape, patient_of
from unstuck.workflow.doctor.wording import for_examination

__all__ = ["Examination", "examine", "unbuildable"]


@dataclass(frozen=True)
class Examination:
    """What the checks have shown.

    Attributes:
        outcomes: of all checks, in order, also of those that were not reached.
        failure: what the user's code raised, with its place; None if nothing.
        traceback: of the failure, None without one.
        faults: tracebacks of exceptions in unstuck itself.
    """

    outcomes: tuple[Outcome, ...]
    failure: str | None = None
    traceback: str | None = None
    faults: tuple[str, ...] = ()

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C has ended it."""
        return any(item.status == "interrupted" for item in self.outcomes)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of all checks, each cause once, the worst first."""
        known: dict[tuple[str, str | None, int | None], Finding] = {}
        for outcome in self.outcomes:
            for item in outcome.findings:
                known.setdefault((item.code, item.where.file, item.where.line), item)
        return tuple(sorted(known.values(), key=lambda item: item.severity.rank))

    def as_json(self, folder: str) -> dict[str, Any]:
        """Strict-JSON form, with the keys of other reports."""
        done = [item for item in self.outcomes if item.status != "not reached"]
        return {
            "findings": [item.as_json(folder) for item in self.findings],
            "checks": [item.as_json() for item in self.outcomes],
            "failure": self.failure,
            "traceback": self.traceback,
            "faults": list(self.faults),
            "watched": [f"{len(done)} of {len(self.outcomes)} checks of a program"],
            "unchecked": [
                *(f"{item.name}: {item.why or item.status}" for item in self.outcomes if item.status == "not judged"),
                *(f"{item.name}: not reached" for item in self.outcomes if item.status == "not reached"),
                *(phrase for item in self.outcomes for phrase in item.unchecked),
            ],
            "cost": None,
        }


def examine(
    target: Callable[[], Any],
    plan: Plan,
    told: Callable[[Outcome], None] = lambda outcome: None,
    begin: Callable[[str], None] = lambda name: None,
) -> Examination:
    """Examine a program. What the target hands out, and random states, are afterwards as they were before.

    Args:
        target: builds it; see :func:`unstuck.workflow.doctor.target.patient_of` for what it may return. Called for
            every check.
        plan: how long the checks may be.
        told: called after every check.
        begin: called with the name of every check before it.

    Raises:
        TargetError: the target returns something else, or can't be called without arguments.
    """
    _check_callable(target)
    outside = user_chain(sys._getframe())
    outcomes: list[Outcome] = []
    faults: list[str] = []
    failure: BaseException | None = None
    for check in CHECKS:
        begin(check.name)
        try:
            outcome = _done(check, target, plan, outside)
        except TargetError:
            raise
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - the user's code
            outcome, failure = _ended(check, error, faults)
        outcomes.append(outcome)
        told(outcome)
        if outcome.certain or outcome.status in ("raised", "interrupted"):
            break
    outcomes += [_unreached(check) for check in CHECKS[len(outcomes) :]]
    return Examination(
        tuple(outcomes),
        None if failure is None else described(failure),
        None if failure is None else whole(failure),
        tuple(faults),
    )


def unbuildable(error: BaseException) -> Examination:
    """The examination of a program whose file can't be imported."""
    first = replace(_unreached(CHECKS[0]), status="raised", why=described(error))
    return Examination((first, *map(_unreached, CHECKS[1:])), described(error), whole(error))


def _done(check: Check, target: Callable[[], Any], plan: Plan, outside: Sequence[Frame]) -> Outcome:
    belongings: list[Belongings] = []

    def build() -> Patient:
        """The program, built from the seed; what an earlier build has handed out is as it was then."""
        put_back(belongings)
        with seeded():
            patient = patient_of(target())
            give_lazy_parameters_their_shape(patient)
        belongings.append(Belongings(patient))
        return patient

    try:
        with seeded(), Session.set_aside():
            outcome = check.run(check, build, plan)
    finally:
        put_back(belongings)
    return replace(outcome, findings=tuple(for_examination(item, outside) for item in outcome.findings))


def _ended(check: Check, error: BaseException, faults: list[str]) -> tuple[Outcome, BaseException | None]:
    """The outcome of a check that an exception has ended, and the exception if it is the program's."""
    if is_interrupt(error):
        return replace(_unreached(check), status="interrupted", why="by Ctrl-C"), None
    if is_fault_of_unstuck(error):
        faults.append(whole(error))
        why = f"a fault of unstuck itself, not of the program: {described(error)}"
        return replace(_unreached(check), status="not judged", why=why), None
    why = described(error)
    if isinstance(error, SystemExit):
        why = f"the program ended itself by {why}"
    elif isinstance(error, UnstuckError):
        why = f"the program can't be run like this: {error}"
    return replace(_unreached(check), status="raised", why=why), error


def _unreached(check: Check) -> Outcome:
    return Outcome(check.name, check.purpose, "not reached")


def _check_callable(target: Callable[[], Any]) -> None:
    """Refuse a target that wants arguments.

    Raises:
        TargetError: it does.
    """
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return  # written in C: calling it will tell
    try:
        signature.bind()
    except TypeError as error:
        raise TargetError(f"the target is called without arguments, but {error}") from error
