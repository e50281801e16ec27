"""The overfit test from its arguments to its result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from unstuck.diagnosis.judge import ranked
from unstuck.diagnosis.memorised import Memory
from unstuck.findings import Finding
from unstuck.session.session import Session
from unstuck.trainer.data.seed import isolate_rng
from unstuck.trainer.data.transfer import move_data_to_device
from unstuck.trials.overfit.training import with_loss
from unstuck.workflow.batches import chosen_batches, varied_batches
from unstuck.workflow.overfit.attempts import Attempts
from unstuck.workflow.overfit.causes import is_unexplained
from unstuck.workflow.overfit.checks import (
    RefusalError,
    check_counts,
    check_model,
    check_pairs,
    pass_of,
    usable_device,
)
from unstuck.workflow.overfit.copies import OptimizerOrMaker, device_of
from unstuck.workflow.overfit.proofs import rate_finding
from unstuck.workflow.overfit.result import OverfitResult, RateTried
from unstuck.workflow.progress import steps_shown

__all__ = ["overfit"]

_WHATEVER_THE_RATE = ("data.constant-input", "data.nonfinite-input", "loss.wrong-sign", "optim.stale-parameters")
"""Causes that no learning rate makes up for."""


def overfit(
    model: torch.nn.Module,
    data: Any,
    loss_fn: Callable[[Any, Any], torch.Tensor] | None = None,
    optimizer: OptimizerOrMaker | None = None,
    *,
    step: Callable[[torch.nn.Module, Any], torch.Tensor] | None = None,
    steps: int = 300,
    batches: int = 1,
    samples_per_class: int | None = None,
    device: torch.device | str | None = None,
    sweep: bool = True,
    max_seconds: float = 60.0,
    progress: bool = True,
) -> OverfitResult:
    """Train a copy of a model on the same few batches and say whether it can learn them by heart.

    A model that can't is broken, or driven wrongly, whatever its data hold. Model, optimiser, loader, and random states
    stay as they are, also after an exception or Ctrl-C::

        result = unstuck.overfit(model, loader, nn.CrossEntropyLoss(), optimizer)
        assert result.memorised, result

    What counts as memorised follows from the data and the loss: the best constant prediction is where learning begins,
    and the best prediction that is a function of the input (which conflicting labels or label smoothing keep above
    zero) is where it ends.

    Args:
        model: deep-copied. Where all of it is in evaluation mode, the copy is put into training mode.
        data: a loader, a list of batches, or one batch. With ``loss_fn`` a batch is a pair of inputs (a tensor; a
            tuple: arguments; a mapping: keyword arguments) and target.
        loss_fn: called as ``loss_fn(output, target)``; a scalar.
        optimizer: its class, groups and settings are used with a fresh state; or a function that makes one from
            parameters; Adam at 1e-3 if it is left out.
        step: in the place of ``loss_fn`` for batches of any form: called as ``step(model, batch)``, returns the loss.
        steps: optimiser steps at most; it ends earlier where the batches are learnt.
        batches: how many of the loader's.
        samples_per_class: choose so many samples of every class instead.
        device: where to train; the model's own if it is left out.
        sweep: where the batches aren't memorised, and no cause is found that a rate can't make up for, try other
            learning rates, and the optimiser without its weight decay.
        max_seconds: for all of it.
        progress: show a bar on a terminal.

    Returns:
        Verdict, curve, rates and findings.

    Raises:
        MisconfigurationException: arguments don't fit together, or the model can't be copied.
    """
    begin = time.monotonic()
    run = pass_of(loss_fn, step)
    check_model(model)
    check_counts(steps, batches, samples_per_class, max_seconds)
    place = device_of(model) if device is None else usable_device(device)
    chosen = varied_batches(data, batches) if samples_per_class is None else chosen_batches(data, samples_per_class)
    if loss_fn is not None:
        check_pairs(chosen)
    with isolate_rng(), Session.set_aside(), steps_shown("overfitting", steps, progress) as advance:
        chosen = [move_data_to_device(batch, place) for batch in chosen]
        source = loss_fn if loss_fn is not None else step
        assert source is not None
        if isinstance(loss_fn, torch.nn.Module):
            model, run = with_loss(model, loss_fn, place)
        try:
            attempts = Attempts(model, optimizer, chosen, run, source, place)
        except RefusalError as refusal:
            return _refused(refusal.finding, time.monotonic() - begin)
        memory, curve, findings = attempts.train(steps, begin + max_seconds, advance)
        rates: list[RateTried] = []
        hopeless = any(item.code in _WHATEVER_THE_RATE for item in findings)
        endless = memory.verdict == "undecided" and memory.more_steps is None and memory.last < 0
        if sweep and memory.verdict != "memorised" and not hopeless and not endless:
            rates = attempts.sweep(max(1, steps // 2), begin + max_seconds, advance, _is_driven_up(memory))
            found = rate_finding(memory, curve, rates, findings, attempts.scale_of_targets())
            if not found and not any(item.learns for item in rates) and is_unexplained(findings):
                found = attempts.without_decay(memory, curve, steps, begin + max_seconds, advance)
            told = {item.code for item in found}  # the same fault, now with a rate that learns
            findings = tuple(ranked([*found, *(item for item in findings if item.code not in told)]))
        capacity = attempts.capacity()
    return OverfitResult(memory, curve.losses, tuple(rates), findings, time.monotonic() - begin, capacity)


def _is_driven_up(memory: Memory) -> bool:
    """Whether the loss ended well above where it began, although it was finite there."""
    return math.isfinite(memory.first) and not memory.last <= memory.first + 0.5 * abs(memory.first)


def _refused(finding: Finding, seconds: float) -> OverfitResult:
    """The result where the model can't even be run."""
    sentence = f"not memorised: no step can be taken, as {finding.summary}"
    memory = Memory("not memorised", math.nan, math.nan, 0, None, None, None, None, None, None, sentence)
    return OverfitResult(memory, (), (), (finding,), seconds)
