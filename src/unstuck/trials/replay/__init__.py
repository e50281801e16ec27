"""Running a step again on what it had, under a tracer, leaving no trace in the user's program."""

from __future__ import annotations
