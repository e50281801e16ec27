"""A captured random state, put back, gives the same numbers again, for every kind of generator."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unstuck.measure import rng

DRAWS: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.rand(5).tolist(),
    "torch normal": lambda: torch.randn(33).tolist(),
    "numpy": lambda: np.random.rand(700).tolist(),
    "python": lambda: [random.random() for _ in range(700)],
    "python gauss": lambda: [random.gauss(0, 1) for _ in range(3)],
    "python integers": lambda: random.sample(range(1000), 40),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_the_same_numbers_come_again(kind: str) -> None:
    draw = DRAWS[kind]
    draw()  # somewhere in the middle of the generator's block
    state = rng.capture()
    first = draw()
    draw()
    rng.restore(state)
    assert draw() == first


def test_taking_a_state_changes_nothing() -> None:
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    expected = [draw() for draw in DRAWS.values()]
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    found = []
    for draw in DRAWS.values():
        rng.capture()
        found.append(draw())
    assert found == expected


def test_the_cheap_reading_is_the_official_one() -> None:
    state = rng.capture()
    key = np.random.get_state()[1]  # type: ignore[index]
    assert state.numpy[:-4] == np.asarray(key, np.uint32).tobytes()
    words = random.getstate()[1]
    assert np.frombuffer(state.python, np.uint32).tolist() == [words[-1], *words[:-1]]


def test_generators_of_the_program_are_included() -> None:
    generators = [
        torch.Generator().manual_seed(1), np.random.default_rng(1), np.random.RandomState(1), random.Random(1)
    ]  # fmt: skip

    def draw() -> list[Any]:
        g, n, r, p = generators
        return [torch.rand(2, generator=g).tolist(), n.random(2).tolist(), r.rand(2).tolist(), p.random()]

    assert all(rng.is_generator(item) for item in generators)
    state = rng.capture(generators)
    first = draw()
    rng.restore(state)
    assert draw() == first


STIRRED: list[Callable[[int], Any]] = [
    lambda count: np.random.rand(count),
    lambda count: [random.random() for _ in range(count)],
    lambda count: np.random.seed(count),
    lambda count: random.seed(count),
    lambda count: np.random.randint(0, 7, count),
]


@given(st.lists(st.tuples(st.sampled_from(STIRRED), st.sampled_from([0, 1, 2, 312, 623, 624, 1248, 5000])), max_size=8))
def test_a_state_that_was_taken_before_is_never_taken_for_the_present_one(
    actions: list[tuple[Callable[[int], Any], int]],
) -> None:
    for act, count in actions:
        act(count)
        state = rng.capture()
        key, position = np.random.get_state()[1:3]  # type: ignore[misc]
        assert state.numpy == np.asarray(key, np.uint32).tobytes() + int(position).to_bytes(4, sys.byteorder)
        words = random.getstate()[1]
        assert np.frombuffer(state.python, np.uint32).tolist() == [words[-1], *words[:-1]]


def test_states_that_stand_still_are_told_again() -> None:
    watch = rng.StateWatch()
    states = [watch.present() for _ in range(200)]
    assert len({id(state) for state in states[100:]}) == 2  # one that was taken, and one that is assumed
    assert sum(state.assumed for state in states[100:]) > 90
    torch.rand(3)
    later = [watch.present() for _ in range(33)]
    now = rng.capture()
    assert torch.equal(later[-1].torch_cpu, now.torch_cpu)
    torch.rand(1)
    # it is known now that numbers are drawn
    assert torch.equal(watch.present().torch_cpu, rng.capture().torch_cpu)


@pytest.mark.parametrize("kind", DRAWS)
def test_every_state_is_right_while_numbers_are_drawn(kind: str) -> None:
    watch = rng.StateWatch()
    for _ in range(100):
        state = watch.present()
        first = DRAWS[kind]()
        rng.restore(state)
        assert DRAWS[kind]() == first


def test_generators_of_the_program_are_asked_every_time() -> None:
    watch, generator = rng.StateWatch(), torch.Generator().manual_seed(1)
    for _ in range(100):
        watch.present()
    for _ in range(20):
        state = watch.present([generator])
        first = torch.rand(3, generator=generator).tolist()
        rng.restore(state)
        assert torch.rand(3, generator=generator).tolist() == first
