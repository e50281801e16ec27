"""The vocabulary of a diagnosis: codes, severities, places and findings. Plain data, no torch."""

from __future__ import annotations

from unstuck.findings.codes import CODES, Code
from unstuck.findings.finding import Finding, Severity, Where

__all__ = ["CODES", "Code", "Finding", "Severity", "Where"]
