"""From a recording to findings. Rules read plain data only: no torch, no I/O."""

from __future__ import annotations

from unstuck.diagnosis.judge import judge

__all__ = ["judge"]
