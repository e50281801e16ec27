"""Signals reach who listens; an instrument that raises is switched off and the rest goes on."""

from __future__ import annotations

from typing import Any

import pytest

from unstuck.signals import SIGNALS, Bus


class Recorder:
    def __init__(self, name: str, log: list[tuple[str, Any]]) -> None:
        self.name = name
        self.log = log

    def step_ended(self, optimizer: Any, frame: Any) -> None:
        self.log.append((self.name, optimizer))


class Broken:
    name = "broken"

    def step_ended(self, optimizer: Any, frame: Any) -> None:
        raise ValueError("no such thing")

    def run_ends(self) -> None:
        raise AssertionError("it was switched off")


class Stop(SystemExit):
    pass


class Stopper:
    name = "stopper"

    def step_ended(self, optimizer: Any, frame: Any) -> None:
        raise Stop(3)


def test_every_signal_can_be_sent_to_nobody() -> None:
    bus = Bus()
    for signal in SIGNALS:
        assert getattr(bus, signal)(1, 2, 3) is None


def test_listeners_are_called_in_order() -> None:
    log: list[tuple[str, Any]] = []
    Bus([Recorder("a", log), Recorder("b", log)]).step_ended("opt", None)
    assert log == [("a", "opt"), ("b", "opt")]


def test_a_faulty_instrument_is_switched_off_and_told() -> None:
    log: list[tuple[str, Any]] = []
    bus = Bus([Broken(), Recorder("after", log)])
    bus.step_ended(1, None)
    bus.step_ended(2, None)
    bus.run_ends()
    assert log == [("after", 1), ("after", 2)]
    assert bus.faults == [("broken", "step_ended", "ValueError: no such thing")]


def test_a_stop_passes() -> None:
    with pytest.raises(Stop):
        Bus([Stopper()], passages=(Stop,)).step_ended(1, None)


def test_signals_inside_an_instrument_are_not_told_again() -> None:
    seen = []

    class Nested:
        name = "nested"

        def step_ended(self, optimizer: Any, frame: Any) -> None:
            seen.append(optimizer)
            bus.step_ended("inner", None)

    bus = Bus([Nested()])
    bus.step_ended("outer", None)
    assert seen == ["outer"]


def test_muted_means_silent_and_time_is_counted() -> None:
    log: list[tuple[str, Any]] = []
    bus = Bus([Recorder("a", log)])
    bus.muted = True
    bus.step_ended(1, None)
    assert (log, bus.seconds) == ([], 0.0)
    bus.muted = False
    bus.step_ended(1, None)
    assert log and bus.seconds > 0.0
