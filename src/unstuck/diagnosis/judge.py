"""Runs the rules over a recording and orders what they say."""

from __future__ import annotations

from collections.abc import Callable

from unstuck.diagnosis.rules import (
    data_nonfinite_input,
    numerics_amp_order,
    numerics_nonfinite_backward,
    numerics_nonfinite_forward,
    numerics_nonfinite_parameter,
    numerics_scaler_stuck,
    optim_clip_ineffective,
    optim_clip_too_tight,
    optim_exploding_gradient,
    optim_vanishing_gradient,
)
from unstuck.findings import Finding
from unstuck.record.recording import Recording

__all__ = ["RULES", "judge"]

Rule = Callable[[Recording], list[Finding]]

RULES: tuple[Rule, ...] = (
    data_nonfinite_input.rule,
    numerics_nonfinite_forward.rule,
    numerics_nonfinite_backward.rule,
    numerics_nonfinite_parameter.rule,
    numerics_amp_order.rule,
    numerics_scaler_stuck.rule,
    optim_exploding_gradient.rule,
    optim_vanishing_gradient.rule,
    optim_clip_ineffective.rule,
    optim_clip_too_tight.rule,
)
"""Every rule; each names findings of one code."""


def judge(recording: Recording) -> list[Finding]:
    """All findings of a recording: the worst first, and among equals the one that happened first."""
    findings = [finding for rule in RULES for finding in rule(recording)]
    return sorted(findings, key=lambda item: (item.severity.rank, item.where.step is None, item.where.step or 0))
