"""The rules on learning trials: what they say of trials that learn, and what keeps them silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from unstuck.diagnosis import judge
from unstuck.diagnosis.rules import (
    optim_bad_hyperparameter,
    optim_lr_too_high,
    optim_lr_too_low,
    optim_schedule_collapse,
    optim_weight_decay,
)
from unstuck.diagnosis.suspicion import course_of, suspicions
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.gradients import OptimizerRecord
from unstuck.record.recording import Recording
from unstuck.record.schedules import ScheduleRecord
from unstuck.record.series import Series
from unstuck.record.trials import LearningTrial, LearningTrials

MADE = (Frame("/home/user/train.py", 10, "main"),)
STEPPED = (Frame("/home/user/train.py", 20, "main"),)


def trial(name: str, *losses: float, factor: float = 1.0, whole: bool = True, **changes: float) -> LearningTrial:
    steps = tuple(range(0, 16 * len(losses), 16))
    return LearningTrial(name, 0.1 * factor, factor, changes, steps, losses, losses[:-1], whole)


def recording(
    losses: Sequence[float],
    *trials: LearningTrial,
    rates: Sequence[float] = (0.1,),
    moved: float = 0.01,
    update: float = 1e-4,
    **settings: Any,
) -> Recording:
    """A run with these losses, spread over 200 steps, one optimiser and its trials."""
    made = Recording()
    record = OptimizerRecord(
        "SGD", {"lr": 0.1, **settings}, MADE, STEPPED, "model", ["weight"], [100], [2],
        norms=Series(3), rates=Series(1), updates=Series(2), weights=Series(2), steps=200, moved=[moved],
    )  # fmt: skip
    for step in range(200):
        made.add_loss(step, losses[step * len(losses) // 200])
        record.rates.add(step, (rates[step * len(rates) // 200],))
        record.norms.add(step, (1.0, 1.0, 1.0))
        record.updates.add(step, (update, update))
        record.weights.add(step, (1.0, 1.0))
    made.flush()
    made.optimizers.append(record)
    if trials:
        made.keep(LearningTrials(0, ("flat",), 24, 8, 64, trials))
    return made


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    assert found[0].confirmed
    assert len(found[0].evidence["curves"]) >= 1
    return found[0]


FLAT = (2.3, 2.29, 2.28, 2.28)


def test_a_smaller_rate_that_learns_is_a_rate_too_high() -> None:
    run = recording((2.3, 2.5, 2.2, 2.4), trial("own", 2.3, 2.6, 2.5), trial("rate x 0.1", 2.3, 1.5, 0.9, factor=0.1))
    found = only(optim_lr_too_high.rule(run))
    assert found.severity is Severity.ERROR
    assert found.where.line == 10
    assert found.evidence["smaller lr"] == pytest.approx(0.01)
    assert list(found.evidence["curves"]) == ["own", "rate x 0.1"]
    assert [item.code for item in judge(run)] == ["optim.lr-too-high"]


@pytest.mark.parametrize(
    ("losses", "own", "smaller"),
    [
        pytest.param((2.3, 1.0, 0.6, 0.5), (2.3, 2.6, 2.5), (2.3, 1.5, 0.9), id="the run has learned more"),
        pytest.param(FLAT, (2.3, 1.9, 1.4), (2.3, 1.5, 0.9), id="its own rate learns as well"),
        pytest.param(FLAT, (2.3, 2.6, 2.5), (2.3, 2.25, 2.2), id="the smaller rate gains next to nothing"),
        pytest.param(FLAT, (2.3, 2.6, 2.5), (2.3, 0.9, 2.1), id="the smaller rate loses it again"),
    ],
)
def test_no_rate_too_high(losses: Sequence[float], own: Sequence[float], smaller: Sequence[float]) -> None:
    run = recording(losses, trial("own", *own), trial("rate x 0.1", *smaller, factor=0.1))
    assert optim_lr_too_high.rule(run) == []


def test_a_trial_that_ran_away_has_learned_nothing() -> None:
    own = trial("own", 2.3, 9e9, whole=False)
    run = recording(FLAT, own, replace(trial("rate x 0.1", 2.3, 0.5, factor=0.1), whole=False))
    assert optim_lr_too_high.rule(run) == []


def test_a_rate_of_zero_needs_no_trial() -> None:
    (found,) = optim_lr_too_low.rule(recording(FLAT, rates=(0.0,), moved=0.0))
    assert (found.severity, found.where.line, found.evidence["lr"]) == (Severity.ERROR, 10, 0.0)
    assert optim_lr_too_low.rule(recording(FLAT, rates=(0.0, 0.1), moved=0.0)) == []
    assert optim_lr_too_low.rule(recording(FLAT, rates=(0.0,), moved=0.01)) == []


def test_a_larger_rate_that_learns_is_a_rate_too_low() -> None:
    run = recording(FLAT, trial("own", 2.3, 2.299, 2.298), trial("rate x 100", 2.3, 1.5, 0.9, factor=100.0))
    found = only(optim_lr_too_low.rule(run))
    assert found.evidence["larger lr"] == pytest.approx(10.0)
    assert found.where.line == 10


@pytest.mark.parametrize(
    ("losses", "moved"),
    [
        pytest.param(FLAT, 0.6, id="the weights have moved"),
        pytest.param((2.3, 1.9, 1.7, 1.6), 0.01, id="the run has gained a good part of it"),
        pytest.param((2.3, 2.6, 2.8, 2.9), 0.01, id="the loss has risen"),
        pytest.param((0.5, -0.4, 0.5, 0.4), 0.01, id="the loss changes its sign"),
    ],
)
def test_no_rate_too_low(losses: Sequence[float], moved: float) -> None:
    trials = trial("own", 2.3, 2.299, 2.298), trial("rate x 100", 2.3, 1.5, 0.9, factor=100.0)
    assert optim_lr_too_low.rule(recording(losses, *trials, moved=moved)) == []


def test_usual_settings_that_learn_fold_the_rate() -> None:
    run = recording(
        FLAT,
        trial("own", 2.3, 2.3, 2.3),
        trial("usual settings", 2.3, 1.5, 0.9, momentum=0.9),
        trial("rate x 10", 2.3, 1.5, 0.9, factor=10.0),
        momentum=0.9999,
    )
    found = only(optim_bad_hyperparameter.rule(run))
    assert "momentum=0.9999" in found.summary and "momentum=0.9" in found.remedy
    first, *rest = judge(run)
    assert first.code == "optim.bad-hyperparameter" and first.symptoms == ("optim.lr-too-low",) and not rest


def test_no_decay_that_learns() -> None:
    run = recording(FLAT, trial("own", 2.3, 2.3, 2.3), trial("no weight decay", 2.3, 1.0, 0.5), weight_decay=0.5)
    assert "0.5" in only(optim_weight_decay.rule(run)).summary
    learned = recording((2.3, 1, 0.4, 0.3), *run.all(LearningTrials)[0].trials, weight_decay=0.5)
    assert optim_weight_decay.rule(learned) == []


def schedule(run: Recording, **values: Any) -> Recording:
    run.keep(ScheduleRecord("StepLR", {"step_size": 5, "gamma": 0.1}, MADE, STEPPED, 0, **values))
    return run


@pytest.mark.parametrize(
    ("calls", "epochs", "line"),
    [pytest.param(200, 10, 20, id="moved after every batch"), pytest.param(20, 20, 10, id="moved per epoch")],
)
def test_a_rate_that_is_gone(calls: int, epochs: int, line: int) -> None:
    run = recording(FLAT, trial("own", 2.3, 1.5, 0.9), rates=(0.1, 1e-3, 1e-4, 1e-5))
    schedule(run, calls=calls, steps=200, epochs=epochs, highest=0.1)
    found = only(optim_schedule_collapse.rule(run))
    assert found.where.line == line
    assert found.where.step == 50


def test_a_rate_that_is_gone_late_or_after_the_loss() -> None:
    late = recording(FLAT, trial("own", 2.3, 1.5, 0.9), rates=(0.1, 0.1, 0.1, 1e-5))
    assert optim_schedule_collapse.rule(schedule(late, calls=20, steps=200, epochs=20, highest=0.1)) == []
    learned = recording((2.3, 0.9, 0.8, 0.8), trial("own", 2.3, 1.5, 0.9), rates=(0.1, 1e-3, 1e-4, 1e-5))
    assert optim_schedule_collapse.rule(schedule(learned, calls=20, steps=200, epochs=20, highest=0.1)) == []


def test_a_rate_that_never_comes() -> None:
    asked = trial("the rate that was asked for", 2.3, 1.0, 0.5, factor=100.0)
    run = recording(FLAT, trial("own", 2.3, 2.29, 2.28), asked, rates=(1e-5, 1e-4, 2e-4, 3e-4))
    found = only(optim_schedule_collapse.rule(schedule(run, calls=200, steps=200, epochs=5, highest=0.1)))
    assert found.where.line == 10 and found.evidence["asked for"] == 0.1


def test_what_is_suspected() -> None:
    assert suspicions(recording((2.3, 1.0, 0.3, 0.1), update=1e-3), 0) == ()
    assert "flat" in suspicions(recording(FLAT), 0)
    assert "jumps" in suspicions(recording((2.3, 30.0, 2.2, 2.4)), 0)
    assert "small steps" in suspicions(recording((2.3, 2.0, 1.8, 1.6), update=1e-5), 0)
    assert "schedule" in suspicions(recording((2.3, 2.0, 1.8, 1.6), rates=(0.1, 0.01, 1e-3, 1e-4)), 0)
    run = recording((2.3, 2.0, 1.8, 1.6))
    run.optimizers[0].kind, run.optimizers[0].settings = "Adam", {"lr": 0.1, "eps": 0.1, "betas": (0.9, 0.999)}
    assert "settings" in suspicions(run, 0)


def test_the_course_of_an_optimizer_begins_with_it() -> None:
    run = recording((5.0, 1.0, 0.9, 0.8))
    course = course_of(run, since=50)
    assert course is not None and course.first == 1.0 and course.steps == 150
