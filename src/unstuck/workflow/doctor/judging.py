"""What the course of a training and the norms of its gradients say by themselves, where no rule speaks.

Plain numbers in, opinions out. These are asked once, of a program that somebody examines, so they may point at what is
merely unusual; what they call ``failed`` must be so whatever the program is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unstuck.workflow.doctor.outcome import Opinion

__all__ = ["Course", "course_of", "has_clearly_fallen", "is_rising", "judge_course", "judge_norms", "judge_validation"]

FEWEST_LOSSES = 20
"""Steps below which the course of a loss isn't judged."""

DIVERGED = 2.0
"""The loss at the end over that at the start, from which on the training has diverged."""

FALLEN = 0.02
"""Share of the loss at the start by which it has at least fallen where something is learnt."""

LARGE_NORM = 100.0
"""Norm of all gradients from which on the loss, or what it is made of, is on an unusual scale."""

GROWN = 10.0
"""Growth of the norm over the first steps that is unusual."""

SPIKE = 30.0
"""A norm over the median of those before it that is a jump."""

_LATEST = 5
"""Norms before a jump that it is compared with."""

SMALL_NORM = 1e-6
"""Norm below which all gradients have practically vanished."""

COARSE = 0.5
"""Change of all weights by one step, as a share of them, that is too coarse for fine adjustments."""


@dataclass(frozen=True)
class Course:
    """A loss over a training.

    Attributes:
        count: losses.
        first: mean over some batches before any step.
        last: mean of the last tenth.
        noise: standard deviation of the loss from batch to batch before any step.
        doubt: standard error of ``last``.
    """

    count: int
    first: float
    last: float
    noise: float
    doubt: float


def course_of(untrained: Sequence[float], losses: Sequence[float]) -> Course | None:
    """The course of a loss; None where it wasn't seen.

    Args:
        untrained: losses of some batches before any step.
        losses: of the training, one a step.
    """
    if not losses or not untrained:
        return None
    tail = losses[-max(1, len(losses) // 10) :]
    doubt = _deviation(tail) / math.sqrt(len(tail))
    return Course(len(losses), _mean(untrained), _mean(tail), _deviation(untrained), doubt)


def is_rising(losses: Sequence[float]) -> bool:
    """Whether a loss is larger over the last quarter of some steps than over the first."""
    part = max(1, len(losses) // 4)
    return bool(losses) and _mean(losses[-part:]) > _mean(losses[:part])


def has_clearly_fallen(course: Course) -> bool:
    """Whether a loss has fallen by more than chance, and by a tenth at least."""
    fall = course.first - course.last
    return fall > max(0.1 * abs(course.first), 2.0 * course.doubt + course.noise)


def judge_course(course: Course | None, optimizers: int) -> list[Opinion]:
    """Whether a training on the real data learns.

    Args:
        course: of its losses.
        optimizers: that took steps.
    """
    if course is None:
        return [Opinion("not judged", "no loss was seen")]
    if not (math.isfinite(course.first) and math.isfinite(course.last)):
        return [Opinion("failed", f"the loss is not finite: {course.first:.4g} -> {course.last:.4g}")]
    if optimizers > 1:
        return [
            Opinion(
                "not judged",
                f"{optimizers} optimizers took steps, and losses that are trained in turn, or against each other, "
                "needn't fall",
            )
        ]
    if course.count < FEWEST_LOSSES:
        return [
            Opinion("not judged", f"{_counted(course.count, 'step')} can't show it; raise --steps or --max-seconds")
        ]
    rise = course.last - course.first
    if rise - 2.0 * course.doubt > (DIVERGED - 1.0) * max(abs(course.first), 2.0 * course.noise):
        return [
            Opinion("failed", f"the loss has risen from {course.first:.4g} to {course.last:.4g} instead of falling")
        ]
    if rise > -FALLEN * abs(course.first):
        return [
            Opinion(
                "look",
                f"the loss {'has hardly' if rise < 0 else 'has not'} fallen in {course.count} steps "
                f"({course.first:.4g} -> {course.last:.4g}): too few steps, a learning rate that is too low or too "
                "high, inputs that say nothing of the targets, or a loss that needn't fall, as of a policy gradient",
            )
        ]
    return []


def judge_validation(metrics: dict[str, float], course: Course | None) -> list[Opinion]:
    """What the metrics of the validation say."""
    bad = [name for name, value in metrics.items() if not math.isfinite(value)]
    if not bad:
        return []
    told = ", ".join(f"{name} {metrics[name]:.4g}" for name in bad)
    trained = course is not None and math.isfinite(course.last)
    return [
        Opinion("failed", f"the validation isn't finite ({told})" + (", though the training is" if trained else ""))
    ]


def judge_norms(
    kind: str, totals: Sequence[float], silent: Sequence[str], update: float | None, rises: bool
) -> list[Opinion]:
    """What is unusual of an optimiser's gradients over the first steps.

    Args:
        kind: class of the optimiser.
        totals: norm of all gradients as one vector, by step.
        silent: names of the parameters that want a gradient and whose gradient was zero at every step.
        update: median change of all weights by one step, as a share of them; None if unknown.
        rises: whether the loss does, meanwhile.
    """
    found: list[Opinion] = []
    finite = [value for value in totals if math.isfinite(value)]
    if len(finite) < len(totals):
        found.append(
            Opinion("failed", f"{len(totals) - len(finite)} of {len(totals)} gradients of {kind} aren't finite")
        )
    if not finite:
        return found
    middle = _median(finite)
    part = max(1, len(finite) // 4)
    start, end = _median(finite[:part]), _median(finite[-part:])
    if rises and start > 0 and end > GROWN * start:
        found.append(
            Opinion(
                "look",
                f"the norm of the gradients of {kind} grows from {start:.3g} to {end:.3g}, and the loss with it: "
                "steps that are too large, or batches that differ more and more",
            )
        )
    elif (jump := _jump(finite)) is not None:
        found.append(
            Opinion(
                "look",
                f"the norm of the gradients of {kind} jumps from {jump[0]:.3g} to {jump[1]:.3g}: clip the gradients, "
                "or look at the batch of that step",
            )
        )
    if middle >= LARGE_NORM:
        found.append(
            Opinion(
                "look",
                f"gradients of {kind} are large (median norm {middle:.3g}): a loss that is summed instead of averaged, "
                "or targets or inputs that aren't scaled",
            )
        )
    if middle < SMALL_NORM:
        found.append(Opinion("look", f"gradients of {kind} are nearly zero (median norm {middle:.3g})"))
    if update is not None and update > COARSE:
        found.append(
            Opinion(
                "look",
                f"one step of {kind} changes the weights by {100 * update:.0f} % of their size: the learning rate is "
                "probably too high",
            )
        )
    if silent:
        more = f" and {len(silent) - 4} more" if len(silent) > 4 else ""
        found.append(Opinion("look", f"no gradient reaches {', '.join(silent[:4])}{more} (held by {kind})"))
    return found


def _jump(norms: Sequence[float]) -> tuple[float, float] | None:
    """(median before it, norm) of the first norm that stands out from the latest before it."""
    for index in range(_LATEST, len(norms)):
        before = _median(norms[index - _LATEST : index])
        if before > 0 and norms[index] > SPIKE * before:
            return before, norms[index]
    return None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(_mean([(value - mean) ** 2 for value in values])) if math.isfinite(mean) else 0.0


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
