"""The trainings of an overfit test, each on fresh copies: with the own learning rate, others, and no weight decay."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from unstuck.diagnosis.judge import ranked
from unstuck.diagnosis.memorised import Memory, judge_memory
from unstuck.findings import Finding
from unstuck.session.watch import watch
from unstuck.trials.overfit.bounds import Bounds
from unstuck.trials.overfit.capture import looking, same_targets
from unstuck.trials.overfit.evidence import accuracy_over, bounds_over, mean_loss, term_at_chance
from unstuck.trials.overfit.training import Curve, Pass, run_passes, train
from unstuck.workflow.overfit.causes import causes_at_hand, is_unexplained
from unstuck.workflow.overfit.checks import check_step
from unstuck.workflow.overfit.copies import OptimizerOrMaker, copies_of, rate_of
from unstuck.workflow.overfit.origin import StepTracer, with_origin
from unstuck.workflow.overfit.proofs import decay_finding
from unstuck.workflow.overfit.result import RateTried, best_of
from unstuck.workflow.progress import Advance

__all__ = ["Attempts"]

_FACTORS = (0.1, 10.0, 0.01, 100.0, 1e-3, 1e3)
"""On the learning rate, in the order in which they are tried."""

_LARGEST_FACTOR = 1e9

_USUAL = (1e-3, 1e-2, 1e-4, 0.1, 1.0)
"""Rates that are tried where the optimiser's own is 0, of which there are no multiples."""

_DOWNWARDS = tuple(10.0**-power for power in range(1, 8))
"""The same where the optimiser's own rate has driven the loss up."""

_FAR_LARGER = 30.0
"""Times the first predictions from which on targets are too large for steps of an ordinary size."""

_SETTLED = 0.99
"""Share of the way to the floor after which no further step is needed."""


class Attempts:
    """A model and batches, what can be said of them beforehand, and the trainings that are tried on copies.

    Args:
        model: left as it is, as is the optimiser.
        optimizer: of the model, or a function that makes one, None for the usual one.
        batches: on the device.
        run: the pass of one batch.
        source: the user's function that gives the loss.
        device: where the copies lie.

    Raises:
        RefusalError: no step can be taken.
        MisconfigurationException: the loss isn't one that can be trained, or the model can't be copied.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: OptimizerOrMaker | None,
        batches: Sequence[Any],
        run: Pass,
        source: Callable[..., Any],
        device: torch.device,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._batches = batches
        self._run = run
        self._source = source
        self._device = device
        probe, _ = copies_of(self._model, self._optimizer, self._device)
        for batch in batches:
            check_step(probe, batch, run, source)
        self._first = run_passes(probe, batches, looking(run), training=True)
        self._bounds = bounds_over(self._first)

    def train(self, steps: int, deadline: float, advance: Advance) -> tuple[Memory, Curve, tuple[Finding, ...]]:
        """Train with the optimiser's own rate, watched."""
        model, optimizer = copies_of(self._model, self._optimizer, self._device)
        with watch(model, optimizer, budget=0.0) as watching:
            tracer = StepTracer(model, self._run)
            curve = train(
                model, optimizer, self._batches, tracer.run, steps, deadline, self._is_learnt, advance, tracer.look
            )
        found = with_origin(watching.findings, tracer.finding)
        memory = self._judged(model, curve, found)
        at_hand = causes_at_hand(model, optimizer, self._first, memory)
        known = {item.code for item in at_hand}
        seen = [item for item in found if item.code not in known]
        if "data.nonfinite-input" in known:
            seen = [item for item in seen if not item.code.startswith("numerics.nonfinite")]
        return memory, curve, tuple(ranked([*at_hand, *seen]))

    def without_decay(
        self, memory: Memory, curve: Curve, steps: int, deadline: float, advance: Advance
    ) -> tuple[Finding, ...]:
        """Train without the optimiser's weight decay, if it has any: what that proves."""
        model, optimizer = copies_of(self._model, self._optimizer, self._device)
        decay = max((group.get("weight_decay", 0.0) for group in optimizer.param_groups), default=0.0)
        if memory.verdict != "not memorised" or not decay > 0 or time.monotonic() > deadline:
            return ()
        for group in optimizer.param_groups:
            group["weight_decay"] = 0.0
        other = train(model, optimizer, self._batches, self._run, steps, deadline, self._is_learnt, advance)
        if self._judged(model, other).verdict != "memorised":
            return ()
        return (decay_finding(decay, memory, curve, other),)

    def sweep(self, steps: int, deadline: float, advance: Advance, downwards: bool) -> list[RateTried]:
        """Train with other rates until one memorises."""
        found: list[RateTried] = []
        own = rate_of(copies_of(self._model, self._optimizer, self._device)[1])
        if own is None:
            return found
        none = own == 0.0
        waiting = list(_USUAL if none else _DOWNWARDS if downwards else _FACTORS)
        while waiting and time.monotonic() < deadline:
            following = waiting.pop(0)
            factor, rate = (math.inf, following) if none else (following, own * following)
            model, optimizer = copies_of(
                self._model, self._optimizer, self._device, 1.0 if none else factor, rate if none else None
            )
            try:
                curve = train(model, optimizer, self._batches, self._run, steps, deadline, self._is_learnt, advance)
            except Exception:  # noqa: BLE001 - the user's code, which may not stand what such a rate makes of the model
                curve = Curve((math.nan,), 0, "nonfinite")
            found.append(RateTried(factor, rate, curve.losses, self._judged(model, curve)))
            if found[-1].memory.verdict == "memorised":
                break
            if not waiting and not downwards and factor < _LARGEST_FACTOR and factor == best_of(found).factor:
                waiting.append(10 * factor)  # the larger, the better, so far
        return found

    def capacity(self) -> tuple[int, int] | None:
        """(numbers that are trained, numbers that the targets hold)."""
        targets = [item.target for item in self._first]
        if not all(isinstance(item, torch.Tensor) for item in targets):
            return None
        trained = sum(item.numel() for item in self._model.parameters() if item.requires_grad)
        return trained, sum(item.numel() for item in targets)

    def scale_of_targets(self) -> str:
        """How large the targets are beside the first predictions, in words; empty where they aren't far larger."""
        for item in self._first:
            output, target = item.output, item.target
            if not (isinstance(target, torch.Tensor) and target.is_floating_point() and target.numel()):
                continue
            if isinstance(output, torch.Tensor) and output.is_floating_point():
                reach, size = float(output.abs().max()), float(target.abs().mean())
                if size > _FAR_LARGER * max(reach, 1.0):
                    spread = float(target.float().std(correction=0))
                    return (
                        f"the targets (about {float(target.float().mean()):.3g}, deviation {spread:.3g}) lie far from "
                        f"what the model gives at its start (at most {reach:.3g} in size)"
                    )
        return ""

    def _is_learnt(self, loss: float) -> bool:
        constant, floor = self._bounds.constant, self._bounds.floor
        if constant is None or floor is None or constant <= floor:
            return False
        return (constant - loss) / (constant - floor) >= _SETTLED

    def _judged(self, model: torch.nn.Module, curve: Curve, findings: Sequence[Finding] = ()) -> Memory:
        accuracy = attainable = evaluated = None
        at_chance = ""
        bounds = self._bounds
        if curve.ended != "nonfinite":
            last = run_passes(model, self._batches, looking(self._run), training=False)
            evaluated = mean_loss(last)
            accuracy, attainable = accuracy_over(last)
            at_chance = term_at_chance(last)
            if not all(same_targets(a.target, b.target) for a, b in zip(self._first, last, strict=True)):
                bounds = Bounds(None, None)  # the model made them, and they have moved with it
        start = sum(float(item.loss) for item in self._first) / len(self._first)
        return judge_memory(
            (start, *curve.losses),
            curve.steps,
            bounds.constant,
            bounds.floor,
            accuracy,
            attainable,
            evaluated,
            ascends=any(item.code == "loss.wrong-sign" for item in findings),
            alike=bounds.alike,
            faulty=not is_unexplained(findings),
            at_chance=at_chance,
        )
