"""Notices steps that a loss scaler skips, and asks whether they would be finite without its scale."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from unstuck.instruments.guard import Backward, Guard, Incident
from unstuck.places import user_chain

__all__ = ["SkippedSteps"]

_FREE = 3
"""Skipped steps that are examined whatever it costs; a scaler skips some at the start to find its scale."""

_SHARE = 0.01
"""Share of the run's time that examining later ones may take."""


class SkippedSteps:
    """The instrument.

    Args:
        guard: counts steps and knows the backward calls of the present one.
        examine: told of a skipped step and its scaler; returns whether it has found something, after which nothing is
            examined any more.
    """

    name = "skipped steps"

    def __init__(self, guard: Guard, examine: Callable[[Incident, Any], bool]) -> None:
        self._guard = guard
        self._examine = examine
        self._steps = 0
        self._window: tuple[Backward, ...] = ()
        self._tries = 0
        self._seconds = 0.0
        self._since = time.perf_counter()
        self._done = False

    def scaler_step_begins(self, scaler: Any, optimizer: Any, frame: FrameType) -> None:
        self._steps = self._guard.steps
        # an optimiser that skips by itself ends the guard's step
        self._window = self._guard.window

    def scaler_stepped(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        window, self._window = self._window, ()
        if self._done or self._guard.steps != self._steps or not window or not scaler.is_enabled():
            return
        now = time.perf_counter()
        if self._tries >= _FREE and self._seconds > _SHARE * (now - self._since):
            return
        self._tries += 1
        incident = self._guard.present("gradient", optimizer, window, user_chain(sys._getframe(1)))
        self._done = self._examine(incident, scaler)
        self._seconds += time.perf_counter() - now
