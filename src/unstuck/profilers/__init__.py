"""Profilers: how long which part of a run takes."""

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
