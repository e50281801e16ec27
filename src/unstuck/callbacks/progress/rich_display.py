"""Progress as bars in a terminal."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unstuck.callbacks.progress.pace import Stretch, format_duration
from unstuck.callbacks.progress.plain_display import format_metrics

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn, TaskID

__all__ = ["RichDisplay", "RichProgressBarTheme", "default_columns"]


@dataclasses.dataclass
class RichProgressBarTheme:
    """Styles, as rich writes them, and formats.

    Attributes:
        description: style of what stands before the bar.
        progress_bar: style of the bar.
        progress_bar_finished: style of a full bar.
        progress_bar_pulse: style of a bar whose length is unknown.
        batch_progress: style of the count of batches.
        time: style of the times.
        processing_speed: style of the pace.
        metrics: style of the metrics.
        metrics_text_delimiter: between two metrics.
        metrics_format: of floats.
    """

    description: str = ""
    progress_bar: str = "cyan"
    progress_bar_finished: str = "green"
    progress_bar_pulse: str = "cyan"
    batch_progress: str = ""
    time: str = "dim"
    processing_speed: str = "dim"
    metrics: str = "italic"
    metrics_text_delimiter: str = " "
    metrics_format: str = ".4g"


class RichDisplay:
    """Draws one bar for each loop that runs.

    Args:
        console: to draw on.
        columns: of rich. Besides rich's own fields they find ``batches``, ``rate``, ``times`` and ``metrics`` in
            ``task.fields``.
        leave: whether the bars of ended loops stay when the next one begins.
        theme: styles and formats.
    """

    # Faster than this nobody reads numbers.
    interval = 0.2
    closing_interval = 0.0
    draws_at_once = True

    def __init__(
        self, console: Console, columns: Sequence[ProgressColumn], leave: bool, theme: RichProgressBarTheme
    ) -> None:
        from rich.progress import Progress

        self._leave = leave
        self._theme = theme
        self._tasks: dict[str, TaskID] = {}
        self._finished: list[str] = []
        self._progress = Progress(
            *columns,
            console=console,
            auto_refresh=False,
            # What the program writes to a file or a pipe must go on to arrive there.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._progress.start()

    def show(self, stretch: Stretch, metrics: Mapping[str, Any]) -> None:
        """Draw a loop's bar, and all others."""
        for name in self._finished:
            if self._leave:
                del self._tasks[name]  # it stays above the new one
            elif name != stretch.name:
                self._progress.remove_task(self._tasks.pop(name))
        self._finished = []
        left = stretch.seconds_left
        fields: dict[str, Any] = {
            "description": stretch.description,
            "completed": stretch.completed,
            "total": stretch.total,
            "batches": f"{stretch.completed}/{'?' if stretch.total is None else stretch.total}",
            "rate": f"{stretch.rate:.3g} it/s",
            "times": f"{format_duration(stretch.elapsed)} ETA {'?' if left is None else format_duration(left)}",
            "metrics": self._theme.metrics_text_delimiter.join(format_metrics(metrics, self._theme.metrics_format)),
        }
        if stretch.name in self._tasks:
            self._progress.update(self._tasks[stretch.name], **fields)
        else:
            self._tasks[stretch.name] = self._progress.add_task(**fields)
        self._progress.refresh()

    def close(self, name: str, nested: bool) -> None:
        """A loop has ended.

        Args:
            name: which one.
            nested: whether it ran inside another loop, below whose bar there is no place for it any more. Otherwise the
                bar stays until the next loop begins.
        """
        if name not in self._tasks:
            return
        if nested:
            # Its bar may be one that an earlier loop of the same name has left, if this one was never drawn.
            self._finished = [other for other in self._finished if other != name]
            self._progress.remove_task(self._tasks.pop(name))
        elif name not in self._finished:
            self._finished.append(name)

    def stop(self) -> None:
        """The run has ended: give the terminal back."""
        self._progress.stop()


def default_columns(theme: RichProgressBarTheme) -> list[ProgressColumn]:
    """Return the columns that are shown unless the user configures others."""
    from rich.progress import BarColumn, TextColumn

    return [
        TextColumn("{task.description}", style=theme.description),
        BarColumn(
            complete_style=theme.progress_bar,
            finished_style=theme.progress_bar_finished,
            pulse_style=theme.progress_bar_pulse,
        ),
        *(
            TextColumn(f"{{task.fields[{field}]}}", style=style, markup=False)
            for field, style in (
                ("batches", theme.batch_progress),
                ("times", theme.time),
                ("rate", theme.processing_speed),
                ("metrics", theme.metrics),
            )
        ),
    ]
