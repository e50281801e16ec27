"""Loss scaling in manual optimisation, where a Trainer's user scales, clips and steps by his own hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from unstuck.diagnosis.rules import numerics_amp_order, numerics_scaler_stuck
from unstuck.instruments.guard import Backward, Guard, Incident
from unstuck.places import user_chain
from unstuck.record.recording import Recording
from unstuck.session.incident_desk import IncidentDesk

__all__ = ["PATIENCE", "Scaling"]

PATIENCE = 8
"""Steps that a loss scaler skips in a row before it is asked why: it searches for its scale by skipping."""

_LOOKS = (4, 16, 64, 256)
"""Scaled losses after which what was done to scaled gradients is judged, and at the end."""


class Scaling:
    """The instrument: tells why a scaler goes on skipping, and of gradients that are used while they are scaled.

    Args:
        guard: counts steps and knows the backward calls of the present one.
        recording: what the clipping's instrument writes.
        desk: tells the user.
        examine: what isn't finite in a skipped step whose losses aren't scaled, told to the user; whether there was
            something.
    """

    name = "scaling"

    def __init__(
        self, guard: Guard, recording: Recording, desk: IncidentDesk, examine: Callable[[Incident, Any], bool]
    ) -> None:
        self._guard = guard
        self._recording = recording
        self._desk = desk
        self._examine = examine
        self._steps = 0
        self._window: tuple[Backward, ...] = ()
        self._in_row: dict[int, int] = {}
        self._scaled = 0
        self._told: set[str] = set()

    def loss_scaled(self, scaler: Any, frame: FrameType) -> None:
        self._scaled += 1
        if self._scaled - 1 in _LOOKS:
            self.judge()

    def scaler_step_begins(self, scaler: Any, optimizer: Any, frame: FrameType) -> None:
        self._steps, self._window = self._guard.steps, self._guard.window

    def scaler_stepped(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        window, self._window = self._window, ()
        if self._guard.steps != self._steps:
            self._in_row.pop(id(optimizer), None)
            return
        in_row = self._in_row[id(optimizer)] = self._in_row.get(id(optimizer), 0) + 1
        stuck = numerics_scaler_stuck.CODE
        if not window or not scaler.is_enabled() or stuck in self._told:
            return
        if in_row in (PATIENCE, numerics_scaler_stuck.LONG_RUN):
            incident = self._guard.present("gradient", optimizer, window, user_chain(sys._getframe(1)))
            if self._examine(incident, scaler):
                self._told.add(stuck)  # which it explains

    def judge(self) -> None:
        """Tell of what is known by now, each code once."""
        for rule in (numerics_amp_order, numerics_scaler_stuck):
            if rule.CODE in self._told:
                continue
            for finding in rule.rule(self._recording)[:1]:
                self._told.add(rule.CODE)
                self._desk.tell(finding, None)
