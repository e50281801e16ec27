"""Writes every scalar loss into the recording, and tells when one jumps."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from types import FrameType
from typing import Any

from unstuck.instruments.guard import Guard
from unstuck.record.recording import Recording

__all__ = ["Losses"]

_JUMP = 4.0
"""A loss so many times the usual size has jumped."""

_FOLLOWS = 0.02
"""Part of the way to the present size that the usual one goes: one that keeps growing keeps being told."""


class Losses:
    """The instrument; the guard has read the loss already, so that a device is waited for once.

    Args:
        recording: where the numbers go.
        guard: what has looked at the loss.
        jumped: called when a loss is far above its usual size, before its gradients are computed.
    """

    name = "losses"

    def __init__(self, recording: Recording, guard: Guard, jumped: Callable[[], None]) -> None:
        self._recording = recording
        self._guard = guard
        self._jumped = jumped
        self._usual = 0.0

    def backward_begins(self, tensors: Any, frame: FrameType) -> None:
        loss = self._guard.present_loss
        if loss is None:
            return
        self._recording.add_loss(self._guard.steps, loss)
        size, usual = abs(loss), self._usual
        if not isfinite(size):
            return
        self._usual = usual + _FOLLOWS * (size - usual) if usual > 0.0 else size
        if size > _JUMP * usual > 0.0:
            self._jumped()
