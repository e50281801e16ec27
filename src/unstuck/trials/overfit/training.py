"""Training on the same few batches, again and again."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unstuck.trials.overfit.copies import deep_copied

__all__ = ["Curve", "Pass", "Passed", "call_model", "forward_of_pair", "run_passes", "take_step", "train", "with_loss"]


@dataclass(frozen=True)
class Passed:
    """One forward pass: the loss, and what it was made of where that is known.

    Attributes:
        loss: a scalar.
        output: the prediction.
        target: what it is compared with.
        inputs: what the prediction was made of.
        loss_fn: ``loss_fn(output, target)`` is the loss; None where it isn't a function of these two.
        terms: where the loss is made of several, those whose targets the batch holds.
        name: of a term.
    """

    loss: torch.Tensor
    output: Any = None
    target: Any = None
    inputs: Any = None
    loss_fn: Callable[[Any, Any], torch.Tensor] | None = None
    terms: tuple[Passed, ...] = ()
    name: str = ""


Pass = Callable[[torch.nn.Module, Any], Passed]


@dataclass(frozen=True)
class Curve:
    """What a training on the same batches came to.

    Attributes:
        losses: mean loss of all batches, once per pass over them.
        steps: optimiser steps taken.
        ended: ``steps``, ``learnt``, ``time``, or ``nonfinite``.
    """

    losses: tuple[float, ...]
    steps: int
    ended: str


def forward_of_pair(loss_fn: Callable[[Any, Any], torch.Tensor]) -> Pass:
    """The pass of a batch that is a pair of inputs and target: ``loss_fn(model(inputs), target)``.

    Inputs that are a tuple or list are given as arguments, a mapping as keyword arguments.
    """

    def run(model: torch.nn.Module, batch: Any) -> Passed:
        inputs, target = batch
        output = call_model(model, inputs)
        return Passed(loss_fn(output, target), output, target, inputs, loss_fn)

    return run


def with_loss(model: torch.nn.Module, loss_fn: torch.nn.Module, device: torch.device) -> tuple[torch.nn.Module, Pass]:
    """The model to train, and its pass, for a loss that is a module itself.

    A loss with parameters of its own (class centres, weights of its terms) is trained with the model. Any other one is
    copied to the device, so that its class weights lie where the model does.

    Args:
        model: left as it is.
        loss_fn: called as ``loss_fn(output, target)``; left as it is.
        device: where the model will be trained.
    """
    if not any(item.requires_grad for item in loss_fn.parameters()):
        return model, forward_of_pair(deep_copied(loss_fn).to(device))

    def run(both: Any, batch: Any) -> Passed:
        inputs, target = batch
        output = call_model(both.model, inputs)
        return Passed(both.loss(output, target), output, target, inputs, both.loss)

    return _ModelAndLoss(model, loss_fn), run


class _ModelAndLoss(torch.nn.Module):
    """A model and a loss that are trained together."""

    def __init__(self, model: torch.nn.Module, loss: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.loss = loss


def call_model(model: torch.nn.Module, inputs: Any) -> Any:
    """Call a model: inputs that are a tuple or list are arguments, a mapping keyword arguments, all else is one."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def train(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[Any],
    run: Pass,
    steps: int,
    deadline: float,
    is_learnt: Callable[[float], bool],
    advance: Callable[[int, float], None] = lambda step, loss: None,
    look: Callable[[Any, torch.Tensor], None] = lambda batch, loss: None,
) -> Curve:
    """Train until the batches are learnt, or the steps or the time are used up.

    Args:
        model: trained in place.
        optimizer: of its parameters; one that needs a closure (LBFGS) gets one.
        batches: the step's data, in turn.
        run: the pass of one batch.
        steps: at most so many.
        deadline: on :func:`time.monotonic`.
        is_learnt: asked for the mean loss of every pass over the batches.
        advance: told each step and its loss.
        look: as for :func:`take_step`.

    Raises:
        Exception: of the user's code, unless the weights weren't finite any more.
    """
    losses: list[float] = []
    taken = 0
    while True:
        sums, count = 0.0, 0
        for batch in batches:
            try:
                loss = take_step(model, optimizer, batch, run, look)
            except Exception:
                if all(bool(item.isfinite().all()) for item in model.parameters()):
                    raise
                return Curve((*losses, math.nan), taken, "nonfinite")  # what the code can't stand are its weights
            sums, count, taken = sums + loss, count + 1, taken + 1
            advance(taken, loss)
            if not math.isfinite(loss):
                return Curve((*losses, loss), taken, "nonfinite")
            if taken >= steps or time.monotonic() > deadline:
                break
        losses.append(sums / count)
        if is_learnt(losses[-1]):
            return Curve(tuple(losses), taken, "learnt")
        if taken >= steps:
            return Curve(tuple(losses), taken, "steps")
        if time.monotonic() > deadline:
            return Curve(tuple(losses), taken, "time")


def take_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Any,
    run: Pass,
    look: Callable[[Any, torch.Tensor], None] = lambda batch, loss: None,
) -> float:
    """One optimiser step on a batch, through a closure where the optimiser needs one; returns the loss before it.

    Args:
        model: trained in place.
        optimizer: of its parameters.
        batch: of the data.
        run: the pass.
        look: told batch and loss when the gradients are complete, before the weights change.
    """
    seen: list[torch.Tensor] = []

    def backward() -> torch.Tensor:
        optimizer.zero_grad()
        loss = run(model, batch).loss
        loss.backward()
        look(batch, loss)
        seen.append(loss.detach())
        return loss

    if _needs_closure(optimizer):
        optimizer.step(backward)  # type: ignore[arg-type]
    else:
        backward()
        optimizer.step()
    return float(seen[0])


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it computes the loss itself, once or several times: LBFGS, or one whose closure has no default."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    required = closure is not None and closure.default is inspect.Parameter.empty
    return required or isinstance(optimizer, torch.optim.LBFGS)


def run_passes(model: torch.nn.Module, batches: Sequence[Any], run: Pass, training: bool) -> list[Passed]:
    """One pass over the batches without a step, in training or evaluation mode; the mode is put back."""
    modes = [(module, module.training) for module in model.modules()]
    if not training:
        model.eval()
    try:
        with torch.no_grad():
            return [run(model, batch) for batch in batches]
    finally:
        for module, mode in modes:
            module.training = mode
