"""Notes learning-rate schedules: what they are set to, where they are made and moved, and how often."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from unstuck.instruments.guard import Guard
from unstuck.places import user_chain
from unstuck.record.recording import Recording
from unstuck.record.schedules import ScheduleRecord

__all__ = ["Schedules"]

_MOST = 32
"""Schedules that are noted."""


class _Followed:
    def __init__(self, record: ScheduleRecord, scheduler: Any, steps: int, epochs: int) -> None:
        self.record = record
        self.scheduler = weakref.ref(scheduler)
        self.optimizer = weakref.ref(scheduler.optimizer)
        self.steps = steps
        self.epochs = epochs


class Schedules:
    """The instrument.

    Args:
        recording: where they are noted.
        guard: counts optimiser steps.
        index_of: number of an optimiser in the recording, None if it has none.
    """

    name = "schedules"

    def __init__(
        self, recording: Recording, guard: Guard, index_of: Callable[[torch.optim.Optimizer], int | None]
    ) -> None:
        self._recording = recording
        self._guard = guard
        self._index_of = index_of
        self._followed: dict[int, _Followed] = {}
        self._epochs = 0
        self._fresh = False
        self._passes = 0

    def epoch_begins(self, iterator: Any, loader: Any) -> None:
        self._count_epoch()
        self._fresh, self._passes = True, self._guard.passes

    def _count_epoch(self) -> None:
        """An iteration counts once a pass has been made since it began."""
        if self._fresh and self._guard.passes > self._passes:
            self._fresh = False
            self._epochs += 1

    def schedule_created(self, scheduler: Any, frame: FrameType) -> None:
        if len(self._followed) < _MOST and isinstance(getattr(scheduler, "optimizer", None), torch.optim.Optimizer):
            self._follow(scheduler).made_at = user_chain(frame)

    def schedule_stepped(self, scheduler: Any) -> None:
        known = self._followed.get(id(scheduler))
        if known is None or known.scheduler() is not scheduler:
            return
        record = known.record
        record.calls += 1
        if record.optimizer is None:
            optimizer = known.optimizer()
            record.optimizer = None if optimizer is None else self._index_of(optimizer)
        if not record.step_at:
            record.step_at = user_chain(sys._getframe())

    def run_ends(self) -> None:
        self._count_epoch()
        for known in self._followed.values():
            known.record.steps = self._guard.steps - known.steps
            known.record.epochs = self._epochs - known.epochs

    def _follow(self, scheduler: Any) -> ScheduleRecord:
        self._count_epoch()
        rates = [float(group.get("initial_lr", group["lr"])) for group in scheduler.optimizer.param_groups]
        record = ScheduleRecord(type(scheduler).__name__, _settings(scheduler), highest=max(rates, default=0.0))
        self._followed[id(scheduler)] = _Followed(record, scheduler, self._guard.steps, self._epochs)
        self._recording.keep(record)
        return record


def _settings(scheduler: Any) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for name, value in vars(scheduler).items():
        if name.startswith("_") or name in ("last_epoch", "num_bad_epochs", "cooldown_counter", "best"):
            continue
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            found[name] = value
        elif name == "milestones" and value:
            found["first_milestone"] = float(min(value))
            found["last_milestone"] = float(max(value))
    return found
