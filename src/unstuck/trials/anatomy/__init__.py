"""The first steps of a program, traced live and written down operation by operation."""

from __future__ import annotations

from unstuck.trials.anatomy.anatomist import Anatomist

__all__ = ["Anatomist"]
