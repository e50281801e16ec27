"""Losses reach the recording, and a jump is told before its gradients are computed."""

from __future__ import annotations

import math

import torch

from unstuck.instruments.guard import Guard
from unstuck.instruments.losses import Losses
from unstuck.instruments.moments import Moments
from unstuck.record.recording import Recording


def jumps(values: list[float]) -> list[int]:
    """At which of the losses a jump was told."""
    told: list[int] = []
    recording = Recording()
    guard = Guard(Moments(), lambda incident: None)
    losses = Losses(recording, guard, lambda: told.append(step))
    for step, value in enumerate(values):  # noqa: B007 - read by the function above
        guard.present_loss = value
        losses.backward_begins((torch.tensor(value),), None)  # type: ignore[arg-type]
    recording.close()
    assert [value for _, value in recording.losses] == values or any(map(math.isnan, values))
    return told


def test_a_jump_is_told_and_a_slow_rise_is_not() -> None:
    assert jumps([1.0] * 50 + [9.0] + [1.0] * 20) == [50]
    assert jumps([1.0 + 0.01 * step for step in range(300)]) == []
    assert jumps([-1.0] * 50 + [-9.0]) == [50]


def test_growth_that_goes_on_is_told_again_and_again() -> None:
    told = jumps([1.0] * 50 + [1.5**step for step in range(30)])
    assert len(told) > 20 and told == list(range(told[0], 80))


def test_what_is_not_finite_is_no_jump_and_spoils_nothing() -> None:
    assert jumps([1.0] * 20 + [math.inf, math.nan] + [1.0] * 20 + [9.0]) == [42]


def test_a_loss_that_begins_at_zero() -> None:
    assert jumps([0.0] * 10 + [1.0] * 10 + [9.0]) == [20]
