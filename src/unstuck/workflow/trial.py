"""A few steps on a copy of a model, and what was seen of its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from unstuck.findings import Finding
from unstuck.session.session import Session
from unstuck.session.watch import watch
from unstuck.trainer.data.seed import isolate_rng
from unstuck.trials.overfit.capture import looking
from unstuck.trials.overfit.copies import copied_model
from unstuck.trials.overfit.evidence import bounds_over
from unstuck.trials.overfit.training import Passed, call_model, take_step, with_loss
from unstuck.workflow.batches import first_batches
from unstuck.workflow.overfit.causes import nonfinite_input
from unstuck.workflow.overfit.checks import RefusalError, check_pairs, check_step, pass_of
from unstuck.workflow.overfit.copies import OptimizerOrMaker, copies_of, device_of
from unstuck.workflow.overfit.origin import StepTracer, with_origin

__all__ = ["Observed", "observe", "outputs_of", "score_at_start"]

Loss = Callable[[Any, Any], torch.Tensor]
Step = Callable[[torch.nn.Module, Any], torch.Tensor]


@dataclass(frozen=True)
class Observed:
    """What a few steps have shown.

    Attributes:
        losses: one per step.
        findings: of the diagnosis.
        without_gradient: parameters that require a gradient and never had one other than zero.
        unchanged: parameters that require a gradient and are as before.
        nonfinite: parameters that hold NaN or infinity at the end.
        refused: why no step could be taken, None where it could.
    """

    losses: tuple[float, ...]
    findings: tuple[Finding, ...]
    without_gradient: tuple[str, ...]
    unchanged: tuple[str, ...]
    nonfinite: tuple[str, ...]
    refused: Finding | None = None


def outputs_of(model: torch.nn.Module, inputs: Any, samples: int) -> list[torch.Tensor]:
    """The tensors that a model gives with samples along the first dimension, with the same random numbers each time.

    Args:
        model: called without gradients.
        inputs: a tensor; a tuple or list: arguments; a mapping: keyword arguments.
        samples: size of the first dimension.
    """
    with isolate_rng(), Session.set_aside(), torch.no_grad():
        found = call_model(model, inputs)
    leaves = tree_leaves(found) if not hasattr(found, "to_tuple") else tree_leaves(found.to_tuple())
    return [item for item in leaves if isinstance(item, torch.Tensor) and item.dim() and item.shape[0] == samples]


def observe(
    model: torch.nn.Module,
    data: Any,
    loss_fn: Loss | None,
    optimizer: OptimizerOrMaker | None,
    *,
    step: Step | None,
    steps: int,
    batches: int = 1,
) -> Observed:
    """Take a few steps on a copy and look at its parameters.

    Args:
        model: copied.
        data: a loader, a list of batches, or one batch.
        loss_fn: called as ``loss_fn(output, target)``.
        optimizer: an optimiser of the model, a function that makes one, or None for Adam at 1e-3.
        step: in the place of ``loss_fn``.
        steps: how many.
        batches: how many different ones.
    """
    run = pass_of(loss_fn, step)
    chosen = first_batches(data, batches)
    if loss_fn is not None:
        check_pairs(chosen)
    with isolate_rng(), Session.set_aside():
        if isinstance(loss_fn, torch.nn.Module):
            model, run = with_loss(model, loss_fn, device_of(model))
        clone, made = copies_of(model, optimizer)
        named = [(name, item) for name, item in clone.named_parameters() if item.requires_grad]
        before = {name: item.detach().clone() for name, item in named}
        with_gradient: set[str] = set()
        losses = []
        source = loss_fn if loss_fn is not None else step
        assert source is not None
        try:
            check_step(copied_model(model)[0], chosen[0], run, source)
        except RefusalError as refusal:
            return Observed((), (refusal.finding,), (), (), (), refusal.finding)
        with watch(clone, made, budget=0.0) as watching:
            tracer = StepTracer(clone, run)
            for index in range(steps):
                losses.append(take_step(clone, made, chosen[index % len(chosen)], tracer.run, tracer.look))
                with_gradient |= {name for name, item in named if item.grad is not None and bool(item.grad.any())}
        findings = with_origin(watching.findings, tracer.finding)
        bad = next((index for index, loss in enumerate(losses) if not math.isfinite(loss)), None)
        if bad is not None:
            batch = chosen[bad % len(chosen)]
            inputs = batch[0] if loss_fn is not None else batch
            cause = nonfinite_input([Passed(torch.tensor(losses[bad]), inputs=inputs)])
            findings = findings if cause is None else (cause,)
    return Observed(
        tuple(losses),
        findings,
        tuple(name for name, _ in named if name not in with_gradient),
        tuple(name for name, item in named if torch.equal(item, before[name])),
        tuple(name for name, item in named if not bool(torch.isfinite(item).all())),
    )


def score_at_start(model: torch.nn.Module, data: Any, loss_fn: Loss) -> tuple[float, float | None]:
    """(loss of the untrained model on the first batch, that of the best constant prediction or None).

    A single sample, or samples that all want the same, have none that would tell anything.
    """
    run = pass_of(loss_fn, None)
    (batch,) = first_batches(data, 1)
    check_pairs([batch])
    with isolate_rng(), Session.set_aside(), torch.no_grad():
        passed = looking(run)(copied_model(model)[0], batch)
        bounds = bounds_over([passed])
        return float(passed.loss), None if bounds.alike else bounds.constant
