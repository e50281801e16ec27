"""``unstuck.overfit``: can this model learn a few batches by heart? If not, why, and which rate would do it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from unstuck.diagnosis.judge import ranked
from unstuck.diagnosis.memorised import Memory, judge_memory
from unstuck.errors import MisconfigurationException
from unstuck.findings import Finding, Severity, Where
from unstuck.places import is_user_code
from unstuck.session.session import Session
from unstuck.session.watch import watch
from unstuck.trainer.data.seed import isolate_rng
from unstuck.trainer.data.transfer import move_data_to_device
from unstuck.trials.overfit.bounds import Bounds
from unstuck.trials.overfit.capture import looking, same_targets
from unstuck.trials.overfit.copies import copied_model, copied_optimizer
from unstuck.trials.overfit.evidence import accuracy_over, bounds_over, mean_loss
from unstuck.trials.overfit.norm_of_one import norm_of_one
from unstuck.trials.overfit.training import (
    Curve,
    Pass,
    Passed,
    forward_of_pair,
    run_passes,
    train,
    with_loss,
)
from unstuck.workflow.batches import chosen_batches, first_batches
from unstuck.workflow.overfit_causes import causes_at_hand
from unstuck.workflow.progress import Advance, steps_shown

__all__ = [
    "OptimizerOrMaker",
    "OverfitResult",
    "RefusalError",
    "check_pairs",
    "check_step",
    "copies_of",
    "device_of",
    "overfit",
    "pass_of",
]

OptimizerOrMaker = torch.optim.Optimizer | Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]

_FACTORS = (0.1, 10.0, 0.01, 100.0, 1e-3, 1e3)
"""On the learning rate, in the order in which they are tried."""

_LARGEST_FACTOR = 1e9

_DOWNWARDS = tuple(10.0**-power for power in range(1, 8))
"""The same where the optimiser's own rate has driven the loss up."""

_WHATEVER_THE_RATE = ("data.constant-input", "data.nonfinite-input", "loss.wrong-sign", "optim.stale-parameters")
"""Causes that no learning rate makes up for."""

_OF_STEPS_TOO_LARGE = ("model.dead-units", "model.saturated-units", "optim.exploding-gradient")
"""Findings, and those on numbers that aren't finite, beside which a rate may still be the cause."""

_BETTER = 0.05
"""Share of its loss by which another rate must end below the own one to be worth telling."""

_FAR_LARGER = 30.0
"""Times the first predictions from which on targets are too large for steps of an ordinary size."""

_SETTLED = 0.99
"""Share of the way to the floor after which no further step is needed."""


@dataclass(frozen=True)
class RateTried:
    """One other learning rate: the factor on the optimiser's own, the mean loss by pass, and whether it learns."""

    factor: float
    rate: float
    losses: tuple[float, ...]
    memory: Memory

    @property
    def learns(self) -> bool:
        """Whether the batches were memorised, or would have been with more steps."""
        return self.memory.verdict != "not memorised"


@dataclass(frozen=True)
class OverfitResult:
    """What an overfit test found; prints as a few lines.

    Attributes:
        memory: verdict and numbers.
        losses: mean loss of the batches, once per pass over them, in training mode.
        rates: what other learning rates did, tried where the optimiser's own didn't memorise.
        findings: what the diagnosis found meanwhile, the most important first.
        seconds: that all of it took.
    """

    memory: Memory
    losses: tuple[float, ...]
    rates: tuple[RateTried, ...]
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def verdict(self) -> Literal["memorised", "not memorised", "undecided"]:
        """``memorised``, ``not memorised`` or ``undecided``."""
        return self.memory.verdict

    @property
    def memorised(self) -> bool:
        """Whether the batches were learnt by heart."""
        return self.memory.verdict == "memorised"

    @property
    def best_rate(self) -> float | None:
        """The other learning rate that memorised, or came nearest to it; None where none did better than the own."""
        own = self.memory.last
        limit = own - _BETTER * abs(own) if math.isfinite(own) else math.inf
        better = [item for item in self.rates if item.learns and item.memory.last < limit]
        return _best(better).rate if better else None

    def __str__(self) -> str:
        lines = [self.memory.sentence]
        if self.rates:
            best = self.best_rate
            tried = ", ".join(f"{item.rate:.3g}: {item.memory.last:.4g}" for item in self.rates)
            told = "no other learning rate learns"
            if best is not None:
                whole = any(item.memory.verdict == "memorised" for item in self.rates if item.rate == best)
                told = f"a learning rate of {best:.3g} {'learns' if whole else 'comes further'}"
            lines.append(f"{told} (loss by rate: {tried})")
        for item in self.findings:
            place = f" ({item.where.file}:{item.where.line})" if item.where.file else ""
            lines.append(f"{item.severity.value} {item.code}{place}: {item.summary}")
            lines += [f"  {item.remedy}"] if item.remedy else []
        return "\n".join(lines)


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
    _check_model(model)
    _check_counts(steps, batches, samples_per_class, max_seconds)
    place = device_of(model) if device is None else _usable(device)
    chosen = first_batches(data, batches) if samples_per_class is None else chosen_batches(data, samples_per_class)
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
            findings = tuple(ranked([*found, *findings]))
    return OverfitResult(memory, curve.losses, tuple(rates), findings, time.monotonic() - begin)


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
    best = _best(learning)
    own = best.rate / best.factor
    high = best.factor < 1
    if not _is_unexplained([item for item in findings if not (high and _follows_from_steps(item))]):
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


class RefusalError(Exception):
    """No step can be taken."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.summary)
        self.finding = finding


def _disconnected(source: Callable[..., Any]) -> Finding:
    """What is wrong with a loss without a graph, at the function that gives it."""
    code = getattr(source.forward if isinstance(source, torch.nn.Module) else source, "__code__", None)
    where = Where(code.co_filename, code.co_firstlineno) if code is not None and is_user_code(code) else Where()
    return Finding(
        "loss.disconnected",
        Severity.ERROR,
        "the loss has no graph to any parameter, so there are no gradients",
        where,
        remedy="compute the loss from the model's output by operations of torch alone, without .item(), .detach(), "
        "argmax, rounding, numpy or torch.tensor(...) in between",
        confirmed=True,
    )


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
            curve = train(model, optimizer, self._batches, self._run, steps, deadline, self._is_learnt, advance)
        memory = self._judged(model, curve, watching.findings)
        at_hand = causes_at_hand(model, optimizer, self._first, memory)
        known = {item.code for item in at_hand}
        seen = [item for item in watching.findings if item.code not in known]
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
        waiting = list(_DOWNWARDS if downwards else _FACTORS)
        while waiting and time.monotonic() < deadline:
            factor = waiting.pop(0)
            model, optimizer = copies_of(self._model, self._optimizer, self._device, factor)
            if "lr" not in optimizer.param_groups[0]:
                break
            rate = float(optimizer.param_groups[0]["lr"])
            try:
                curve = train(model, optimizer, self._batches, self._run, steps, deadline, self._is_learnt, advance)
            except Exception:  # noqa: BLE001 - the user's code, which may not stand what such a rate makes of the model
                curve = Curve((math.nan,), 0, "nonfinite")
            found.append(RateTried(factor, rate, curve.losses, self._judged(model, curve)))
            if found[-1].memory.verdict == "memorised":
                break
            if not waiting and not downwards and factor < _LARGEST_FACTOR and factor == _best(found).factor:
                waiting.append(10 * factor)  # the larger, the better, so far
        return found

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
        bounds = self._bounds
        if curve.ended != "nonfinite":
            last = run_passes(model, self._batches, looking(self._run), training=False)
            evaluated = mean_loss(last)
            accuracy, attainable = accuracy_over(last)
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
        )


def _is_driven_up(memory: Memory) -> bool:
    """Whether the loss ended well above where it began, although it was finite there."""
    return math.isfinite(memory.first) and not memory.last <= memory.first + 0.5 * abs(memory.first)


def copies_of(
    model: torch.nn.Module,
    optimizer: OptimizerOrMaker | None,
    device: torch.device | None = None,
    factor: float = 1.0,
) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A copy of a model on a device, and a fresh optimiser of it with ``factor`` on its learning rates.

    A model that is in evaluation mode as a whole, as loaded ones are, is put into training mode.

    Args:
        model: left as it is.
        optimizer: of the model, or a function that makes one from parameters; Adam at 1e-3 for None.
        device: where the copy lies; None: where the model does.
        factor: on every group's rate.

    Raises:
        MisconfigurationException: the model can't be copied, none of it can be trained, or ``optimizer`` is something
            else.
    """
    if not any(item.requires_grad for item in model.parameters()):
        raise MisconfigurationException("the model has no parameter that requires a gradient: nothing can be trained")
    clone, copies = copied_model(model)
    if not any(module.training for module in clone.modules()):
        clone.train()
    if isinstance(optimizer, torch.optim.Optimizer):
        made = copied_optimizer(optimizer, copies, factor)
        return clone.to(device), made
    clone.to(device)
    parameters = [item for item in clone.parameters() if item.requires_grad]
    if optimizer is None:
        return clone, torch.optim.Adam(parameters, lr=1e-3 * factor)
    if not callable(optimizer):
        raise MisconfigurationException(
            f"`optimizer` must be an optimizer of the model or a function that makes one from parameters, got "
            f"{_kind(optimizer)}; one optimizer with several groups takes the place of several"
        )
    made = optimizer(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise MisconfigurationException(
            f"`optimizer` must return an optimizer when it is called with parameters, it returned {_kind(made)}"
        )
    for group in made.param_groups:
        if "lr" in group:
            group["lr"] = group["lr"] * factor
    return clone, made


def _best(tried: Sequence[RateTried]) -> RateTried:
    """The rate with the lowest loss at its end."""
    return min(tried, key=lambda item: item.memory.last if math.isfinite(item.memory.last) else math.inf)


def pass_of(
    loss_fn: Callable[[Any, Any], torch.Tensor] | None, step: Callable[[torch.nn.Module, Any], torch.Tensor] | None
) -> Pass:
    """The pass of one batch.

    Raises:
        MisconfigurationException: not exactly one of both is given, or it can't be called so.
    """
    if (loss_fn is None) == (step is None):
        raise MisconfigurationException(
            "give `loss_fn`, called as loss_fn(output, target), or `step`, called as step(model, batch): one of them"
        )
    for name, given in (("loss_fn", loss_fn), ("step", step)):
        if given is not None and (not callable(given) or _is_module_class(given)):
            raise MisconfigurationException(f"`{name}` must be a function, got {_kind(given)}")
    if loss_fn is not None:
        return forward_of_pair(loss_fn)
    assert step is not None
    return lambda model, batch: Passed(step(model, batch), inputs=batch)


def _is_module_class(given: Any) -> bool:
    return isinstance(given, type) and issubclass(given, torch.nn.Module)


def _check_counts(steps: int, batches: int, samples_per_class: int | None, max_seconds: float) -> None:
    for name, value in (("steps", steps), ("batches", batches), ("samples_per_class", samples_per_class)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise MisconfigurationException(f"`{name}` must be a whole number of at least 1, got {value!r}")
    if not max_seconds > 0:
        raise MisconfigurationException(f"`max_seconds` must be positive, got {max_seconds!r}")


def check_pairs(batches: Sequence[Any]) -> None:
    """Look whether batches have the form that ``loss_fn`` asks for.

    Raises:
        MisconfigurationException: one is no pair.
    """
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            kind = f"{type(batch).__name__} of {len(batch)}" if hasattr(batch, "__len__") else type(batch).__name__
            raise MisconfigurationException(
                f"with `loss_fn` a batch must be a pair of inputs and target, got {kind}; for batches of another form "
                "give `step`, called as step(model, batch)"
            )


def check_step(model: torch.nn.Module, batch: Any, run: Pass, source: Callable[..., Any]) -> None:
    """Run a pass and look whether a step can be taken on its loss.

    Args:
        model: a copy.
        batch: of the data.
        run: the pass.
        source: the user's function that gives the loss.

    Raises:
        RefusalError: no step can be taken, with the cause.
        MisconfigurationException: the loss isn't a single number, or isn't one of this model.
    """
    try:
        loss = run(model, batch).loss
    except ValueError as error:
        refused = norm_of_one(error)
        if refused is None:
            raise
        raise RefusalError(refused) from error
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        shape = f"a tensor {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise MisconfigurationException(f"the loss must be a tensor with a single number, got {shape}; reduce it")
    if loss.grad_fn is None:
        raise RefusalError(_disconnected(source))
    trained = [item for item in model.parameters() if item.requires_grad]
    if all(item is None for item in torch.autograd.grad(loss, trained, allow_unused=True)):
        raise MisconfigurationException(
            "the loss depends on none of the parameters of the model that is trained, which is a copy; use the model "
            "that `step` is called with, not one from outside"
        )


def _check_model(model: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise MisconfigurationException(f"`model` must be a torch Module, got {_kind(model)}")


def _kind(given: Any) -> str:
    """How to call what was given in the place of something else."""
    if isinstance(given, type):
        return f"the class {given.__name__}, not an instance of it"
    if isinstance(given, (list, tuple)):
        return f"a {type(given).__name__} of {len(given)} ({', '.join(type(item).__name__ for item in given[:4])})"
    return f"{given!r} ({type(given).__name__})" if isinstance(given, (str, int, float)) else type(given).__name__


def _usable(device: Any) -> torch.device:
    """The device by its name, after a look whether tensors can lie there."""
    try:
        place = torch.device(device)
        if place.type == "meta":
            raise ValueError("tensors there have no values")
        torch.empty(1, device=place)
    except Exception as error:  # backends raise AssertionError, RuntimeError, TypeError, NotImplementedError
        reason = str(error).split(". ")[0].splitlines()[0]
        raise MisconfigurationException(
            f"`device` must be a device that this torch can use, such as 'cpu', got {device!r}: {reason}; leave it out "
            "to train where the model is"
        ) from error
    return place


def _refused(finding: Finding, seconds: float) -> OverfitResult:
    """The result where the model can't even be run."""
    sentence = f"not memorised: no step can be taken, as {finding.summary}"
    memory = Memory("not memorised", math.nan, math.nan, 0, None, None, None, None, None, None, sentence)
    return OverfitResult(memory, (), (), (finding,), seconds)


def device_of(model: torch.nn.Module) -> torch.device:
    """Where a model's first parameter or buffer lies; the CPU for one without any."""
    return next((item.device for item in [*model.parameters(), *model.buffers()]), torch.device("cpu"))
