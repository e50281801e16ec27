"""``unstuck.overfit``: can this model learn a few batches by heart? If not, why, and which rate would do it."""

from __future__ import annotations

from unstuck.workflow.overfit.copies import OptimizerOrMaker
from unstuck.workflow.overfit.overfitting import overfit
from unstuck.workflow.overfit.result import OverfitResult

__all__ = ["OptimizerOrMaker", "OverfitResult", "overfit"]
