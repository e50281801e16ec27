"""Two ways to do the same thing, timed alternately in one process, so that the machine's moods hit both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Ratio", "interleave"]


@dataclass(frozen=True)
class Ratio:
    """``seconds`` per call of the plain way, and the median over rounds of the other's time divided by it."""

    seconds: float
    ratio: float


def interleave(plain: Callable[[], None], other: Callable[[], None], calls: int, rounds: int = 25) -> Ratio:
    """Time ``calls`` calls of each in turn, ``rounds`` times.

    Args:
        plain: the way that counts as 1.
        other: the way that is compared.
        calls: calls per block.
        rounds: pairs of blocks; the order alternates.
    """
    for way in (plain, other):
        _block(way, max(1, calls // 4))
    ratios, times = [], []
    for index in range(rounds):
        if index % 2:
            second, first = _block(other, calls), _block(plain, calls)
        else:
            first, second = _block(plain, calls), _block(other, calls)
        times.append(first / calls)
        ratios.append(second / first)
    return Ratio(statistics.median(times), statistics.median(ratios))


def _block(way: Callable[[], None], calls: int) -> float:
    begin = time.thread_time()
    for _ in range(calls):
        way()
    return time.thread_time() - begin
