"""Where and on how many devices a run computes."""

from __future__ import annotations

from unstuck.strategies.single_device import SingleDeviceStrategy

__all__ = ["SingleDeviceStrategy"]
