"""Records go to JSON and come back equal."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstuck.findings.finding import jsonable
from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy, Mark, Op, Units, Value
from unstuck.record.plain import from_plain, to_plain
from unstuck.record.series import Series


@dataclass
class Sample:
    name: str | None
    numbers: list[float]
    frames: tuple[Frame, ...]
    nested: dict[str, tuple[int, ...]]
    by_index: dict[int, float] = field(default_factory=dict)
    pair: tuple[int, str] = (0, "")
    either: int | str | None = None
    table: Series = field(default_factory=lambda: Series(1, kind="d"))


def through_json(record):
    return from_plain(type(record), json.loads(json.dumps(jsonable(to_plain(record)), allow_nan=False)))


@given(
    st.none() | st.text(),
    st.lists(st.floats(allow_nan=False)),
    st.dictionaries(st.text(), st.lists(st.integers()).map(tuple)),
    st.dictionaries(st.integers(), st.floats(allow_nan=False)),
    st.none() | st.integers() | st.sampled_from(["sum", "mean"]),
)
def test_every_kind_of_field_comes_back(name, numbers, nested, by_index, either):
    record = Sample(name, numbers, (Frame("a.py", 3, "f"),), nested, by_index, (3, "x"), either)
    assert {**vars(through_json(record)), "table": None} == {**vars(record), "table": None}


def test_series_and_numbers_that_are_not_finite_come_back():
    record = Sample("a", [float("inf"), float("-inf")], (), {})
    record.table.add(4, (2.5,))
    back = through_json(record)
    assert back.numbers == [float("inf"), float("-inf")]
    assert back.table.lasts(0) == [(4, 2.5)]


def test_a_whole_anatomy_comes_back():
    value = Value("self", (2, 3), "float32", op=None, leaf="batch", name="[0]", grad=False, low=0.0, high=float("inf"))
    op = Op(
        "relu", 0, "net", "ReLU", False, True, {"dim": 1}, (value,), (value,), units=Units("rectifier", 3, 1, 0.5, 2)
    )
    anatomy = Anatomy(0, 2, True, ((Frame("a.py", 1, "f"),),), (op,), (Mark("backward", 1, value=value),))
    assert through_json(anatomy) == anatomy


def test_unknown_fields_are_left_out_and_missing_ones_raise():
    assert from_plain(Frame, {"file": "a", "line": 1, "function": "f", "new": 1}) == Frame("a", 1, "f")
    with pytest.raises(TypeError):
        from_plain(Frame, {"file": "a"})
