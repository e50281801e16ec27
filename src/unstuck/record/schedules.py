"""What learning-rate schedules were set to and how often they moved: plain data, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from unstuck.places import Frame

__all__ = ["ScheduleRecord"]


@dataclass
class ScheduleRecord:
    """One schedule.

    Attributes:
        kind: class name.
        settings: plain numbers and strings among its attributes (``step_size``, ``gamma``, ``T_max``, ``mode``).
        made_at: the user's lines that constructed it.
        step_at: the user's lines of its first ``step``.
        optimizer: index of the optimiser whose rates it sets, None if that never stepped.
        calls: times that ``step`` was called.
        steps: optimiser steps since it was made.
        epochs: times that a loader was iterated since then, of which gradients were computed.
        highest: largest rate that it was made with.
    """

    kind: str
    settings: dict[str, float | str] = field(default_factory=dict)
    made_at: tuple[Frame, ...] = ()
    step_at: tuple[Frame, ...] = ()
    optimizer: int | None = None
    calls: int = 0
    steps: int = 0
    epochs: int = 0
    highest: float = 0.0
