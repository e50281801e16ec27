"""Writes every scalar loss into the recording."""

from __future__ import annotations

from types import FrameType
from typing import Any

from unstuck.instruments.guard import Guard
from unstuck.record.recording import Recording

__all__ = ["Losses"]


class Losses:
    """The instrument; the guard has read the loss already, so that a device is waited for once.

    Args:
        recording: where the numbers go.
        guard: what has looked at the loss.
    """

    name = "losses"

    def __init__(self, recording: Recording, guard: Guard) -> None:
        self._recording = recording
        self._guard = guard

    def backward_begins(self, tensors: Any, frame: FrameType) -> None:
        loss = self._guard.present_loss
        if loss is not None:
            self._recording.add_loss(self._guard.steps, loss)
