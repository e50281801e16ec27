"""Who runs the step: sources turn what a program does into signals."""

from __future__ import annotations
