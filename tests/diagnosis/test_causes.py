"""The table of causes names every code once and explains in one direction only."""

from __future__ import annotations

from graphlib import TopologicalSorter

from unstuck.diagnosis.causes import EXPLAINS, ORDER, depth
from unstuck.findings import CODES


def test_every_code_outside_distributed_has_one_place():
    assert sorted(ORDER) == sorted(code for code in CODES if not code.startswith("distributed."))


def test_no_cause_explains_itself_through_others():
    order = list(TopologicalSorter({cause: set(symptoms) for cause, symptoms in EXPLAINS.items()}).static_order())
    assert set(EXPLAINS) <= set(order)


def test_an_unlisted_code_comes_last():
    assert depth("distributed.duplicate-data") > max(depth(code) for code in ORDER)
