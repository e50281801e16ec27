"""Reading the user's program: syntax, positions and data flow of code that is running. No torch; runs nothing of it."""

from __future__ import annotations
