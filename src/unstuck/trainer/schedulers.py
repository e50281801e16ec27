"""Learning rate schedulers: reading their configuration, stepping them in time, and noticing a schedule that doesn't
fit its run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_warn

__all__ = ["LRSchedulerConfig", "configure_schedulers", "step_scheduler", "steps_of_scheduler", "warn_of_misfits"]

# A schedule that is this many times longer or shorter than the run was most likely counted in the other unit.
MISFIT_FACTOR = 4.0
# A rate that has shrunk to this part of its start trains nothing any more.
GONE = 1e-6
# Up to which step a lambda is searched for the place where it reaches 0.
LONGEST_LAMBDA = 2**20


@dataclass
class LRSchedulerConfig:
    """A scheduler and when it is stepped."""

    scheduler: Any
    name: str | None = None
    interval: Literal["step", "epoch"] = "epoch"
    frequency: int = 1
    reduce_on_plateau: bool = False
    monitor: str | None = None
    strict: bool = True
    """Whether a missing ``monitor`` is an error (or else a warning)."""


def configure_schedulers(
    schedulers: list[Any], monitor: str | None, *, automatic: bool, steps_itself: bool
) -> list[LRSchedulerConfig]:
    """Reads schedulers and scheduler dicts.

    Args:
        schedulers: as ``configure_optimizers`` returned them.
        monitor: the metric named beside the optimiser, for a scheduler that stands alone.
        automatic: whether the Trainer steps them.
        steps_itself: whether the module has its own ``lr_scheduler_step``, which makes schedulers of any kind possible.

    Raises:
        MisconfigurationException: a dict without scheduler, an unknown interval, a plateau scheduler without monitor,
            a foreign kind.
        TypeError: no scheduler at all.
    """
    configs = [_read(scheduler, monitor, automatic) for scheduler in schedulers]
    for config in configs:
        scheduler = config.scheduler
        if not (hasattr(scheduler, "state_dict") and hasattr(scheduler, "load_state_dict")):
            raise TypeError(f"{type(scheduler).__name__} is no scheduler: it needs `state_dict` and `load_state_dict`.")
        if automatic and not steps_itself and not isinstance(scheduler, (LRScheduler, ReduceLROnPlateau)):
            raise MisconfigurationException(
                f"{type(scheduler).__name__} isn't one of torch's schedulers. Override `lr_scheduler_step` to step it."
            )
    return configs


def _read(scheduler: Any, monitor: str | None, automatic: bool) -> LRSchedulerConfig:
    if not isinstance(scheduler, Mapping):
        if not (automatic and isinstance(scheduler, ReduceLROnPlateau)):
            return LRSchedulerConfig(scheduler)
        if monitor is None:
            raise _no_monitor()
        return LRSchedulerConfig(scheduler, reduce_on_plateau=True, monitor=monitor)
    known = {item.name for item in fields(LRSchedulerConfig)}
    unknown = sorted(str(key) for key in scheduler if key not in known)
    if unknown:
        rank_zero_warn(f"The lr scheduler dict has keys that nobody reads: {unknown}.", RuntimeWarning)
    given = {key: value for key, value in scheduler.items() if key in known}
    if "scheduler" not in given:
        raise MisconfigurationException("The lr scheduler dict lacks the key 'scheduler' with the scheduler itself.")
    if not automatic:
        ignored = sorted(key for key in ("reduce_on_plateau", "monitor", "strict") if key in given)
        if ignored:
            rank_zero_warn(
                f"The lr scheduler dict has {ignored}, which mean nothing in manual optimization: there you call"
                " `step()` yourself.",
                RuntimeWarning,
            )
        return LRSchedulerConfig(**{key: value for key, value in given.items() if key not in ignored})
    if given.get("interval", "epoch") not in ("step", "epoch"):
        raise MisconfigurationException(
            f"The lr scheduler's 'interval' must be 'step' or 'epoch', got {given['interval']!r}."
        )
    frequency = given.get("frequency", 1)
    if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 1:
        raise MisconfigurationException(
            f"The lr scheduler's 'frequency' must be an integer of at least 1, got {frequency!r}."
        )
    given.setdefault("reduce_on_plateau", isinstance(given["scheduler"], ReduceLROnPlateau))
    if given["reduce_on_plateau"] and given.get("monitor") is None:
        raise _no_monitor()
    if isinstance(given["scheduler"], lr_scheduler.OneCycleLR) and given.get("interval", "epoch") == "epoch":
        rank_zero_warn(
            "OneCycleLR is stepped once per epoch ('interval': 'epoch'); its length is usually counted in steps"
            " ('interval': 'step').",
            RuntimeWarning,
        )
    return LRSchedulerConfig(**given)


def _no_monitor() -> MisconfigurationException:
    return MisconfigurationException(
        "A ReduceLROnPlateau scheduler needs the metric that it watches: 'monitor' in the dict that"
        " `configure_optimizers` returns."
    )


def step_scheduler(
    config: LRSchedulerConfig,
    count: int,
    metrics: Callable[[], Mapping[str, Any]],
    lr_scheduler_step: Callable[[Any, Any], None] | None,
) -> None:
    """Steps one scheduler if it is due.

    Args:
        config: the scheduler.
        count: batches of this epoch, or epochs, so far, in the unit of ``config.interval``.
        metrics: gives the metrics that the monitor is looked up in.
        lr_scheduler_step: the module's own way to step, if it has one.

    Raises:
        MisconfigurationException: the monitor isn't among the metrics and the scheduler is strict.
    """
    if count % config.frequency:
        return
    value = None
    if config.reduce_on_plateau:
        available = metrics()
        value = available.get(str(config.monitor))
        if value is None:
            kind = type(config.scheduler).__name__
            problem = f"The scheduler {kind} watches {config.monitor!r}, which isn't among the logged metrics"
            if config.strict:
                raise MisconfigurationException(f"{problem}: {sorted(available)}.")
            rank_zero_warn(f"{problem}; it isn't stepped.", RuntimeWarning)
            return
    if lr_scheduler_step is not None:
        lr_scheduler_step(config.scheduler, value)
    elif value is None:
        config.scheduler.step()
    else:
        config.scheduler.step(value)


def steps_of_scheduler(config: LRSchedulerConfig, epochs: float, optimizer_steps: float) -> float:
    """How many times a run steps a scheduler (infinite for a run without end)."""
    total = optimizer_steps if config.interval == "step" else epochs
    return total / config.frequency


def warn_of_misfits(configs: list[LRSchedulerConfig], epochs: float, optimizer_steps: float) -> None:
    """Warns of each scheduler whose own length differs by far from the steps that it will get.

    The usual cause is a length counted in steps with interval "epoch", or the reverse: the rate then hardly moves, or
    is gone after a small part of the run.

    Args:
        configs: the schedulers.
        epochs: epochs of the run, infinite if unknown.
        optimizer_steps: optimiser steps of the run, infinite if unknown.
    """
    for config in configs:
        steps = steps_of_scheduler(config, epochs, optimizer_steps)
        if steps == float("inf") or steps < 1:
            continue
        length, end = _own_length(config.scheduler, steps), _end_of_rate(config.scheduler)
        if length is not None and length.steps > MISFIT_FACTOR * steps:
            text, consequence = length.text, f"only {steps:.0f} of its {length.steps:g} steps will be made"
        elif end is not None and end.steps * MISFIT_FACTOR < steps:
            text, consequence = end.text, f"it is at its end after {end.steps:g} of {steps:.0f} steps"
        else:
            continue
        rank_zero_warn(
            f"The schedule of {type(config.scheduler).__name__} ({text}) doesn't fit this run: stepped with 'interval':"
            f" {config.interval!r}, 'frequency': {config.frequency}, {consequence}. Check the interval, or the"
            " schedule's length.",
            RuntimeWarning,
        )


@dataclass(frozen=True)
class _Length:
    text: str
    steps: float


def _own_length(scheduler: Any, steps: float) -> _Length | None:
    """The number of steps for which a schedule was made, by its own arguments.

    Args:
        scheduler: the scheduler.
        steps: those that it will get; a lambda that has moved the rate by then isn't called too long.
    """
    if isinstance(scheduler, lr_scheduler.OneCycleLR):
        return _Length(f"total_steps={scheduler.total_steps}", scheduler.total_steps)
    if isinstance(scheduler, lr_scheduler.CosineAnnealingLR):
        return _Length(f"T_max={scheduler.T_max}", scheduler.T_max)
    if isinstance(scheduler, (lr_scheduler.LinearLR, lr_scheduler.PolynomialLR)):
        return _Length(f"total_iters={scheduler.total_iters}", scheduler.total_iters)
    if isinstance(scheduler, lr_scheduler.MultiStepLR):
        first = min(scheduler.milestones, default=None)
        return None if first is None else _Length(f"milestones from {first}", first)
    if isinstance(scheduler, lr_scheduler.StepLR):
        return _Length(f"step_size={scheduler.step_size}", scheduler.step_size)
    if isinstance(scheduler, lr_scheduler.LambdaLR) and not _has_moved(scheduler, int(steps)):
        return _end_of_lambda(scheduler)
    return None


def _end_of_rate(scheduler: Any) -> _Length | None:
    """The step from which on a schedule has nothing sensible left: the rate is (nearly) 0, or turns back up."""
    if isinstance(scheduler, (lr_scheduler.OneCycleLR, lr_scheduler.CosineAnnealingLR, lr_scheduler.PolynomialLR)):
        return _own_length(scheduler, 0)
    if isinstance(scheduler, lr_scheduler.LambdaLR):
        return _end_of_lambda(scheduler)
    if isinstance(scheduler, (lr_scheduler.StepLR, lr_scheduler.ExponentialLR)) and 0 < scheduler.gamma < 1:
        decays = math.ceil(math.log(GONE) / math.log(scheduler.gamma))
        return _Length(f"gamma={scheduler.gamma:g}", decays * getattr(scheduler, "step_size", 1))
    return None


def _has_moved(scheduler: lr_scheduler.LambdaLR, steps: int) -> bool:
    """Whether the user's factor is another one after so many steps, by a tenth at least."""
    factor = scheduler.lr_lambdas[0]
    try:
        first, last = factor(0), factor(steps)
    except Exception:  # noqa: BLE001 - the user's function may refuse any step number but its own
        return True
    return bool(abs(last - first) > 0.1 * abs(first))


def _end_of_lambda(scheduler: lr_scheduler.LambdaLR) -> _Length | None:
    """The step at which the user's factor reaches 0 and stays there, looked for at powers of two, then by halving."""
    factor = scheduler.lr_lambdas[0]
    try:
        high = 1
        while high < LONGEST_LAMBDA and factor(high) > 0:
            high *= 2
        if high >= LONGEST_LAMBDA or factor(2 * high) > 0:
            return None
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if factor(middle) <= 0 else (middle, high)
    except Exception:  # noqa: BLE001 - the user's function may refuse any step number but its own
        return None
    return _Length(f"a factor of 0 from step {high} on", high)
