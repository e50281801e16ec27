"""Ends a run after a number of optimiser steps."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["StepLimit"]


class StepLimit:
    """The instrument; counts completed calls of ``step`` over all optimisers.

    Args:
        limit: number of steps.
        done: called after the last one; it may raise to stop the run.
    """

    name = "step limit"

    def __init__(self, limit: int, done: Callable[[], None]) -> None:
        self._left = limit
        self._done = done

    def step_ended(self, optimizer: Any, frame: FrameType) -> None:
        self._left -= 1
        if self._left <= 0:
            self._done()
