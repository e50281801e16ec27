"""Where a step of a trial made its first NaN or infinity: the step is ours, so it is run once more, traced."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from unstuck.diagnosis.incidents import origin_finding
from unstuck.findings import Finding, Severity
from unstuck.measure import rng
from unstuck.measure.finiteness import Sweep, all_finite
from unstuck.record.origin import Origin
from unstuck.session.session import Session
from unstuck.trainer.data.seed import isolate_rng
from unstuck.trials.overfit.training import Pass, Passed
from unstuck.trials.tracing import OpTrace

__all__ = ["StepTracer", "with_origin"]


class StepTracer:
    """Runs the passes of a trial; the first whose loss or gradients aren't finite is run again before its step.

    Its weights are still there then, and its batch and random states are given to it a second time. What the
    user's code counts for itself has moved on, so that a value that isn't bad any more has no origin.

    Args:
        model: that is trained.
        run: the pass of one batch.

    Attributes:
        finding: the operation and line, None where there is none or it can't be found.
    """

    def __init__(self, model: torch.nn.Module, run: Pass) -> None:
        self.finding: Finding | None = None
        self._model = model
        self._run = run
        self._sweep = Sweep(list(model.parameters()))
        self._states: rng.RandomState | None = None
        self._passes = 0
        self._done = False

    def run(self, model: torch.nn.Module, batch: Any) -> Passed:
        """The pass of one batch; its random states are kept until the next."""
        if not self._done:
            self._states = rng.capture()
            self._passes += 1
        return self._run(model, batch)

    def look(self, batch: Any, loss: torch.Tensor) -> None:
        """Look at a pass whose gradients are complete and whose step hasn't been taken."""
        if self._done or (all_finite([loss.detach()]) and self._sweep.gradients_finite()):
            return
        self._done = True
        parameters = list(self._model.parameters())
        gradients = [item.grad for item in parameters]
        for item in parameters:
            item.grad = None
        try:
            origin = self._traced(batch, parameters)
        except Exception:  # noqa: BLE001 - the user's code, called once more than it expects; then less is known
            origin = None
        finally:
            for item, gradient in zip(parameters, gradients, strict=True):
                item.grad = gradient
        self.finding = None if origin is None else origin_finding(origin, self._passes - 1)

    def _traced(self, batch: Any, parameters: Sequence[torch.Tensor]) -> Origin | None:
        lazy = any(map(is_lazy, parameters))
        trace = OpTrace(models={} if lazy else {"model": self._model}, batch=batch)
        with ExitStack() as stack:
            stack.enter_context(Session.set_aside())
            stack.enter_context(isolate_rng())
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # what the pass warns of has been told by the pass itself
            stack.enter_context(torch.enable_grad())
            assert self._states is not None
            rng.restore(self._states)
            with trace:
                loss = self._run(self._model, batch).loss
                loss.backward()
            return trace.origin_of(loss) or trace.origin_of_gradient(*parameters)


def with_origin(findings: Sequence[Finding], traced: Finding | None) -> tuple[Finding, ...]:
    """The findings with the traced one in the place of that which says less of the same value.

    Where another cause explains the value, that stands as it is; but gradients of a pass that wasn't finite itself are
    no cause.
    """
    if traced is None:
        return tuple(findings)
    bad = [item for item in findings if item.code.startswith("numerics.nonfinite")]
    step = bad[0].where.step if bad and bad[0].where.step is not None else traced.where.step
    others = [item for item in findings if item not in bad and not _is_later(item, traced, step)]
    if not bad and any(item.severity is Severity.ERROR for item in others):
        return tuple(others)
    symptoms = bad[0].symptoms if bad else ()
    return (replace(traced, where=replace(traced.where, step=step), symptoms=symptoms), *others)


def _is_later(item: Finding, traced: Finding, step: int | None) -> bool:
    """Whether it tells of gradients of the pass in which the value was made, or of later ones."""
    if item.code != "optim.exploding-gradient" or traced.code == "numerics.nonfinite-backward":
        return False
    return item.where.step is not None and step is not None and item.where.step >= step
