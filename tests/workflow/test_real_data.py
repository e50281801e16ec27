"""Verdict and cause of the overfit test on real data: a handful of the cases that the benchmark runs all of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from benchmarks.overfit_verdicts import CASES, Case, run_case


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


_CHOSEN = {
    ("digits", "zero init"),
    ("digits", "blank inputs"),
    ("digits", "conflicting labels"),
    ("digits", "rate far too high"),
    ("breast_cancer", "wrong sign"),
    ("breast_cancer", "gradient descent far too fast"),
    ("breast_cancer", "another models parameters"),
    ("breast_cancer", "sigmoid before loss"),
    ("diabetes", "shuffled targets"),
    ("diabetes", "tiny loss"),
    ("diabetes", "detached body"),
    ("diabetes", "relu at the end"),
    ("diabetes", "broadcast target"),
    ("diabetes", "huge weight decay"),
    ("wine", "nan in an input"),
    ("wine", "frozen body"),
    ("wine", "dead units"),
}
_QUICK = [case for case in CASES if case.variant == "sound" or (case.data, case.variant) in _CHOSEN]


@pytest.mark.parametrize("case", _QUICK, ids=[f"{case.data}: {case.variant}" for case in _QUICK])
def test_verdict_and_cause_are_right(case: Case) -> None:
    row = run_case(case, seed=1)
    assert row.verdict_right, row.result
    assert row.cause_right, row.result


def test_every_set_has_a_sound_model_and_ten_faults() -> None:
    by_set = {data: [case.variant for case in CASES if case.data == data] for data in {case.data for case in CASES}}
    assert len(by_set) == 5
    assert all(variants[0] == "sound" and len(set(variants)) == 11 for variants in by_set.values())
    assert {(case.data, case.variant) for case in CASES} >= _CHOSEN


def test_no_rate_is_said_to_learn_where_the_loss_has_the_wrong_sign() -> None:
    case = next(case for case in CASES if case.variant == "wrong sign")
    result = run_case(case).result
    assert result.verdict == "not memorised"
    assert result.best_rate is None
    assert result.rates == ()


def test_the_rate_that_learns_is_told_after_a_rate_that_drives_the_loss_up() -> None:
    case = next(case for case in CASES if case.variant == "gradient descent far too fast")
    result = run_case(case).result
    assert result.best_rate is not None
    assert 1e-3 <= result.best_rate <= 100.0
