"""How long each action took, how often it ran, and how much of it was spent in other actions."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from unstuck.profilers.profiler import Profiler

__all__ = ["SimpleProfiler"]

TOTAL, OUTSIDE = "Total", "Outside of all actions"


@dataclass
class _Span:
    """An action that runs, and the seconds that actions inside it have taken so far."""

    action: str
    began: float
    inside: float = 0.0


@dataclass
class _Nesting:
    """Of one action: seconds that weren't spent in another one, and the actions around it ("" for none)."""

    own: float = 0.0
    around: set[str] = field(default_factory=set)


class SimpleProfiler(Profiler):
    """Measures the duration of every action and reports a table of them.

    Actions contain each other: ``run_training_epoch`` contains ``run_training_batch``, and so on. So durations don't
    add up to the total, but the column "Own time" does: it leaves out what was spent in actions inside, and its last
    row is the time outside of all actions. The column "Within" names the action around.

    Args:
        dirpath: directory of the report; None for the logger's, where there is a ``filename``.
        filename: of the report, without ending; None to log it.
        extended: whether the table has calls, shares, own times and nesting, besides mean and total durations.
        synchronize: whether to wait for the CUDA device at both ends of an action, so that its work is counted where it
            was asked for. It costs some speed, and nothing where CUDA isn't in use.

    Attributes:
        recorded_durations: seconds of every call, by action.
        current_actions: when those that run now began.
    """

    def __init__(
        self,
        dirpath: str | Path | None = None,
        filename: str | None = None,
        extended: bool = True,
        synchronize: bool = True,
    ) -> None:
        super().__init__(dirpath=dirpath, filename=filename)
        self.extended = extended
        self.synchronize = synchronize
        self.current_actions: dict[str, float] = {}
        self.recorded_durations: dict[str, list[float]] = defaultdict(list)
        self.start_time = time.perf_counter()
        self._nesting: dict[str, _Nesting] = defaultdict(_Nesting)
        self._spans: dict[int, list[_Span]] = defaultdict(list)  # by thread

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        super().setup(stage, local_rank, log_dir)
        if not self.recorded_durations and not self.current_actions:
            self.start_time = time.perf_counter()

    def start(self, action_name: str) -> None:
        """An action begins.

        Raises:
            ValueError: it runs already.
        """
        if action_name in self.current_actions:
            raise ValueError(f"The action {action_name!r} was started while it is running.")
        self._wait_for_device()
        began = self.current_actions[action_name] = time.perf_counter()
        self._spans[threading.get_ident()].append(_Span(action_name, began))

    def stop(self, action_name: str) -> None:
        """An action has ended.

        Raises:
            ValueError: it wasn't started.
        """
        if action_name not in self.current_actions:
            raise ValueError(f"The action {action_name!r} was stopped, but it isn't running.")
        self._wait_for_device()
        duration = time.perf_counter() - self.current_actions.pop(action_name)
        self.recorded_durations[action_name].append(duration)
        spans = self._spans[threading.get_ident()]
        index = next((index for index, span in enumerate(spans) if span.action == action_name), None)
        if index is None:  # another thread has started it
            return
        span = spans.pop(index)
        nesting = self._nesting[action_name]
        nesting.own += max(duration - span.inside, 0.0)
        nesting.around.add(spans[index - 1].action if index else "")
        if index:
            spans[index - 1].inside += duration

    def _wait_for_device(self) -> None:
        if self.synchronize:
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                torch.cuda.synchronize()

    def summary(self) -> str:
        if not self.recorded_durations:
            return self._title() + "\n"
        header, *rows = self._table() if self.extended else self._short_table()
        widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
        lines = [
            "|  " + "  |  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + "  |"
            for row in (header, *rows)
        ]
        rule = "-" * len(lines[0])
        first = [lines[0], rule, lines[1], rule] if self.extended else [lines[0], rule, lines[1]]
        return "\n".join([self._title(), "", rule, *first, *lines[2:], rule, ""])

    def _table(self) -> list[list[str]]:
        total = time.perf_counter() - self.start_time
        calls = sum(map(len, self.recorded_durations.values()))
        rows = [
            ["Action", "Mean duration (s)", "Num calls", "Total time (s)", "Percentage %", "Own time (s)", "Within"],
            [TOTAL, "-", str(calls), f"{total:.5}", "100 %", f"{total:.5}", ""],
        ]
        sums = {action: math.fsum(durations) for action, durations in self.recorded_durations.items()}
        for action in sorted(sums, key=lambda action: -sums[action]):
            number, nesting = len(self.recorded_durations[action]), self._nesting[action]
            share = 100.0 * sums[action] / total if total > 0 else 0.0
            around = ", ".join(sorted(nesting.around - {""}))
            numbers = [f"{sums[action] / number:.5}", str(number), f"{sums[action]:.5}", f"{share:.5}"]
            rows.append([action, *numbers, f"{nesting.own:.5}", around])
        outside = max(total - math.fsum(nesting.own for nesting in self._nesting.values()), 0.0)
        share = 100.0 * outside / total if total > 0 else 0.0
        return [*rows, [OUTSIDE, "-", "-", f"{outside:.5}", f"{share:.5}", f"{outside:.5}", ""]]

    def _short_table(self) -> list[list[str]]:
        means = {action: math.fsum(times) / len(times) for action, times in self.recorded_durations.items()}
        rows = [
            [action, f"{means[action]:.5}", f"{math.fsum(self.recorded_durations[action]):.5}"]
            for action in sorted(means, key=lambda action: -means[action])
        ]
        return [["Action", "Mean duration (s)", "Total time (s)"], *rows]
