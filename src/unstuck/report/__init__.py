"""Draws a report: on the terminal and as JSON. Plain data in, no torch; a saved report can be drawn on any machine."""

from __future__ import annotations
