"""The profiler that a Trainer's ``profiler`` argument stands for."""

from __future__ import annotations

from typing import Any

import unstuck.profilers
from unstuck.errors import MisconfigurationException
from unstuck.profilers.profiler import PassThroughProfiler

__all__ = ["configure_profiler"]

KINDS = {
    "simple": "SimpleProfiler",
    "advanced": "AdvancedProfiler",
    "pytorch": "PyTorchProfiler",
    "passthrough": "PassThroughProfiler",
}


def configure_profiler(profiler: Any) -> Any:
    """Return the profiler that is meant, None for none.

    Args:
        profiler: a name, a profiler of this package or of the real Lightning, or None.

    Raises:
        MisconfigurationException: an unknown name, or something else.
    """
    if isinstance(profiler, str):
        kind = KINDS.get(profiler.lower())
        if kind is None:
            raise MisconfigurationException(
                f"`Trainer(profiler={profiler!r})` is not known. Choose one of {sorted(KINDS)}, or pass a profiler."
            )
        profiler = getattr(unstuck.profilers, kind)()
    if profiler is None or isinstance(profiler, PassThroughProfiler):
        return None
    if isinstance(profiler, type) or not all(hasattr(profiler, name) for name in ("start", "stop", "profile")):
        raise MisconfigurationException(f"`Trainer(profiler={profiler!r})` takes a name or a `Profiler`.")
    return profiler
