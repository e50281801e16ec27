"""Would the program learn with another rate, or another setting? It is tried: from its own start, on its own batches.

Each trial trains the program's weights from where they began for a few dozen steps, with an optimiser of the run's own
class and changed settings, on batches that the loop has received; the loss is measured on further such batches that
are held out. All of it happens inside a rehearsal, so nothing of it is left afterwards.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from unstuck.measure.gradient_norms import norms_of, total_of
from unstuck.record.trials import LearningTrial
from unstuck.trials.rehearsal import Rehearsal, RehearsalError

__all__ = ["GATHERED", "Change", "Clip", "TrialPlan", "learn"]

GATHERED = 8
"""Backward passes for one step from which on trials count passes, not steps."""

_RAN_AWAY = 1e3
"""A loss so many times its start, or more, isn't followed further."""


@dataclass(frozen=True)
class Change:
    """What a trial does differently.

    Attributes:
        name: for the report.
        factor: of the learning rate, against the run's highest.
        settings: of the optimiser's groups, where they have them.
        clips: whether gradients are clipped as in the run.
        gradient: factor on the gradients.
        passes: kept steps whose gradients are added up before an optimiser step; None for as many as in the run.
    """

    name: str
    factor: float = 1.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    clips: bool = True
    gradient: float = 1.0
    passes: int | None = None


@dataclass(frozen=True)
class Clip:
    """Clipping of the run: ``norm`` or ``value``, and its limit."""

    kind: str
    limit: float


@dataclass(frozen=True)
class TrialPlan:
    """How all trials of a program are made, so that they can be compared.

    Attributes:
        training: indices of the kept steps to train on, in turn.
        held_out: indices of those to measure on.
        length: steps of a trial.
        measures: how often the loss is measured on the way.
        passes: kept steps whose gradients are added up before an optimiser step.
        rates: of each group, the highest of the run.
        clips: what the run does to gradients.
        deadline: when the time is up, by :func:`time.monotonic`.
    """

    training: Sequence[int]
    held_out: Sequence[int]
    length: int
    measures: int
    passes: int
    rates: Sequence[float]
    clips: Sequence[Clip]
    deadline: float

    def length_with(self, passes: int) -> int:
        """Steps of a trial that gathers so many passes for each: fewer where that would take too long."""
        return self.length if passes < GATHERED else max(1, self.length // passes)


def learn(
    rehearsal: Rehearsal, change: Change, plan: TrialPlan, told: Callable[[], None] = lambda: None
) -> LearningTrial:
    """Train from the start under a change.

    Args:
        rehearsal: of the program, open.
        change: against the run's own settings.
        plan: shared by all trials of the program.
        told: called at each step: a progress display.

    Raises:
        RehearsalError: the program's pass can't be run like this.
    """
    rehearsal.start_again()
    optimizer = _optimizer(rehearsal, change, plan)
    training: list[float] = []
    steps, losses = [0], [_measure(rehearsal, plan)]
    whole, timed_out = True, False
    position = 0
    passes = change.passes or plan.passes
    length = plan.length_with(passes)
    every = max(1, length // plan.measures)
    for step in range(length):
        told()
        if time.monotonic() > plan.deadline:
            whole, timed_out = False, True
            break
        rehearsal.clear_gradients()
        total = 0.0
        for _ in range(passes):
            index = plan.training[position % len(plan.training)]
            position += 1
            total += float(rehearsal.loss(index, gradients=True).detach())
        loss = total / passes
        training.append(loss)
        if not math.isfinite(loss) or abs(loss) > _RAN_AWAY * (abs(training[0]) + 1e-3):
            whole = False
            break
        _treat_gradients(rehearsal.parameters, change, plan)
        _step(optimizer)
        if (step + 1) % every == 0 or step + 1 == length:
            steps.append(step + 1)
            losses.append(_measure(rehearsal, plan))
    if not whole and not timed_out and steps[-1] != len(training):
        steps.append(len(training))
        losses.append(_measure(rehearsal, plan))
    rehearsal.clear_gradients()
    return LearningTrial(
        change.name,
        max(plan.rates, default=0.0) * change.factor,
        change.factor,
        _changes(change),
        tuple(steps),
        tuple(losses),
        tuple(training),
        whole,
        timed_out,
    )


def _changes(change: Change) -> dict[str, float]:
    found = {key: float(value) for key, value in change.settings.items() if isinstance(value, (int, float))}
    if "betas" in change.settings:
        found["beta1"], found["beta2"] = change.settings["betas"]
    if not change.clips:
        found["clip"] = math.inf
    if change.gradient != 1.0:
        found["gradient"] = change.gradient
    return found


def _measure(rehearsal: Rehearsal, plan: TrialPlan) -> float:
    values = [float(rehearsal.loss(index).detach()) for index in plan.held_out]
    return sum(values) / len(values)


def _treat_gradients(parameters: Sequence[torch.Tensor], change: Change, plan: TrialPlan) -> None:
    gradients = [item.grad for item in parameters if item.grad is not None]
    with torch.no_grad():
        if change.gradient != 1.0:
            for gradient in gradients:
                gradient.mul_(change.gradient)
        if not change.clips:
            return
        for clip in plan.clips:
            if clip.kind == "value":
                for gradient in gradients:
                    gradient.clamp_(-clip.limit, clip.limit)
            elif gradients:
                norm = float(total_of(norms_of(gradients, 2.0), 2.0))
                if norm > clip.limit:
                    for gradient in gradients:
                        gradient.mul_(clip.limit / (norm + 1e-6))


def _optimizer(rehearsal: Rehearsal, change: Change, plan: TrialPlan) -> torch.optim.Optimizer:
    """An optimiser of the run's class over the same parameters, as it was before its first step but for the change."""
    original = rehearsal.kept.optimizer
    twin = object.__new__(type(original))
    twin.__dict__.update({key: value for key, value in vars(original).items() if key not in ("step", "zero_grad")})
    twin.param_groups = []
    for group, settings, rate in zip(original.param_groups, rehearsal.kept.settings, plan.rates, strict=True):
        own = dict(settings)
        for key, value in change.settings.items():
            if key in own:
                own[key] = value
        first = own.get("lr")
        value = rate * change.factor
        own["lr"] = torch.full_like(first, value) if isinstance(first, torch.Tensor) else value
        twin.param_groups.append({**own, "params": group["params"]})
    twin.state = defaultdict(dict)
    return twin


def _step(optimizer: torch.optim.Optimizer) -> None:
    """The class's own step, without the hooks that are around it."""
    step = type(optimizer).step
    try:
        getattr(step, "__wrapped__", step)(optimizer)
    except Exception as error:
        raise RehearsalError(f"the optimizer can't be run on its own ({type(error).__name__}: {error})") from error
