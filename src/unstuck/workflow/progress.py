"""A bar for work that goes in steps, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unstuck.console import console

__all__ = ["Advance", "steps_shown"]

Advance = Callable[[int, float], None]


@contextmanager
def steps_shown(what: str, steps: int, shown: bool) -> Iterator[Advance]:
    """Show a bar while a block runs.

    Args:
        what: is being done.
        steps: of the whole work; more of them may come.
        shown: False for none.

    Yields:
        A function to call with the number of a step and its loss.
    """
    if not shown or not console().is_terminal:
        yield lambda step, loss: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]}"), console=console(), transient=True) as bar:
        task = bar.add_task(what, total=steps, loss="")
        yield lambda step, loss: bar.update(task, completed=step, loss=f"{loss:.4g}")
