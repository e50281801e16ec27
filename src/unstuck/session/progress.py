"""Tells on the terminal what trials do, once they take longer than one would wait for without a word."""

from __future__ import annotations

import time

from unstuck.console import console

__all__ = ["Progress"]

_PATIENCE = 1.5
"""Seconds after which something is said."""


class Progress:
    """One line per thing that is done, said only when it takes its time.

    Args:
        quiet: say nothing.
    """

    def __init__(self, quiet: bool) -> None:
        self._begin = time.monotonic()
        self._quiet = quiet
        self._said: set[str] = set()

    def tell(self, what: str) -> None:
        """``what`` is being done; called again and again."""
        if self._quiet or what in self._said or time.monotonic() - self._begin < _PATIENCE:
            return
        self._said.add(what)
        console().print(f"unstuck: {what} ...", markup=False, soft_wrap=True)
