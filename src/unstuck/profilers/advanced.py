"""Which functions of Python an action spent its time in."""

from __future__ import annotations

import cProfile
import io
import marshal
import os
import pstats
from pathlib import Path
from typing import Any

from unstuck.loggers.files import filesystem_of, join
from unstuck.profilers.profiler import Profiler

__all__ = ["AdvancedProfiler"]


class AdvancedProfiler(Profiler):
    """Runs cProfile during every action and reports the functions that were called, by cumulative time.

    Python has one profiler at a time. While an action runs inside another one, the time is counted for the inner one
    alone. The report is long, and the run several times slower.

    Args:
        dirpath: directory of the report; None for the logger's, where there is a ``filename``.
        filename: of the report, without ending; None to log it.
        line_count_restriction: how many functions are listed for each action: a number (int) or a fraction (float).
        dump_stats: whether the raw profile of each action is written to ``dirpath`` too, as ``.prof``.

    Attributes:
        profiled_actions: the profile of each action.
    """

    def __init__(
        self,
        dirpath: str | Path | None = None,
        filename: str | None = None,
        line_count_restriction: float = 1.0,
        dump_stats: bool = False,
    ) -> None:
        super().__init__(dirpath=dirpath, filename=filename)
        self.profiled_actions: dict[str, cProfile.Profile] = {}
        self.line_count_restriction = line_count_restriction
        self.dump_stats = dump_stats
        self._running: list[str] = []

    def start(self, action_name: str) -> None:
        if self._running:
            self.profiled_actions[self._running[-1]].disable()
        self._running.append(action_name)
        self.profiled_actions.setdefault(action_name, cProfile.Profile()).enable()

    def stop(self, action_name: str) -> None:
        """An action has ended.

        Raises:
            ValueError: it wasn't started.
        """
        if action_name not in self._running:
            raise ValueError(f"The action {action_name!r} was stopped, but it isn't running.")
        self.profiled_actions[self._running[-1]].disable()
        # The last one of the name: an action may be inside itself.
        self._running.reverse()
        self._running.remove(action_name)
        self._running.reverse()
        if self._running:
            self.profiled_actions[self._running[-1]].enable()

    def summary(self) -> str:
        texts = {}
        for action, profile in self.profiled_actions.items():
            if self.dump_stats:
                self._dump(action, profile)
            text = io.StringIO()
            stats = pstats.Stats(profile, stream=text).strip_dirs().sort_stats("cumulative")
            stats.print_stats(self.line_count_restriction)
            texts[action] = text.getvalue()
        return self._stats_to_str(texts)

    def teardown(self, stage: str | None) -> None:
        super().teardown(stage)
        for profile in self.profiled_actions.values():
            profile.disable()
        self.profiled_actions, self._running = {}, []

    def _dump(self, action: str, profile: cProfile.Profile) -> None:
        assert self.dirpath is not None
        path = join(os.fspath(self.dirpath), self._prepare_filename(action, ".prof"))
        filesystem, inner = filesystem_of(path)
        filesystem.makedirs(os.path.dirname(inner), exist_ok=True)
        profile.create_stats()
        filesystem.pipe_file(inner, marshal.dumps(profile.stats))

    def __getstate__(self) -> dict[str, Any]:
        # A profile can't be pickled.
        return {**self.__dict__, "profiled_actions": {}, "_running": []}
