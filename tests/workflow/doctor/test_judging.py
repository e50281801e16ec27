"""What the course of a loss and the norms of gradients say: failed where it is sure, look where it is unusual."""

from __future__ import annotations

import math
import random

import pytest

from unstuck.findings import Finding, Severity
from unstuck.workflow.doctor.judging import (
    course_of,
    has_clearly_fallen,
    is_rising,
    judge_course,
    judge_norms,
    judge_validation,
)
from unstuck.workflow.doctor.outcome import Opinion, concluded


def training(start: float, end: float, noise: float = 0.1, steps: int = 200) -> tuple[list[float], list[float]]:
    """Losses of ten batches before a training, and those of the training."""
    draw = random.Random(0)
    untrained = [start + draw.gauss(0.0, noise) for _ in range(10)]
    return untrained, [start + (end - start) * step / steps + draw.gauss(0.0, noise) for step in range(steps)]


@pytest.mark.parametrize(
    ("start", "end", "noise", "status"),
    [
        (2.3, 0.2, 0.1, None),
        (3.15, 36.0, 1.0, "failed"),
        (3.15, 36.0, 0.1, "failed"),
        (2.3, 3.9, 0.1, "look"),  # it rises, but a loss may
        (2.3, 2.3, 0.1, "look"),
        (2.3, 2.0, 0.1, None),
        (0.0, 0.3, 0.5, "look"),  # a policy gradient: noise around nothing
        (0.0, -0.3, 0.02, None),
        (-1.0, -3.0, 0.1, None),
        (1.0, math.nan, 0.1, "failed"),
        (1.0, math.inf, 0.1, "failed"),
    ],
)
def test_a_training_that_diverges_fails_and_one_that_stands_is_to_be_looked_at(
    start: float, end: float, noise: float, status: str | None
) -> None:
    told = judge_course(course_of(*training(start, end, noise)), 1)
    assert [item.status for item in told] == ([] if status is None else [status])


@pytest.mark.parametrize(("end", "told"), [(2.281, "has hardly fallen"), (2.316, "has not fallen"), (2.35, "has not")])
def test_a_loss_that_falls_a_little_is_said_to_have_hardly_fallen(end: float, told: str) -> None:
    (opinion,) = judge_course(course_of([2.316] * 10, [end] * 200), 1)
    assert opinion.status == "look"
    assert opinion.why.startswith(f"the loss {told}")
    assert f"(2.316 -> {end:.4g})" in opinion.why


def test_what_says_nothing_of_learning_is_not_judged() -> None:
    assert judge_course(None, 1)[0].status == "not judged"
    assert course_of([1.0], []) is None
    few = judge_course(course_of(*training(2.0, 0.1, steps=5)), 1)
    assert (few[0].status, "5 steps can't show it" in few[0].why) == ("not judged", True)
    assert "1 step can't" in judge_course(course_of(*training(2.0, 0.1, steps=1)), 1)[0].why
    several = judge_course(course_of(*training(2.0, 9.0)), 2)
    assert (several[0].status, "2 optimizers" in several[0].why) == ("not judged", True)


def test_a_fall_that_proves_something_is_more_than_noise() -> None:
    sure, noise = course_of(*training(2.3, 0.5)), course_of(*training(2.3, 2.1, 0.5))
    assert sure is not None and has_clearly_fallen(sure)
    assert noise is not None and not has_clearly_fallen(noise)
    assert is_rising([1.0, 1.0, 2.0, 3.0]) and not is_rising([2.0, 2.0, 1.0, 1.0]) and not is_rising([])


def statuses(
    totals: list[float], silent: tuple[str, ...] = (), update: float | None = None, rises: bool = False
) -> str:
    return "; ".join(f"{item.status}: {item.why}" for item in judge_norms("Adam", totals, silent, update, rises))


def test_usual_norms_are_in_order() -> None:
    assert statuses([1.0] * 50, update=0.02) == ""
    assert statuses([2.0 * 0.9**step for step in range(50)]) == ""  # a loss that is learnt: the largest comes first
    assert statuses([0.001 * 1.2**step for step in range(40)]) == ""  # from zero initial weights, while the loss falls


def test_unusual_norms_are_named() -> None:
    assert "grows from" in statuses([0.5 * 1.2**step for step in range(30)], rises=True)
    assert "jumps from 1 to 50" in statuses([1.0] * 20 + [50.0] + [1.0] * 20)
    assert "large (median norm 800)" in statuses([800.0] * 50)
    assert "nearly zero" in statuses([1e-9] * 50)
    assert "changes the weights by 70 %" in statuses([1.0] * 50, update=0.7)
    assert "no gradient reaches a, b, c, d and 1 more" in statuses([1.0] * 50, tuple("abcde"))
    assert statuses([1.0, math.inf]).startswith("failed: 1 of 2")


def test_a_validation_that_is_not_finite_fails() -> None:
    course = course_of(*training(2.0, 0.1))
    assert judge_validation({"val_loss": 0.3}, course) == []
    (told,) = judge_validation({"val_loss": math.nan, "val_acc": 0.9}, course)
    assert (told.status, told.why) == (
        "failed",
        "the validation isn't finite (val_loss nan), though the training is",
    )


def test_the_worst_of_findings_and_opinions_is_the_status() -> None:
    warning = Finding("model.dead-units", Severity.WARNING, "")
    error = Finding("optim.lr-too-low", Severity.ERROR, "")
    note = Finding("model.dead-units", Severity.INFO, "")
    look, failed, unjudged = Opinion("look", "x"), Opinion("failed", "y"), Opinion("not judged", "z")
    assert concluded("a", "b", "c").status == concluded("a", "b", "c", [note]).status == "ok"
    assert concluded("a", "b", "c", [], [unjudged]).status == "not judged"
    assert concluded("a", "b", "c", [warning], [unjudged]).status == "look"
    worst = concluded("a", "b", "c", [warning, error], [look, unjudged, failed])
    assert (worst.status, worst.why) == ("failed", "model.dead-units; optim.lr-too-low; x; y")
    assert worst.certain and not concluded("a", "b", "c", [warning], [failed]).certain
