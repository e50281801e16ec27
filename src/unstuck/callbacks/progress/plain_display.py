"""Progress as plain lines, for log files and pipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unstuck.callbacks.progress.pace import Stretch, format_duration

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["PlainDisplay", "format_metrics", "progress_line"]


class PlainDisplay:
    """Prints a line now and then.

    Args:
        console: to print on.
        metrics_format: how numbers are written.
    """

    # A log file shall not fill up, and whoever follows it shall not wait for long.
    interval = 10.0
    closing_interval = 1.0
    draws_at_once = False

    def __init__(self, console: Console, metrics_format: str) -> None:
        self._console = console
        self._metrics_format = metrics_format

    def show(self, stretch: Stretch, metrics: Mapping[str, Any]) -> None:
        """Print one line."""
        line = progress_line(stretch, metrics, self._metrics_format)
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self, name: str, nested: bool) -> None:
        """A loop has ended: there is nothing to take away."""

    def stop(self) -> None:
        """The run has ended: there is nothing to take away."""


def progress_line(stretch: Stretch, metrics: Mapping[str, Any], metrics_format: str) -> str:
    """Return one line: what runs, how far it is, its pace, when it will end, and the metrics."""
    parts = [stretch.description]
    if stretch.total:
        parts.append(f"{stretch.completed}/{stretch.total} {100 * stretch.completed // stretch.total}%")
    else:
        parts.append(f"{stretch.completed} batches")
    parts.append(f"{stretch.rate:.3g} it/s")
    if stretch.seconds_left is not None and stretch.completed < (stretch.total or 0):
        parts.append(f"ETA {format_duration(stretch.seconds_left)}")
    if stretch.seconds_left_in_run is not None and stretch.epochs_left:
        parts.append(f"run ETA {format_duration(stretch.seconds_left_in_run)}")
    parts.extend(format_metrics(metrics, metrics_format))
    return "  ".join(parts)


def format_metrics(metrics: Mapping[str, Any], metrics_format: str) -> list[str]:
    """Return ``name=value`` for each metric; floats in the given format."""
    return [
        f"{name}={format(value, metrics_format) if isinstance(value, float) else value}"
        for name, value in metrics.items()
    ]
