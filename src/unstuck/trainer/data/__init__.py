"""How batches reach a training: limits, loaders, overfitting on a few batches, devices, random state."""

from __future__ import annotations

from unstuck.trainer.data.combined import CombinedLoader
from unstuck.trainer.data.limits import Overfit

__all__ = ["CombinedLoader", "Overfit"]
