"""Lines of the program that write into tensors by hand: plain data, no torch."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Filling"]


@dataclass(frozen=True)
class Filling:
    """One line that writes into a tensor in place, outside of training loops.

    Attributes:
        file: absolute path.
        line: 1-based.
        function: name of the function that holds it, ``<module>`` for none.
        target: last name of what it writes to (``weight``, ``bias``, ``p``).
        how: ``fill``, ``zero``, ``normal``, ``copy``, ``mult``, ...
        number: the number that it writes, adds or multiplies by, where that is written there.
    """

    file: str
    line: int
    function: str
    target: str
    how: str
    number: float | None
