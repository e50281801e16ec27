"""Running one batch of an evaluation again under the tracer: nothing is differentiated, nothing is logged."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from unstuck.measure.rng import RandomState
from unstuck.record.origin import Origin
from unstuck.trials.replay.heap import HeapTooLargeError
from unstuck.trials.replay.sandbox import CannotReplayError, sandbox
from unstuck.trials.replay.stand_ins import attribute
from unstuck.trials.tracing import OpTrace

__all__ = ["EvaluationStep", "replay_evaluation"]

StandIn = tuple[Any, str, Callable[..., Any]]


@dataclass(frozen=True)
class EvaluationStep:
    """A batch whose loss wasn't finite.

    Attributes:
        call: runs it again.
        value: what the loss was.
        find: tells the loss from what ``call`` has returned; None if it isn't there.
        start: random states before it.
        roots: what the call may reach and change.
        batch: its data.
        models: by the variable that holds each.
        optimizers: of the program.
        stand_ins: (object, name, function) of functions to replace meanwhile, such as the one that logs.
    """

    call: Callable[[], Any]
    value: float
    find: Callable[[Any], torch.Tensor | None]
    start: RandomState
    roots: tuple[Any, ...]
    batch: Any
    models: dict[str, torch.nn.Module]
    optimizers: Iterable[torch.optim.Optimizer]
    stand_ins: tuple[StandIn, ...] = ()


def replay_evaluation(step: EvaluationStep) -> tuple[Origin | None, str | None]:
    """Where the loss of an evaluation's batch turned non-finite; the reason why that can't be told."""
    trace = OpTrace(models=step.models, batch=step.batch, stop=sys._getframe())
    try:
        with sandbox(step.roots, step.optimizers, step.start, _refuse_backward), contextlib.ExitStack() as around:
            for owner, name, function in step.stand_ins:
                around.enter_context(attribute(owner, name, function))
            around.enter_context(torch.no_grad())
            with trace:
                result = step.call()
            loss = step.find(result)
            if loss is None:
                return None, "it gave no loss when it was run again"
            value = float(loss.detach().item())
            if value != step.value and not (math.isnan(value) and math.isnan(step.value)):
                return None, f"the loss is {value:.9g} when run again, it was {step.value:.9g}"
            return trace.origin_of(loss), None
    except (CannotReplayError, HeapTooLargeError) as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything when it runs again
        return None, f"the step raised {type(error).__name__}: {str(error)[:200]}"


def _refuse_backward(*_: Any, **__: Any) -> None:
    raise CannotReplayError("the evaluation computes gradients")
