"""Signals reach who listens; an instrument that raises is switched off and the rest goes on."""

from __future__ import annotations

from typing import Any

import pytest

from unstuck.signals import SIGNALS, Bus, Rest


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


class Resting:
    """Rests from ``step_ended`` for ``steps`` whenever it is told of one."""

    name = "resting"

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.heard: list[str] = []
        self.rest = Rest(("step_ended", "backward_begins"), lambda: self.heard.append("woken"))

    def backward_begins(self, tensors: Any, frame: Any) -> None:
        self.heard.append("backward")

    def step_ended(self, optimizer: Any, frame: Any) -> None:
        self.heard.append(f"step {optimizer}")
        self.rest.begin(self.steps)

    def optimizer_created(self, optimizer: Any, frame: Any) -> None:
        self.heard.append("created")


def step(bus: Bus, number: int) -> None:
    bus.backward_begins((), None)
    bus.step_ended(number, None)


def test_an_instrument_at_rest_is_left_out_for_so_many_steps() -> None:
    resting, log = Resting(2), []  # type: ignore[var-annotated]
    bus = Bus([resting, Recorder("awake", log)])
    for number in range(5):
        step(bus, number)
    assert resting.heard == ["backward", "step 0", "woken", "backward", "step 3"]
    assert log == [("awake", number) for number in range(5)]
    assert bus.steps == 5


def test_what_is_not_left_out_reaches_an_instrument_at_rest() -> None:
    resting = Resting(10)
    bus = Bus([resting])
    step(bus, 0)
    bus.optimizer_created(None, None)
    step(bus, 1)
    assert resting.heard == ["backward", "step 0", "created"]


def test_a_rest_can_be_ended_early() -> None:
    resting = Resting(10)
    bus = Bus([resting])
    step(bus, 0)
    resting.rest.end()
    step(bus, 1)
    assert resting.heard == ["backward", "step 0", "backward", "step 1"]


def test_a_rest_begun_within_a_step_counts_that_step() -> None:
    resting = Resting(0)
    bus = Bus([resting])
    bus.backward_begins((), None)
    resting.rest.begin(1)
    bus.step_ended(0, None)
    step(bus, 1)
    assert resting.heard == ["backward", "woken", "backward", "step 1"]


def test_order_is_kept_when_an_instrument_comes_back() -> None:
    heard: list[str] = []

    class Loud(Resting):
        def __init__(self, name: str, steps: int) -> None:
            super().__init__(steps)
            self.name = name

        def step_ended(self, optimizer: Any, frame: Any) -> None:
            heard.append(f"{self.name}{optimizer}")
            self.rest.begin(self.steps)

    bus = Bus([Loud("a", 1), Loud("b", 0), Loud("c", 2)])
    for number in range(4):
        step(bus, number)
    assert heard == ["a0", "b0", "c0", "b1", "a2", "b2", "b3", "c3"]


def test_a_fault_on_waking_switches_the_instrument_off() -> None:
    resting = Resting(1)
    resting.rest.woken = lambda: 1 / 0  # type: ignore[assignment, return-value]
    log: list[tuple[str, Any]] = []
    bus = Bus([resting, Recorder("awake", log)])
    for number in range(4):
        step(bus, number)
    assert bus.faults == [("resting", "woken", "ZeroDivisionError: division by zero")]
    assert resting.heard == ["backward", "step 0"]
    assert len(log) == 4


def test_resting_without_a_bus_does_nothing() -> None:
    rest = Rest(("step_ended",))
    rest.begin(5)
    assert rest.until == 0


def test_what_is_left_of_a_rest_is_known_when_it_ends_early() -> None:
    resting = Resting(10)
    bus = Bus([resting])
    for number in range(4):
        step(bus, number)
    assert resting.rest.left == 7
    resting.rest.end()
    assert resting.rest.left == 0
