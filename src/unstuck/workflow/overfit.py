"""``unstuck.overfit``: can this model learn a few batches by heart? If not, why, and which rate would do it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from unstuck.diagnosis.judge import ranked
from unstuck.diagnosis.memorised import Memory, judge_memory
from unstuck.findings import Finding, Severity
from unstuck.session.session import Session
from unstuck.session.watch import watch
from unstuck.trainer.data.seed import isolate_rng
from unstuck.trainer.data.transfer import move_data_to_device
from unstuck.trials.overfit.bounds import Bounds
from unstuck.trials.overfit.capture import looking, same_targets
from unstuck.trials.overfit.evidence import accuracy_over, bounds_over, mean_loss, term_at_chance
from unstuck.trials.overfit.training import Curve, Pass, run_passes, train, with_loss
from unstuck.workflow.batches import chosen_batches, varied_batches
from unstuck.workflow.overfit_causes import causes_at_hand
from unstuck.workflow.overfit_checks import (
    RefusalError,
    check_counts,
    check_model,
    check_pairs,
    check_step,
    pass_of,
    usable_device,
)
from unstuck.workflow.overfit_copies import OptimizerOrMaker, copies_of, device_of, rate_of
from unstuck.workflow.overfit_origin import StepTracer, with_origin
from unstuck.workflow.overfit_result import OverfitResult, RateTried, best_of
from unstuck.workflow.progress import Advance, steps_shown

__all__ = ["OptimizerOrMaker", "OverfitResult", "overfit"]

_FACTORS = (0.1, 10.0, 0.01, 100.0, 1e-3, 1e3)
"""On the learning rate, in the order in which they are tried."""

_LARGEST_FACTOR = 1e9

_USUAL = (1e-3, 1e-2, 1e-4, 0.1, 1.0)
"""Rates that are tried where the optimiser's own is 0, of which there are no multiples."""

_DOWNWARDS = tuple(10.0**-power for power in range(1, 8))
"""The same where the optimiser's own rate has driven the loss up."""

_WHATEVER_THE_RATE = ("data.constant-input", "data.nonfinite-input", "loss.wrong-sign", "optim.stale-parameters")
"""Causes that no learning rate makes up for."""

_OF_STEPS_TOO_LARGE = ("model.dead-units", "model.saturated-units", "optim.exploding-gradient")
"""Findings, and those on numbers that aren't finite, beside which a rate may still be the cause."""

_FAR_LARGER = 30.0
"""Times the first predictions from which on targets are too large for steps of an ordinary size."""

_SETTLED = 0.99
"""Share of the way to the floor after which no further step is needed."""


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
            trial = _Trial(model, optimizer, chosen, run, source, place)
        except RefusalError as refusal:
            return _refused(refusal.finding, time.monotonic() - begin)
        memory, curve, findings = trial.train(steps, begin + max_seconds, advance)
        rates: list[RateTried] = []
        hopeless = any(item.code in _WHATEVER_THE_RATE for item in findings)
        endless = memory.verdict == "undecided" and memory.more_steps is None and memory.last < 0
        if sweep and memory.verdict != "memorised" and not hopeless and not endless:
            rates = trial.sweep(max(1, steps // 2), begin + max_seconds, advance, _is_driven_up(memory))
            found = _rate_finding(memory, curve, rates, findings, trial.scale_of_targets())
            if not found and not any(item.learns for item in rates) and _is_unexplained(findings):
                found = trial.without_decay(memory, curve, steps, begin + max_seconds, advance)
            told = {item.code for item in found}  # the same fault, now with a rate that learns
            findings = tuple(ranked([*found, *(item for item in findings if item.code not in told)]))
        capacity = trial.capacity()
    return OverfitResult(memory, curve.losses, tuple(rates), findings, time.monotonic() - begin, capacity)


def _is_unexplained(findings: Sequence[Finding]) -> bool:
    return not any(item.severity is Severity.ERROR for item in findings)


def _rate_finding(
    memory: Memory, curve: Curve, rates: Sequence[RateTried], findings: Sequence[Finding], targets: str
) -> tuple[Finding, ...]:
    """What another rate has proved, where the optimiser's own did not learn and another one does.

    Args:
        memory: of the own rate.
        curve: of the own rate.
        rates: the others.
        findings: what is known already.
        targets: how large they are, where they are so large that the steps must be, too.
    """
    learning = [item for item in rates if item.memory.verdict == "memorised"]
    learning = learning or [item for item in rates if item.learns and item.memory.last < 0.5 * memory.last]
    if not learning or memory.verdict != "not memorised":
        return ()
    best = best_of(learning)
    own = best.rate / best.factor
    high = best.factor < 1
    others = [item for item in findings if item.code != ("optim.lr-too-high" if high else "optim.lr-too-low")]
    if not _is_unexplained([item for item in others if not (high and _follows_from_steps(item))]):
        return ()
    return (
        Finding(
            code="optim.lr-too-high" if high else "optim.lr-too-low",
            severity=Severity.ERROR,
            summary=f"at the learning rate {own:.3g} the batches are not learnt "
            f"(loss {memory.first:.4g} -> {memory.last:.4g}), at {best.rate:.3g} "
            f"{'they are' if best.memory.verdict == 'memorised' else 'the loss falls further'} "
            f"(-> {best.memory.last:.4g})",
            evidence={
                "rate": own,
                "rate that learns": best.rate,
                "curve": _thinned(curve.losses),
                "curve at the other rate": _thinned(best.losses),
            },
            remedy=f"{targets}: standardise them, or raise the learning rate to about {best.rate:.3g}"
            if targets and not high
            else f"{'lower' if high else 'raise'} the learning rate to about {best.rate:.3g}",
            confirmed=True,
        ),
    )


def _follows_from_steps(item: Finding) -> bool:
    return item.code in _OF_STEPS_TOO_LARGE or item.code.startswith("numerics.nonfinite")


def _thinned(losses: Sequence[float]) -> list[float]:
    """At most some twenty values of a curve, its end included."""
    step = max(1, len(losses) // 20)
    return [*losses[:-1:step], losses[-1]]


class _Trial:
    """The model, the batches and what can be said of them beforehand."""

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
        return (
            Finding(
                code="optim.weight-decay",
                severity=Severity.ERROR,
                summary=f"with a weight decay of {decay:.3g} the batches are not learnt (loss {memory.first:.4g} -> "
                f"{memory.last:.4g}), without it they are (-> {other.losses[-1]:.4g})",
                evidence={
                    "weight decay": decay,
                    "curve": _thinned(curve.losses),
                    "curve without it": _thinned(other.losses),
                },
                remedy="lower the weight decay: 0 to 0.1 is usual",
                confirmed=True,
            ),
        )

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
            faulty=not _is_unexplained(findings),
            at_chance=at_chance,
        )


def _is_driven_up(memory: Memory) -> bool:
    """Whether the loss ended well above where it began, although it was finite there."""
    return math.isfinite(memory.first) and not memory.last <= memory.first + 0.5 * abs(memory.first)


def _refused(finding: Finding, seconds: float) -> OverfitResult:
    """The result where the model can't even be run."""
    sentence = f"not memorised: no step can be taken, as {finding.summary}"
    memory = Memory("not memorised", math.nan, math.nan, 0, None, None, None, None, None, None, sentence)
    return OverfitResult(memory, (), (), (finding,), seconds)
