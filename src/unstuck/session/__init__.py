"""A watched run from its start to its verdict."""

from __future__ import annotations

from unstuck.session.options import Ending, SessionOptions, Verdict
from unstuck.session.session import Session, StopRun

__all__ = ["Ending", "Session", "SessionOptions", "StopRun", "Verdict"]
