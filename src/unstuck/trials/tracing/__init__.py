"""One step traced op by op, and the walk back to the op that first made a non-finite value."""

from __future__ import annotations

from unstuck.trials.tracing.optrace import OpTrace

__all__ = ["OpTrace"]
