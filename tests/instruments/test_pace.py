"""Measurements are spaced so that they keep to their share of the time, whatever they cost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstuck.instruments.pace import Pace, share_of

FIRST = 4


def run(pace: Pace, cost: float, step: float, steps: int, later: float = 0.0) -> tuple[int, float]:
    """(measurements, seconds spent beyond the first ones) of a run with such steps."""
    taken, spent = 0, 0.0
    for _ in range(steps):
        if pace.due():
            taken += 1
            spent += (cost + later) if taken > FIRST else 0.0
            pace.spent(cost, step)
            pace.spent_later(later)
    return taken, spent


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 1e-2), st.floats(1e-4, 1e-1), st.floats(0.0, 1e-3))
def test_the_share_is_kept(cost: float, step: float, later: float) -> None:
    steps = 3000
    _, spent = run(Pace(FIRST), cost, step, steps, later)
    # the last measurement is paid for by steps that may not come any more
    assert spent <= share_of(step) * step * steps + 2 * (cost + later)


def test_what_is_cheap_is_measured_always_and_what_is_dear_seldom() -> None:
    assert run(Pace(FIRST), 1e-6, 0.1, 100)[0] == 100
    taken, _ = run(Pace(FIRST), 1e-3, 1e-2, 1000)
    assert taken == pytest.approx(FIRST + 1000 * share_of(1e-2) * 1e-2 / 1e-3, rel=0.1)
    assert run(Pace(FIRST, always=True), 1.0, 1e-3, 50)[0] == 50


def test_one_interruption_doesn_t_silence_it() -> None:
    pace = Pace(1)
    for _ in range(50):
        pace.due()
        pace.spent(1e-4, 1e-2)
    pace.spent(3.0, 1e-2)
    waited = 0
    while not pace.due():
        waited += 1
    assert waited < 20


def test_tiny_steps_may_give_a_larger_share() -> None:
    assert share_of(0.02) == share_of(5e-3) == 0.0025
    assert 0.0025 < share_of(3e-3) < share_of(1e-4) == 0.01
