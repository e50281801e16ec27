"""Random states: taken so cheaply that it can be done every step, and put back exactly.

Numpy's and Python's own ways to read the state of their global generators build thousands of objects (25 and 7 us).
Both keep a Mersenne twister in one block of memory, which is copied here instead; the layout is checked once against
the official way, and that is used where the check fails.
"""

from __future__ import annotations

import ctypes
import pickle
import random
import sys
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

__all__ = ["RandomState", "StateWatch", "capture", "fingerprint", "is_generator", "is_global", "is_same", "restore"]

_WORDS = 624
_BYTES = 4 * (_WORDS + 1)

_STILL = 32
"""Questions after which states that haven't moved are taken to stand still."""

_COMPARED, _SELDOM = 8, 32
"""States are compared at every so many-th question, and taken at every so many-th while they stand still."""


class RandomState(NamedTuple):
    """States of the global generators of torch (CPU, and every CUDA device in use), numpy and Python, and of others.

    ``assumed``: not taken, because nothing had drawn numbers for long; what has begun to since isn't in it.
    """

    torch_cpu: torch.Tensor
    torch_cuda: tuple[torch.Tensor, ...]
    numpy: bytes | Any
    python: bytes | Any
    python_gauss: float | None
    others: tuple[tuple[Any, Any], ...]
    assumed: bool = False


def capture(others: Collection[Any] = ()) -> RandomState:
    """The present random states.

    Args:
        others: generators that the program made (``torch.Generator``, ``numpy.random.Generator``, ``RandomState``,
            ``random.Random``).
    """
    cuda = tuple(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else ()
    return RandomState(
        torch.default_generator.get_state(),
        cuda,
        _numpy_access()[0](),
        _python_access()[0](),
        random._inst.gauss_next,  # type: ignore[attr-defined]
        tuple([(generator, _state_of(generator)) for generator in others]) if others else (),
    )


class StateWatch:
    """The present random states, again and again: taken at every question, but seldom while nothing draws numbers.

    Many loops draw none, and then the states cost as much as all else that is kept of a short step. A loop that begins
    to draw after a long still time is noticed at most 31 questions late: until then the states from before it are told,
    as assumed ones.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._still = 0
        self._known: RandomState | None = None
        self._assumed: RandomState | None = None

    def present(self, others: Collection[Any] = ()) -> RandomState:
        """The states.

        Args:
            others: as for :func:`capture`; with any, they are taken at every question.
        """
        if others:
            return capture(others)
        self._asked += 1
        known = self._known
        if self._assumed is not None and self._asked % _SELDOM:
            return self._assumed
        state = capture()
        if self._still < _STILL and self._asked % _COMPARED:
            return state
        if known is not None and is_same(state, known):
            self._still += _COMPARED
            if self._still >= _STILL and self._assumed is None:
                self._assumed = known._replace(assumed=True)
            return known
        self._still, self._known, self._assumed = 0, state, None
        return state


def is_same(one: RandomState, other: RandomState) -> bool:
    """Whether no number was drawn in between; False where that is hard to tell."""
    return (
        isinstance(one.numpy, bytes)
        and isinstance(one.python, bytes)
        and (one.numpy, one.python, one.python_gauss) == (other.numpy, other.python, other.python_gauss)
        and not one.others
        and not other.others
        and torch.equal(one.torch_cpu, other.torch_cpu)
        and len(one.torch_cuda) == len(other.torch_cuda)
        and all(map(torch.equal, one.torch_cuda, other.torch_cuda))
    )


def restore(state: RandomState) -> None:
    """Put every generator back to a captured state."""
    torch.default_generator.set_state(state.torch_cpu)
    if state.torch_cuda:
        torch.cuda.set_rng_state_all(list(state.torch_cuda))
    _numpy_access()[1](state.numpy)
    _python_access()[1](state.python)
    random._inst.gauss_next = state.python_gauss  # type: ignore[attr-defined]
    for generator, value in state.others:
        _set_state(generator, value)


def is_generator(value: Any) -> bool:
    """Whether ``value`` is a random generator of torch, numpy or Python."""
    return isinstance(value, (torch.Generator, np.random.Generator, np.random.RandomState, random.Random))


def is_global(generator: Any) -> bool:
    """Whether a generator is one of those whose state every :class:`RandomState` holds."""
    ours = (torch.default_generator, *torch.cuda.default_generators, random._inst, np.random.mtrand._rand)  # type: ignore[attr-defined, unused-ignore]
    return any(generator is item for item in ours)


def fingerprint(generator: Any) -> bytes:
    """Bytes that are others as soon as a number is drawn from a generator."""
    state = _state_of(generator)
    return state.numpy().tobytes() if isinstance(state, torch.Tensor) else pickle.dumps(state)


def _state_of(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state()
    return generator.getstate()


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.setstate(state)


class _Block:
    """A twister's memory, copied only where it has changed: in most loops these two generators stand still.

    Each number that is drawn moves the place that the twister is at; once all places are used up, or after a seed, the
    words are others.

    Args:
        address: of the block.
        words: bytes before the first words that tell a change; the very first word may be the same for every seed.
        place: bytes before the place.
    """

    def __init__(self, address: int, words: int, place: int) -> None:
        self._whole = (ctypes.c_char * _BYTES).from_address(address)
        self._words = (ctypes.c_char * 12).from_address(address + words)
        self._place = (ctypes.c_char * 4).from_address(address + place)
        self._seen = (b"", b"")
        self._bytes = b""

    def read(self) -> bytes:
        """The block's bytes."""
        seen = (self._place.raw, self._words.raw)
        if seen != self._seen:
            self._bytes, self._seen = self._whole.raw, seen
        return self._bytes


Access = tuple[Callable[[], Any], Callable[[Any], None]]


@cache
def _numpy_access() -> Access:
    """Reader and writer of numpy's global generator. The spare normal deviate that it may hold isn't part of it."""
    try:
        bits = np.random.mtrand._rand._bit_generator
        address = bits.ctypes.state_address
        state: Any = np.random.get_state()
        name, key, position = state[:3]
        block = _Block(address, 4, _BYTES - 4)
        raw = block.read()
        same = name == "MT19937" and raw == np.asarray(key, np.uint32).tobytes() + int(position).to_bytes(
            4, sys.byteorder
        )
    except (AttributeError, TypeError, ValueError):
        same = False
    if not same:
        return np.random.get_state, np.random.set_state

    def write(raw: bytes) -> None:
        key = np.frombuffer(raw[:-4], np.uint32)
        np.random.set_state(("MT19937", key, int.from_bytes(raw[-4:], sys.byteorder), 0, 0.0))

    return block.read, write


@cache
def _python_access() -> Access:
    """Reader and writer of Python's global generator: an index, then the words, right after the object's header."""
    generator: Any = random._inst

    def official_read() -> Any:
        return generator.getstate()

    def official_write(state: Any) -> None:
        generator.setstate(state)

    if sys.implementation.name != "cpython":
        return official_read, official_write
    block = _Block(id(generator) + object.__basicsize__, 8, 0)
    raw = block.read()
    words = generator.getstate()[1]
    expected = words[-1].to_bytes(4, sys.byteorder) + np.asarray(words[:-1], np.uint32).tobytes()
    if raw != expected:
        return official_read, official_write

    def write(state: bytes) -> None:
        numbers = np.frombuffer(state[4:], np.uint32).tolist()
        index = int.from_bytes(state[:4], sys.byteorder)
        generator.setstate((3, (*numbers, index), None))

    return block.read, write
