"""The number formats in which a run computes: ``Trainer(precision=...)``."""

from __future__ import annotations

from unstuck.trainer.precision.base import Precision
from unstuck.trainer.precision.mixed import MixedPrecision
from unstuck.trainer.precision.select import PRECISIONS, configure_precision, select_precision
from unstuck.trainer.precision.whole import DoublePrecision, HalfPrecision

__all__ = [
    "PRECISIONS",
    "DoublePrecision",
    "HalfPrecision",
    "MixedPrecision",
    "Precision",
    "configure_precision",
    "select_precision",
]
