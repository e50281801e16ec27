"""Profilers: how long which part of a run takes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstuck.profilers.actions import profiled, profiled_batches
    from unstuck.profilers.advanced import AdvancedProfiler
    from unstuck.profilers.defaults import configure_profiler
    from unstuck.profilers.profiler import PassThroughProfiler, Profiler
    from unstuck.profilers.pytorch import PyTorchProfiler
    from unstuck.profilers.simple import SimpleProfiler

__all__ = [
    "AdvancedProfiler",
    "PassThroughProfiler",
    "Profiler",
    "PyTorchProfiler",
    "SimpleProfiler",
    "configure_profiler",
    "profiled",
    "profiled_batches",
]

# Where a name lives. It is imported when it is asked for: most runs use few of them.
_HOMES = {
    "AdvancedProfiler": "unstuck.profilers.advanced",
    "PassThroughProfiler": "unstuck.profilers.profiler",
    "Profiler": "unstuck.profilers.profiler",
    "PyTorchProfiler": "unstuck.profilers.pytorch",
    "SimpleProfiler": "unstuck.profilers.simple",
    "configure_profiler": "unstuck.profilers.defaults",
    "profiled": "unstuck.profilers.actions",
    "profiled_batches": "unstuck.profilers.actions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
