"""Replacing attributes of modules and classes, with undo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Patches"]


class Patches:
    """A stack of replaced attributes and registered hooks that is undone in reverse order."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace ``owner.name`` by ``make(original)``; when undone, only if nobody has replaced it again since."""
        own = vars(owner).get(name, _MISSING)
        original = getattr(owner, name)
        replacement = make(original)
        setattr(owner, name, replacement)

        def undo() -> None:
            if vars(owner).get(name) is not replacement:
                return
            if own is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, own)

        self._undo.append(undo)

    def add(self, undo: Callable[[], None]) -> None:
        """Call ``undo`` when everything is undone."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Put everything back."""
        while self._undo:
            self._undo.pop()()


_MISSING = object()
