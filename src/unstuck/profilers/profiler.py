"""What a profiler is, and one that does nothing."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unstuck.loggers.files import append_text, join
from unstuck.messages import log

__all__ = ["PassThroughProfiler", "Profiler"]


class Profiler(ABC):
    """Base class of profilers: give :meth:`start`, :meth:`stop` and :meth:`summary`.

    Args:
        dirpath: directory of the report; None for the logger's, where there is a ``filename``.
        filename: of the report, without ending; None to log it.
    """

    def __init__(self, dirpath: str | Path | None = None, filename: str | None = None) -> None:
        self.dirpath = dirpath
        self.filename = filename
        self._lightning_module: Any = None
        self._local_rank: int | None = None
        self._stage: str | None = None

    @abstractmethod
    def start(self, action_name: str) -> None:
        """An action begins."""

    @abstractmethod
    def stop(self, action_name: str) -> None:
        """An action has ended."""

    def summary(self) -> str:
        """Return the report."""
        return ""

    @contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        """Profile what happens inside, under a name of your own::

        with self.trainer.profiler.profile("augmentation"):
            ...
        """
        self.start(action_name)
        try:
            yield action_name
        finally:
            self.stop(action_name)

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """A run begins.

        Args:
            stage: ``"fit"``, ``"validate"``, ``"test"`` or ``"predict"``.
            local_rank: of this process, None if it is the only one.
            log_dir: where the report is written if the profiler has no directory of its own.
        """
        self._stage = str(stage)
        self._local_rank = local_rank
        self.dirpath = self.dirpath or log_dir

    def describe(self) -> None:
        """Write the report to its file, or log it on the first process."""
        report = self.summary()
        if report and self.filename and self.dirpath:
            append_text(join(os.fspath(self.dirpath), self._prepare_filename()), report)
        elif report and self._local_rank in (None, 0):
            log.info("%s", report)
        self.teardown(stage=self._stage)

    def teardown(self, stage: str | None) -> None:  # noqa: B027 - need not be overridden
        """A run has ended, its report is written."""

    @property
    def local_rank(self) -> int:
        """The index of this process on its machine."""
        return self._local_rank or 0

    def _prepare_filename(self, action_name: str | None = None, extension: str = ".txt") -> str:
        rank = None if self._local_rank is None else str(self._local_rank)
        parts = [part for part in (self._stage, self.filename, rank, action_name) if part]
        # Names of actions have characters that no file name may have.
        return (re.sub(r'[\\/:*?"<>|\n\r\t_]+', "_", "-".join(parts)).strip() or "profile") + extension

    def _stats_to_str(self, stats: Mapping[str, str]) -> str:
        """A report of one text for each action."""
        rank = "" if self._local_rank is None else f" rank: {self._local_rank}"
        lines = [self._title()]
        for action, text in stats.items():
            lines += [f"Profile stats for: {action}{rank}", text]
        return "\n".join(lines)

    def _title(self) -> str:
        stage = "" if self._stage is None else f"{self._stage.upper()} "
        return f"{stage}Profiler Report"


class PassThroughProfiler(Profiler):
    """Profiles nothing: stands where the Trainer has no profiler, so that user code can call it."""

    def start(self, action_name: str) -> None:
        """Do nothing."""

    def stop(self, action_name: str) -> None:
        """Do nothing."""
