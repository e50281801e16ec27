"""Profiling what the loops call: where no profiler is on, they get back what they gave."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

__all__ = ["profiled", "profiled_batches"]

R = TypeVar("R")
Item = TypeVar("Item", bound=tuple[Any, ...])


def profiled(profiler: Any, action: str, function: Callable[..., R]) -> Callable[..., R]:
    """Return ``function`` with its calls profiled as ``action``; itself if ``profiler`` is None."""
    if profiler is None:
        return function

    @functools.wraps(function)
    def profiled_function(*args: Any, **kwargs: Any) -> R:
        with profiler.profile(action):
            return function(*args, **kwargs)

    return profiled_function


def profiled_batches(profiler: Any, action: str, batches: Iterable[Item]) -> Iterable[Item]:
    """Return ``batches`` with the drawing of each profiled as ``action``; themselves if ``profiler`` is None.

    Args:
        profiler: the profiler or None.
        action: its name for the drawing.
        batches: tuples whose last element tells whether the batch is the last one, after which none is drawn.
    """
    return batches if profiler is None else _drawn(profiler, action, iter(batches))


def _drawn(profiler: Any, action: str, batches: Iterator[Item]) -> Iterator[Item]:
    draw = profiled(profiler, action, next)
    end: Any = object()
    while True:
        batch = draw(batches, end)
        if batch is end:
            return
        yield batch
        if batch[-1]:
            return
