"""How far a loop is, how fast it goes, and when it will end. Times in seconds."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

__all__ = ["Pace", "Stretch", "format_duration"]


@dataclasses.dataclass(frozen=True)
class Stretch:
    """What a display shows of one loop.

    Attributes:
        name: which bar it is: ``"train"``, ``"validate"``, ...
        description: what stands before the bar.
        completed: batches done.
        total: batches in all, None when unknown.
        rate: batches per second, 0 before the first.
        elapsed: seconds that the loop has run, without the loops inside it.
        epochs_left: epochs that will come after this one, None when unknown.
    """

    name: str
    description: str
    completed: int
    total: int | None
    rate: float
    elapsed: float
    epochs_left: int | None

    @property
    def seconds_left(self) -> float | None:
        """Until the end of this loop, None when unknown."""
        if self.total is None or self.rate <= 0:
            return None
        return max(self.total - self.completed, 0) / self.rate

    @property
    def seconds_left_in_run(self) -> float | None:
        """Until the end of the last epoch, without validation; None when unknown."""
        if self.seconds_left is None or self.epochs_left is None or self.total is None:
            return None
        return self.seconds_left + self.epochs_left * self.total / self.rate


class Pace:
    """Counts the batches of one loop.

    Args:
        name: which bar it is.
        description: what stands before the bar.
        total: batches in all, infinite when unknown.
        epochs_left: epochs that will come after this one, None when unknown.
        clock: tells the time in seconds.
    """

    def __init__(
        self,
        name: str,
        description: str,
        total: float,
        epochs_left: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.completed = 0
        self.name = name
        self._description = description
        self._total = int(total) if math.isfinite(total) else None
        self._epochs_left = epochs_left
        self._clock = clock
        self._running_since: float | None = clock()
        self._elapsed_before = 0.0

    def pause(self) -> None:
        """Another loop runs inside this one: its time doesn't count."""
        self._elapsed_before, self._running_since = self.elapsed(), None

    def resume(self) -> None:
        """The loop inside has ended."""
        if self._running_since is None:
            self._running_since = self._clock()

    def elapsed(self) -> float:
        """Return the seconds that the loop has run."""
        running = 0.0 if self._running_since is None else self._clock() - self._running_since
        return self._elapsed_before + running

    def stretch(self) -> Stretch:
        """Return the state as of now."""
        elapsed = self.elapsed()
        return Stretch(
            name=self.name,
            description=self._description,
            completed=self.completed,
            total=self._total,
            rate=self.completed / elapsed if elapsed > 0 else 0.0,
            elapsed=elapsed,
            epochs_left=self._epochs_left,
        )


def format_duration(seconds: float) -> str:
    """Return ``m:ss``, or ``h:mm:ss`` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
