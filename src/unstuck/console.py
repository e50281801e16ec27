"""The one console through which everything that unstuck prints goes.

Standard error, so that the standard output of the user's program stays the program's own. rich is imported when the
first line is printed, not when unstuck is imported.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console"]


@functools.cache
def console() -> Console:
    """Return the process-wide console.

    It writes to whatever ``sys.stderr`` is at the time of each line, so redirections and captures work.
    """
    from rich.console import Console

    return Console(stderr=True, highlight=False)
