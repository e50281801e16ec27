"""The bounded table against a slow twin that keeps everything."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstuck.record.series import Series, Thinner

values = st.one_of(st.floats(-1024.0, 1024.0, width=32), st.sampled_from([math.nan, math.inf, -math.inf, 0.0]))
tables = st.integers(1, 3).flatmap(
    lambda columns: st.lists(st.lists(values, min_size=columns, max_size=columns), min_size=1, max_size=120)
)


def known(column: list[float]) -> list[float]:
    return [value for value in column if not math.isnan(value)]


def check(buckets: list, rows: list[list[float]]) -> None:
    """Every bucket tells the truth about the rows that it stands for, and together they stand for all."""
    start = 0
    for bucket in buckets:
        part = rows[start : start + bucket.count]
        assert (bucket.start, bucket.end) == (10 * start, 10 * (start + bucket.count - 1))
        for index, column in enumerate(zip(*part, strict=True)):
            have = known(list(column))
            told = [bucket.low[index], bucket.high[index], bucket.last[index]]
            if have:
                assert told == [min(have), max(have), have[-1]]
            else:
                assert all(math.isnan(value) for value in told)
        start += bucket.count
    assert start == len(rows)


@settings(max_examples=60, deadline=None)
@given(tables, st.integers(4, 16))
def test_buckets_summarise_what_was_added(rows: list[list[float]], capacity: int) -> None:
    series = Series(len(rows[0]), capacity, "d")
    for index, row in enumerate(rows):
        series.add(10 * index, row)
        assert len(series) <= capacity
    check(series.buckets, rows)
    newest = min(len(rows), capacity // 2)
    assert all(bucket.count == 1 for bucket in series.buckets[-newest:])


@settings(max_examples=40, deadline=None)
@given(tables, st.integers(4, 16), st.integers(0, 1300))
def test_a_cut_table_knows_nothing_of_later_steps(rows: list[list[float]], capacity: int, step: int) -> None:
    series = Series(len(rows[0]), capacity, "d")
    for index, row in enumerate(rows):
        series.add(10 * index, row)
    cut = series.cut(step)
    check(cut.buckets, rows[: sum(bucket.count for bucket in cut.buckets)])
    assert all(bucket.end < step for bucket in cut.buckets)
    left = series.buckets[len(cut)] if len(cut) < len(series) else None
    assert left is None or left.end >= step


@settings(max_examples=40, deadline=None)
@given(tables, st.integers(4, 8), st.sampled_from("fd"))
def test_a_table_survives_its_json_bit_for_bit(rows: list[list[float]], capacity: int, kind: str) -> None:
    series = Series(len(rows[0]), capacity, kind)
    for index, row in enumerate(rows):
        series.add(10 * index, row)
    again = Series.decode(json.loads(json.dumps(series.encode(), allow_nan=False)))
    assert again.encode() == series.encode()
    assert [bucket.count for bucket in again] == [bucket.count for bucket in series]


@settings(max_examples=40, deadline=None)
@given(tables, st.integers(4, 8))
def test_what_goes_to_disk_is_small_and_true(rows: list[list[float]], capacity: int) -> None:
    series, thinner = Series(len(rows[0]), 1000, "d"), Thinner(len(rows[0]), capacity, "d")
    written = []
    for index, row in enumerate(rows):
        thinner.add(series.add(10 * index, row))
        if index % 7 == 0 and (block := thinner.take()) is not None:
            written += block.buckets
    block = thinner.take()
    written += [] if block is None else block.buckets
    check(written, rows[: sum(bucket.count for bucket in written)])
    assert len(written) <= capacity * (2 + math.log2(max(1, len(rows) / capacity)))


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="3 columns, the row 2"):
        Series(3).add(0, [1.0, 2.0])


def test_columns_are_read_where_they_have_values() -> None:
    series = Series(2, 4)
    for step in range(6):
        series.add(step, [float(step), math.nan if step < 4 else 1.0])
    assert series.lasts(1) == [(4, 1.0), (5, 1.0)]
    assert series.highs(0)[0] == (0, 2.0) and series.highs(0)[-1] == (5, 5.0)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.integers(4, 64))
def test_many_numbers_at_once_are_those_one_by_one(blocks: list[int], capacity: int) -> None:
    at_once, one_by_one = Series(1, capacity, kind="d"), Series(1, capacity, kind="d")
    step = 0
    for length in blocks:
        numbers = [(step + index, math.sin(step + index)) for index in range(length)]
        step += length
        at_once.add_numbers(numbers)
        for number in numbers:
            one_by_one.add(number[0], number[1:])
    for table in (at_once, one_by_one):
        assert len(table) <= table.capacity
        assert sum(item.count for item in table) == step
        assert all(before.end < after.start for before, after in itertools.pairwise(table))
    assert [item.last[0] for item in at_once][-1:] == [item.last[0] for item in one_by_one][-1:]
    assert max((item.high[0] for item in at_once), default=0) == max((item.high[0] for item in one_by_one), default=0)
