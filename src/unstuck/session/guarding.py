"""Watching for values that are not finite and nothing else, in a run that goes on: a Trainer's manual optimisation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any

import torch

from unstuck.instruments.clipping import Clipping
from unstuck.instruments.guard import Guard, Incident
from unstuck.instruments.moments import Moments
from unstuck.session.dropping import Dropping, DroppingEnds
from unstuck.session.incident_desk import IncidentDesk
from unstuck.session.scaling import Scaling
from unstuck.signals import Bus, Listener
from unstuck.sources.plain import PlainSource
from unstuck.trials.dropping import StepDropper

__all__ = ["Guarding"]


class Guarding:
    """Torch's hooks, the guard and its moments, from ``with`` to the end of the block.

    Args:
        desk: where incidents are explained.
        passages: exceptions with which the desk ends the run.
        stop: drop steps that aren't finite, and call this when that happens too often in a row; None drops nothing.
        optimizers: those that are there already.
    """

    def __init__(
        self,
        desk: IncidentDesk,
        passages: tuple[type[BaseException], ...] = (),
        stop: Callable[[], None] | None = None,
        optimizers: Iterable[torch.optim.Optimizer] = (),
    ) -> None:
        self._desk = desk
        self._moments = Moments()
        self._guard = Guard(self._moments, self._declare, drops=stop is not None)
        self._guard.optimizers.update({id(item): item for item in optimizers})
        self._scaling = Scaling(self._guard, desk.recording, desk, self._examine_skip)
        clipping = Clipping(desk.recording, self._guard)
        listeners: list[Listener] = [self._scaling, self._guard, self._moments, clipping]
        self._policy = None if stop is None else Dropping(self._guard, desk.recording, stop)
        if self._policy is not None and stop is not None:
            listeners = [DroppingEnds(self._policy, desk.recording, stop), *listeners, self._policy]
        self._bus = Bus(listeners, passages=passages)
        self._source = PlainSource(
            self._bus,
            wants_calls=lambda: self._policy is not None or self._moments.wants_calls,
            wants_closures=lambda: self._guard.has_window,
        )

    @property
    def dropper(self) -> StepDropper | None:
        """What drops steps; None without that policy."""
        return None if self._policy is None else self._policy.dropper

    def __enter__(self) -> Guarding:
        self._source.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._source.close()
        self._bus.run_ends()
        if error is None:
            self._scaling.judge()

    def _examine_skip(self, incident: Incident, scaler: Any) -> bool:
        found = self._desk.examine_skip(
            incident,
            scaler,
            self._moments,
            list(self._guard.optimizers.values()),
            _outside(sys._getframe()),
            self._source.original_backward,
        )
        if found is not None:
            self._desk.tell_of_skips(found)
        return found is not None

    def _declare(self, incident: Incident) -> None:
        self._desk.declare(
            incident,
            self._moments,
            list(self._guard.optimizers.values()),
            _outside(sys._getframe()),
            self._source.original_backward,
        )


def _outside(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that isn't the watching itself."""
    own = ("unstuck.session", "unstuck.signals", "unstuck.sources", "unstuck.instruments")
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(own):
        frame = frame.f_back
    return frame
