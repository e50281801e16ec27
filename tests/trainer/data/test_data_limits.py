"""Reading limits and resolving them against loaders."""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstuck.errors import MisconfigurationException
from unstuck.trainer.data.limits import (
    Overfit,
    describe_limit,
    parse_batch_limits,
    parse_fast_dev_run,
    parse_limit,
    parse_num_sanity_val_steps,
    parse_overfit_batches,
    parse_val_check_interval,
    resolve_limit,
    resolve_val_check_interval,
    smallest_fraction,
)

LIMIT_KEYWORDS = [
    "limit_train_batches",
    "limit_val_batches",
    "limit_test_batches",
    "limit_predict_batches",
    "overfit_batches",
    "val_check_interval",
]


@given(st.integers(0, 10**9))
def test_a_whole_number_is_a_number_of_batches(number: int) -> None:
    parsed = parse_limit("limit_train_batches", number)
    assert parsed == number
    assert type(parsed) is int


@given(st.floats(0.0, 1.0))
def test_a_float_up_to_one_is_a_fraction(fraction: float) -> None:
    parsed = parse_limit("limit_train_batches", fraction)
    assert parsed == fraction
    assert type(parsed) is float


@given(st.integers(2, 10**6))
def test_a_whole_float_above_one_is_a_number(number: int) -> None:
    parsed = parse_limit("limit_train_batches", float(number))
    assert parsed == number
    assert type(parsed) is int


@given(
    st.one_of(
        st.integers(max_value=-1),
        st.floats(max_value=-1e-300, allow_nan=False),
        st.floats(min_value=1.0, exclude_min=True).filter(lambda x: not x.is_integer()),
        st.just(math.nan),
        st.text(),
        st.just([1]),
        st.just(1j),
    ),
    st.sampled_from(LIMIT_KEYWORDS[:-1]),
)
def test_everything_else_is_refused_naming_the_argument(value: object, name: str) -> None:
    with pytest.raises(MisconfigurationException, match=name) as caught:
        parse_batch_limits(**{name: value})
    assert "the smallest that uses the loader is 1" in str(caught.value)


@pytest.mark.parametrize("value", [-1, 2.5, math.nan, math.inf, -0.5])
def test_a_bad_interval_is_refused(value: float) -> None:
    with pytest.raises(MisconfigurationException, match="val_check_interval"):
        parse_batch_limits(val_check_interval=value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, 1.0), (True, 1), (False, 0), (np.int64(3), 3), (np.float32(0.5), 0.5), (Fraction(1, 2), 0.5)],
)
def test_other_number_types_are_read(value: object, expected: float) -> None:
    parsed = parse_limit("limit_val_batches", value)
    assert parsed == expected
    assert type(parsed) is type(expected)


@given(st.floats(0.0, 1.0), st.integers(1, 5000))
def test_one_rule_for_fractions(fraction: float, length: int) -> None:
    expected = int(length * fraction)
    if fraction > 0 and expected == 0:
        with pytest.raises(MisconfigurationException, match="limit_val_batches") as caught:
            resolve_limit(fraction, length, name="limit_val_batches", loader="val_dataloader[1]")
        message = str(caught.value)
        assert "val_dataloader[1]" in message
        assert str(length) in message
        assert str(smallest_fraction(length)) in message
    else:
        assert resolve_limit(fraction, length, name="limit_val_batches", loader="val_dataloader") == expected


@given(st.integers(1, 10**7))
def test_the_smallest_fraction_is_valid_and_the_smallest(length: int) -> None:
    smallest = smallest_fraction(length)
    assert int(length * smallest) == 1
    assert int(length * math.nextafter(smallest, 0.0)) == 0


@given(st.integers(0, 1000), st.one_of(st.integers(0, 1000), st.just(math.inf)))
def test_a_number_is_capped_by_the_length(limit: int, length: float) -> None:
    assert resolve_limit(limit, length, name="limit_train_batches", loader="train_dataloader") == min(limit, length)


def test_a_loader_without_length_takes_no_fraction() -> None:
    def resolve(limit: float) -> float:
        return resolve_limit(limit, math.inf, name="overfit_batches", loader="train_dataloader['a']")

    assert resolve(1.0) == math.inf
    assert resolve(0.0) == 0
    assert resolve(4) == 4
    with pytest.raises(MisconfigurationException, match="overfit_batches") as caught:
        resolve(0.5)
    assert "train_dataloader['a']" in str(caught.value)
    assert "no length" in str(caught.value)
    assert "smallest that uses the loader is 1" in str(caught.value)


def test_one_and_one_point_zero_are_told_apart() -> None:
    notes = parse_batch_limits(
        limit_train_batches=1,
        limit_val_batches=1.0,
        limit_test_batches=2,
        limit_predict_batches=0.5,
        val_check_interval=1,
    ).notes
    assert len(notes) == 3
    assert notes[0].startswith("`Trainer(limit_train_batches=1)`")
    assert "1 batch per epoch" in notes[0]
    assert notes[1].startswith("`Trainer(limit_val_batches=1.0)`")
    assert "100%" in notes[1]
    assert "after every training batch" in notes[2]
    assert "end of the training epoch" in (describe_limit("val_check_interval", 1.0) or "")
    assert parse_batch_limits().notes == ()


def test_overfit_sets_train_and_val_only() -> None:
    limits = parse_batch_limits(overfit_batches=3, limit_test_batches=5, limit_predict_batches=0.25)
    assert (limits.train, limits.val, limits.test, limits.predict) == (3, 3, 5, 0.25)
    assert limits.overfit == Overfit(3)
    assert limits.notes == ()


def test_zero_overfit_is_off() -> None:
    for off in (0, 0.0, None, False, Overfit(0)):
        limits = parse_batch_limits(overfit_batches=off)
        assert limits.overfit is None
        assert limits.train == limits.val == 1.0


@pytest.mark.parametrize("off", [0, 0.0, False])
def test_an_explicit_zero_keeps_validation_off_while_overfitting(off: float) -> None:
    assert parse_batch_limits(overfit_batches=2, limit_val_batches=off).val == 0


def test_overfit_tells_what_it_overrules() -> None:
    limits = parse_batch_limits(overfit_batches=2, limit_train_batches=7, limit_val_batches=0.5)
    assert (limits.train, limits.val) == (2, 2)
    (note,) = limits.notes
    assert "overrules `limit_train_batches` and `limit_val_batches`" in note


def test_overfit_options_are_checked() -> None:
    assert parse_overfit_batches(Overfit(2.0, order="replay")) == Overfit(2, order="replay")
    with pytest.raises(MisconfigurationException, match="order='backwards'"):
        parse_overfit_batches(Overfit(2, order="backwards"))  # type: ignore[arg-type]
    with pytest.raises(MisconfigurationException, match="validate_on='test'"):
        parse_overfit_batches(Overfit(2, validate_on="test"))  # type: ignore[arg-type]
    with pytest.raises(MisconfigurationException, match="overfit_batches=-2"):
        parse_overfit_batches(Overfit(-2))


def test_a_dry_run_sets_every_limit() -> None:
    limits = parse_batch_limits(
        fast_dev_run=2,
        limit_train_batches=7,
        limit_val_batches=0,
        limit_test_batches=0.5,
        val_check_interval=5,
        num_sanity_val_steps=3,
    )
    assert (limits.train, limits.val, limits.test, limits.predict) == (2, 2, 2, 2)
    assert limits.sanity == 0
    assert limits.val_check_interval == 1.0
    assert limits.fast_dev_run == 2
    assert parse_batch_limits(fast_dev_run=True).train == 1
    assert parse_batch_limits(fast_dev_run=False).fast_dev_run == 0


def test_a_dry_run_of_an_overfit_run_is_no_longer_than_both() -> None:
    overfit = parse_batch_limits(fast_dev_run=2, overfit_batches=5).overfit
    assert overfit == Overfit(2)
    overfit = parse_batch_limits(fast_dev_run=2, overfit_batches=0.5).overfit
    assert overfit == Overfit(2)


@pytest.mark.parametrize("value", [-1, 0.5, math.nan, math.inf, "3"])
def test_a_dry_run_takes_whole_numbers(value: object) -> None:
    with pytest.raises(MisconfigurationException, match="fast_dev_run"):
        parse_fast_dev_run(value)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, 2), (-1, math.inf), (math.inf, math.inf), (0, 0), (False, 0), (5, 5), (2.0, 2)]
)
def test_sanity_steps(value: object, expected: float) -> None:
    assert parse_num_sanity_val_steps(value) == expected


@pytest.mark.parametrize("value", [-2, 0.5, math.nan, "all"])
def test_bad_sanity_steps(value: object) -> None:
    with pytest.raises(MisconfigurationException, match="num_sanity_val_steps"):
        parse_num_sanity_val_steps(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, 1.0),
        (3, 3),
        (0.25, 0.25),
        (timedelta(minutes=2), timedelta(minutes=2)),
        ({"minutes": 2}, timedelta(minutes=2)),
        ("01:02:03:04", timedelta(days=1, hours=2, minutes=3, seconds=4)),
    ],
)
def test_intervals(value: object, expected: object) -> None:
    assert parse_val_check_interval(value) == expected


@pytest.mark.parametrize("value", ["1:2", "x", "00:00:00:00", timedelta(seconds=-1), {"parsecs": 3}])
def test_bad_times(value: object) -> None:
    with pytest.raises(MisconfigurationException, match="val_check_interval"):
        parse_val_check_interval(value)


def test_an_interval_over_epochs_is_no_fraction() -> None:
    assert parse_val_check_interval(5, None) == 5
    assert parse_val_check_interval("00:01:00:00", None) == timedelta(hours=1)
    with pytest.raises(MisconfigurationException, match="check_val_every_n_epoch=None"):
        parse_batch_limits(val_check_interval=0.5, check_val_every_n_epoch=None)
    with pytest.raises(MisconfigurationException, match="check_val_every_n_epoch"):
        parse_batch_limits(check_val_every_n_epoch=1.5)


def test_interval_in_batches() -> None:
    assert resolve_val_check_interval(0.5, 10) == 5
    assert resolve_val_check_interval(0.01, 10) == 1
    assert resolve_val_check_interval(1.0, 7) == 7
    assert resolve_val_check_interval(1.0, math.inf) == math.inf
    assert resolve_val_check_interval(4, math.inf) == 4
    assert resolve_val_check_interval(timedelta(seconds=1), 10) is None
    with pytest.raises(ValueError, match="val_check_interval=11"):
        resolve_val_check_interval(11, 10)
    assert resolve_val_check_interval(11, 10, every_n_epochs=None) == 11
    assert resolve_val_check_interval(11, 10, validates=False) == 11
    with pytest.raises(MisconfigurationException, match="val_check_interval"):
        resolve_val_check_interval(0.5, math.inf)
