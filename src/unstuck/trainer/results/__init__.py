"""The store behind ``self.log`` and ``self.log_dict``. It knows no Trainer: the loops tell it what happens."""

from unstuck.trainer.results.holders import Reduce, RunContext
from unstuck.trainer.results.logbook import Logbook, Loop, MetricWriter
from unstuck.trainer.results.options import LogOptions
from unstuck.trainer.results.store import Published, ResultStore
from unstuck.trainer.results.values import to_scalars

__all__ = [
    "LogOptions",
    "Logbook",
    "Loop",
    "MetricWriter",
    "Published",
    "Reduce",
    "ResultStore",
    "RunContext",
    "to_scalars",
]
