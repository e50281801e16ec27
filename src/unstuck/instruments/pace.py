"""How often a measurement runs: always at first, then as often as its share of the time of a step allows."""

from __future__ import annotations

import math

__all__ = ["Pace", "share_of"]

_LONG_STEP = 5e-3
_LONG_SHARE = 0.0025
_LARGEST_SHARE = 0.01
_INTERRUPTED = 5.0


def share_of(step_seconds: float) -> float:
    """Part of a step that gradient watching may take: 0.25 % from 5 ms on, up to 1 % where they are tiny."""
    if step_seconds >= _LONG_STEP:
        return _LONG_SHARE
    return min(_LARGEST_SHARE, _LONG_SHARE * math.sqrt(_LONG_STEP / max(step_seconds, 1e-9)))


class Pace:
    """Counts down to the next measurement.

    Args:
        first: measurements that are made step after step, whatever they cost.
        part: fraction of the whole share that this measurement gets.
        always: measure at every step.
        floor: seconds per step that are allowed however short the step is.
        early: (steps, share of a step): after the ``first`` measurements and up to so many steps this share holds.
    """

    def __init__(
        self,
        first: int,
        part: float = 1.0,
        always: bool = False,
        floor: float = 0.0,
        early: tuple[int, float] = (0, 0.0),
    ) -> None:
        self.taken = 0
        self._usual = 0.0
        self._debt = 0.0
        self._first = first
        self._part = part
        self._always = always
        self._floor = floor
        self._early = early
        self._steps = 0
        self._countdown = 0

    def due(self) -> bool:
        """Whether to measure now; to be asked once per step."""
        self._steps += 1
        self._countdown -= 1
        return self._countdown < 0

    def skip(self) -> int:
        """Steps that can be left out, without asking, until the answer is yes; they count.

        The next question is to be asked in the place of the last of them.
        """
        left_out, self._countdown = max(0, self._countdown), min(0, self._countdown)
        self._steps += left_out
        return left_out + 1

    @property
    def ahead(self) -> int:
        """Questions whose answer is no, that are still to come, for those who count them themselves."""
        return max(0, self._countdown)

    def pass_over(self, steps: int) -> None:
        """So many of them needn't be asked, but count."""
        self._countdown -= steps
        self._steps += steps

    def spent(self, seconds: float, step_seconds: float) -> None:
        """A measurement took ``seconds``; steps take ``step_seconds``. The next is due when that is paid for."""
        self.taken += 1
        # what the machine did in between isn't the measurement's cost
        seconds = seconds if self._usual == 0.0 else min(seconds, _INTERRUPTED * self._usual)
        self._usual = seconds if self._usual == 0.0 else 0.9 * self._usual + 0.1 * seconds
        self._debt += seconds
        self._countdown = 0
        if not self._always and self.taken >= self._first and step_seconds > 0.0:
            share = self._part * share_of(step_seconds)
            if self._steps < self._early[0]:
                share = self._early[1]
            allowed = max(self._floor, share * step_seconds)
            self._countdown = max(0, math.ceil(self._debt / allowed) - 1)
        self._debt = 0.0

    def spent_later(self, seconds: float) -> None:
        """Bringing in what was measured took ``seconds`` more."""
        self._debt += seconds
