"""Instruments listen to signals, measure, and append plain numbers to the recording. One subject per file."""

from __future__ import annotations
