"""A continuation does exactly what the frame itself goes on to do."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from unstuck.program.continuation import continue_from, names_needed

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="columns of instructions exist from 3.11 on")

captured: dict[str, Any] = {}


def probe(value: Any = None) -> Any:
    """Stands for the call from which a frame is continued: keeps what a capture would keep."""
    if "frame" not in captured:
        frame: FrameType = sys._getframe(1)
        near, far = names_needed(frame.f_code, frame.f_lasti)
        local = frame.f_locals
        captured.update(
            frame=True,
            code=frame.f_code,
            lasti=frame.f_lasti,
            near=near,
            far=far,
            globals=frame.f_globals,
            values={name: local[name] for name in (*near, *far) if name in local},
        )
    return value


def again(result: Any, **options: Any) -> Any:
    continuation = continue_from(captured["code"], captured["lasti"], **options)
    assert continuation is not None
    return continuation.bind(captured["values"], captured["globals"])(result)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    captured.clear()


def straight(x: int) -> int:
    x = x + 1
    y = probe(x) * 2 + x
    return y - 1


def nested_blocks(x: int, flag: bool) -> list[int]:
    out = []
    if flag:
        with memoryview(b"a"):
            try:
                x = x + probe(x)
            finally:
                out = [*out, x]
        out = [*out, 2]
    else:
        out = [-1]
    return [*out, x]


def loop(n: int) -> int:
    total = 100
    for i in range(n):
        total = total + probe(i)
    return total


class Base:
    def value(self) -> int:
        return 5


class Child(Base):
    def value(self) -> int:
        first = probe(1)
        return first + super().value()


def closure(x: int) -> int:
    factor = 3

    def inner(y: int) -> int:
        nonlocal factor
        factor = factor + 1
        z = probe(y)
        return z * factor

    return inner(x)


def unbound(flag: bool) -> int:
    a = probe(1)
    if flag:
        a = later  # noqa: F821
    return a


def rebinds() -> list[int]:
    h = 1
    seen = []
    for x in (5, 6, 7):
        h = probe(x) + h
        seen = [*seen, h]
    return seen


def comprehension(x: int) -> list[int]:
    k = probe(x)
    return [k * i + x for i in range(3)]


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        (straight, (4,), 5),
        (nested_blocks, (4, True), 4),
        (loop, (4,), None),
        (unbound, (False,), 1),
        (rebinds, (), None),
        (comprehension, (3,), 3),
    ],
)
def test_it_returns_what_the_function_returned(function: Any, arguments: tuple[Any, ...], result: Any) -> None:
    expected = function(*arguments)
    assert again(result) == expected


def test_super_and_closures_work() -> None:
    assert again(1) == 6 if Child().value() == 6 else False
    captured.clear()
    expected = closure(7)
    assert again(7) == expected == 28


def test_only_the_rest_of_a_pass_runs_when_the_stop_is_in_the_same_loop() -> None:
    ran: list[str] = []

    def program() -> None:
        for i in range(3):
            ran.append(f"before {i}")
            value = probe(i)
            ran.append(f"after {value}")
            stop()

    def stop() -> None:
        frame = sys._getframe(1)
        captured.setdefault("stop", frame.f_lasti)

    program()
    ran.clear()
    continuation = continue_from(captured["code"], captured["lasti"], stop_at=captured["stop"])
    assert continuation is not None
    assert continuation.substitutes
    continuation.bind(captured["values"], captured["globals"])(41)
    assert ran == ["after 41"]


def test_a_draw_in_a_for_header_is_handed_in() -> None:
    class Numbers:
        def __init__(self) -> None:
            self.n = 0

        def __iter__(self) -> Numbers:
            return self

        def __next__(self) -> int:
            self.n += 1
            if self.n > 3:
                raise StopIteration
            return int(probe(self.n) and self.n) if "frame" in captured else self._first()

        def _first(self) -> int:
            frame = sys._getframe(2)
            near, far = names_needed(frame.f_code, frame.f_lasti)
            captured.update(
                frame=True,
                code=frame.f_code,
                lasti=frame.f_lasti,
                globals=frame.f_globals,
                values={name: frame.f_locals[name] for name in (*near, *far) if name in frame.f_locals},
            )
            return self.n

    seen: list[int] = []

    def program() -> None:
        numbers = Numbers()
        for number in numbers:
            seen.append(number * 10)

    program()
    assert seen == [10, 20, 30]
    seen.clear()
    again(7)
    assert seen[0] == 70


def test_a_generator_is_refused() -> None:
    def numbers() -> Any:
        yield probe(1)

    list(numbers())
    assert continue_from(captured["code"], captured["lasti"]) is None


def test_names_that_are_written_first_are_not_kept() -> None:
    def program(x: int) -> int:
        big = 1
        small = 2
        big = probe(x)
        return big + small + x

    program(3)
    assert set(captured["near"]) == {"small", "x"}
