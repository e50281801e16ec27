"""Runs the rules over a recording and orders what they say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from unstuck.diagnosis.causes import EXPLAINS, depth
from unstuck.diagnosis.rules import (
    data_conflicting_labels,
    data_constant_input,
    data_label_mismatch,
    data_nonfinite_input,
    data_pairing_broken,
    data_unscaled_input,
    data_unshuffled,
    data_unstable_sample,
    loss_activation_mismatch,
    loss_broadcast,
    loss_disconnected,
    loss_scale,
    loss_wrong_dim,
    loss_wrong_sign,
    model_bad_init_scale,
    model_batch_mixing,
    model_dead_units,
    model_frozen_parameters,
    model_input_ignored,
    model_no_gradient,
    model_norm_misuse,
    model_output_activation,
    model_saturated_units,
    model_symmetric_init,
    model_wrong_mode,
    numerics_amp_order,
    numerics_low_precision_overflow,
    numerics_nonfinite_backward,
    numerics_nonfinite_forward,
    numerics_nonfinite_parameter,
    numerics_scaler_stuck,
    optim_bad_hyperparameter,
    optim_clip_ineffective,
    optim_clip_too_tight,
    optim_exploding_gradient,
    optim_grad_cleared,
    optim_lr_too_high,
    optim_lr_too_low,
    optim_missing_parameters,
    optim_no_step,
    optim_no_zero_grad,
    optim_schedule_collapse,
    optim_stale_parameters,
    optim_vanishing_gradient,
    optim_weight_decay,
)
from unstuck.findings import Finding
from unstuck.record.recording import Recording

__all__ = ["RULES", "judge", "ranked"]

Rule = Callable[[Recording], list[Finding]]

RULES: tuple[Rule, ...] = (
    data_nonfinite_input.rule,
    data_unstable_sample.rule,
    data_unshuffled.rule,
    data_unscaled_input.rule,
    data_pairing_broken.rule,
    data_label_mismatch.rule,
    data_constant_input.rule,
    data_conflicting_labels.rule,
    numerics_nonfinite_forward.rule,
    numerics_nonfinite_backward.rule,
    numerics_nonfinite_parameter.rule,
    numerics_low_precision_overflow.rule,
    numerics_amp_order.rule,
    numerics_scaler_stuck.rule,
    loss_disconnected.rule,
    model_frozen_parameters.rule,
    model_no_gradient.rule,
    model_wrong_mode.rule,
    optim_grad_cleared.rule,
    optim_missing_parameters.rule,
    optim_no_step.rule,
    optim_no_zero_grad.rule,
    optim_stale_parameters.rule,
    optim_exploding_gradient.rule,
    optim_vanishing_gradient.rule,
    optim_clip_ineffective.rule,
    optim_clip_too_tight.rule,
    model_symmetric_init.rule,
    model_dead_units.rule,
    model_saturated_units.rule,
    loss_wrong_sign.rule,
    loss_activation_mismatch.rule,
    loss_broadcast.rule,
    loss_wrong_dim.rule,
    model_output_activation.rule,
    model_input_ignored.rule,
    model_batch_mixing.rule,
    loss_scale.rule,
    optim_bad_hyperparameter.rule,
    optim_weight_decay.rule,
    optim_lr_too_high.rule,
    optim_lr_too_low.rule,
    optim_schedule_collapse.rule,
    model_bad_init_scale.rule,
    model_norm_misuse.rule,
)
"""Every rule; each names findings of one code."""

_FOLLOWED = {
    "optim.exploding-gradient": (
        "numerics.nonfinite-forward",
        "numerics.nonfinite-backward",
        "numerics.nonfinite-parameter",
    ),
}
"""Causes and what may follow from them, which is reported as well: it has a place of its own."""


def judge(recording: Recording, failed: Callable[[str], None] | None = None) -> list[Finding]:
    """All findings of a recording: the worst first, among equals the deepest cause, then the one that came first.

    Args:
        recording: of the run.
        failed: told of a rule that raises, in a phrase; the others are asked all the same. Without it the error is
            raised.
    """
    findings = []
    for rule in RULES:
        try:
            findings += rule(recording)
        except Exception as error:
            if failed is None:
                raise
            name = rule.__module__.rpartition(".")[2]
            failed(f"the rule {name} was switched off: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return ranked(findings)


def ranked(findings: list[Finding]) -> list[Finding]:
    """Findings in the order of :func:`judge`, without those that others among them explain."""
    return sorted(_with_symptoms(findings), key=_rank)


def _rank(item: Finding) -> tuple[int, int, bool, int]:
    return item.severity.rank, depth(item.code), item.where.step is None, item.where.step or 0


def _with_symptoms(findings: list[Finding]) -> list[Finding]:
    """The findings without those that a cause among them explains; the cause names them, and is as bad as they are."""
    dropped: set[int] = set()
    causes = []
    for cause in findings:
        folded = [item for item in findings if item.code in EXPLAINS.get(cause.code, ())]
        followed = [item for item in findings if item.code in _FOLLOWED.get(cause.code, ()) and _after(item, cause)]
        dropped |= {id(item) for item in folded}
        symptoms = tuple(dict.fromkeys([*cause.symptoms, *(item.code for item in (*folded, *followed))]))
        worst = min([cause.severity, *(item.severity for item in folded)], key=lambda severity: severity.rank)
        where = cause.where
        steps = [item.where.step for item in folded if item.where.step is not None]
        if where.step is None and steps:
            where = replace(where, step=min(steps))  # where it has begun to show
        causes.append(replace(cause, symptoms=symptoms, severity=worst, where=where))
    return [told for told, item in zip(causes, findings, strict=True) if id(item) not in dropped]


def _after(item: Finding, cause: Finding) -> bool:
    return item.where.step is None or cause.where.step is None or item.where.step >= cause.where.step
