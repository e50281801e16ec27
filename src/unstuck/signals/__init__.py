"""What a training step tells, independent of who runs it."""

from __future__ import annotations

from unstuck.signals.bus import SIGNALS, Bus, Listener, Rest

__all__ = ["SIGNALS", "Bus", "Listener", "Rest"]
