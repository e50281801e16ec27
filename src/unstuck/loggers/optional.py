"""Libraries that a logger needs and that come with an extra of this package."""

from __future__ import annotations

import importlib.util

__all__ = ["require"]


def require(library: str, logger: str, extra: str) -> None:
    """Check that a library is installed, without importing it.

    Args:
        library: name of its package.
        logger: class that needs it.
        extra: of this package, with which it comes.

    Raises:
        ModuleNotFoundError: it isn't.
    """
    if importlib.util.find_spec(library) is None:
        raise ModuleNotFoundError(
            f"`{logger}` needs the library {library}, which isn't installed: `pip install unstuck[{extra}]`."
        )
