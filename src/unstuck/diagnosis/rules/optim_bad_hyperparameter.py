"""optim.bad-hyperparameter: momentum, betas, eps or accumulation set so that steps oscillate, vanish or explode.

An eps of 1 in Adam outweighs the root of the second moment, and the steps are as small as with a rate a thousand times
lower; a momentum of 0.999 carries on for a thousand steps; gradients gathered over hundreds of batches give a handful
of steps in the whole run.

Found by trial: from the same start, on batches that the loop has received, the run's own settings don't learn, and the
usual ones do with everything else as it is. Only settings far from the usual ones are tried.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.trying import AHEAD_OF_OWN, Tried, tried
from unstuck.findings import Finding, Severity
from unstuck.record.recording import Recording
from unstuck.record.trials import LearningTrial

__all__ = ["CODE", "rule"]

CODE = "optim.bad-hyperparameter"

SWINGING = 1.2
"""Gain of the usual settings over that of the run's own, in as many steps, where the run swings."""

EFFECTS = {
    "eps": "it outweighs the size of the gradients, so that steps are tiny",
    "momentum": "steps go on in old directions and overshoot",
    "betas": "the averages that steps are made of follow the gradient too slowly, or not at all",
    "dampening": "it takes most of each gradient away",
    "alpha": "the average of the squared gradients isn't one",
}


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per optimiser."""
    found = []
    for item in tried(recording):
        usual = item.trials.named("usual settings")
        if usual is not None and item.learns(usual, ahead_of_own=SWINGING if _swings(item) else AHEAD_OF_OWN):
            found.append(_settings(item, usual))
            continue
        single = item.trials.named("a step per batch")
        if single is not None and item.learns(single, ahead_of_own=0.0):
            found.append(_accumulation(item, single))
    return found


def _swings(item: Tried) -> bool:
    """Whether the loss of the run is far above where it has been."""
    course = item.course
    return course.last - course.lowest > 0.25 * abs(course.first - course.lowest)


def _settings(item: Tried, usual: LearningTrial) -> Finding:
    record = item.record
    names = [name for name in ("eps", "betas", "momentum", "dampening", "alpha") if _changed(name, usual)]
    told = ", ".join(f"{name}={_shown(record.settings.get(name))}" for name in names)
    remedy = ", ".join(f"{name}={_shown(_usual(name, usual))}" for name in names)
    return Finding(
        CODE,
        Severity.ERROR,
        f"{record.kind} with {told} doesn't learn: {EFFECTS[names[0]] if names else 'steps are no use'}",
        at_line(record.made_at),
        {
            **{name: record.settings.get(name) for name in names},
            "loss of the run": [item.course.first, item.course.last],
            **item.trials.evidence(usual),
        },
        f"take {remedy}: from the same start the loss then goes from {item.start:.3g} to {usual.losses[-1]:.3g} in "
        f"{usual.steps[-1]} steps",
        confirmed=True,
    )


def _changed(name: str, trial: LearningTrial) -> bool:
    return ("beta1" if name == "betas" else name) in trial.changes


def _usual(name: str, trial: LearningTrial) -> object:
    return (trial.changes["beta1"], trial.changes["beta2"]) if name == "betas" else trial.changes[name]


def _shown(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(_shown(item) for item in value) + ")"
    return f"{value:g}" if isinstance(value, (int, float)) and math.isfinite(value) else str(value)


def _accumulation(item: Tried, single: LearningTrial) -> Finding:
    record = item.record
    passes = max(2, round(item.course.count / max(1, record.steps)))
    return Finding(
        CODE,
        Severity.ERROR,
        f"gradients of {passes} backward passes are gathered for one step, so that the run has made {record.steps} "
        "steps only",
        at_line(record.step_at),
        {
            "backward passes per step": passes,
            "steps": record.steps,
            "loss of the run": [item.course.first, item.course.last],
            **item.trials.evidence(single),
        },
        f"step after each backward pass, or after a few: from the same start the loss then goes from {item.start:.3g} "
        f"to {single.losses[-1]:.3g} in {single.steps[-1]} passes",
        confirmed=True,
    )
