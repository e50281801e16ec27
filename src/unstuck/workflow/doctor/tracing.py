"""One step of a program, operation by operation, and the shapes of a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from unstuck.callbacks.callback import Callback
from unstuck.diagnosis.incidents import origin_finding
from unstuck.findings import Finding
from unstuck.trainer.data.transfer import move_data_to_device
from unstuck.trials.tracing import OpTrace

__all__ = ["Shapes", "TracedStep"]


class Shapes(Callback):
    """Notes the types and shapes of the tensors of the first batch."""

    told = "unknown form"
    samples = 0

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Look at the first batch."""
        if batch_idx == 0:
            leaves = [item for item in tree_leaves(batch) if isinstance(item, torch.Tensor)]
            shapes = [
                f"{str(item.dtype).removeprefix('torch.')} {'x'.join(map(str, item.shape)) or 'scalar'}"
                for item in leaves[:6]
            ]
            self.told = ", ".join(shapes) or "no tensors"
            self.samples = next((item.shape[0] for item in leaves if item.dim()), 0)


class TracedStep(Callback):
    """Traces the forward and backward passes of one batch and asks where a non-finite value came from.

    In manual optimisation it is all of the step, updates included.

    Args:
        model: whose modules and parameters are named.
        step: number of optimiser steps that are complete before it.
    """

    def __init__(self, model: torch.nn.Module, step: int = 0) -> None:
        self.ops = 0
        self.finding: Finding | None = None
        self.failures: tuple[str, ...] = ()
        self._model = model
        self._step = step
        self._batch = 0
        self._done = False
        self._trace: OpTrace | None = None
        self._losses: list[torch.Tensor] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin."""
        if trainer.global_step == self._step and self._trace is None and not self._done:
            batch = move_data_to_device(batch, pl_module.device)
            lazy = any(map(is_lazy, self._model.parameters()))  # what has no shape yet can't be told apart
            self._trace = OpTrace(models={} if lazy else {"model": self._model}, batch=batch)
            self._batch = batch_idx
            self._trace.__enter__()

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        """Keep the loss."""
        self._losses.append(loss)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Gradients are complete."""
        if pl_module.automatic_optimization:
            self._close(ask=True)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """All of the step is done."""
        self._close(ask=True)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave torch as it was found."""
        self._close(ask=False)

    def _close(self, ask: bool) -> None:
        trace, self._trace = self._trace, None
        if trace is None:
            return
        self._done = True
        trace.__exit__(None, None, None)
        self.ops, self.failures = trace.ops, tuple(f"tracing: {item}" for item in trace.failures[:4])
        if not ask:
            return
        parameters = list(self._model.parameters())
        origin = trace.origin_of(*self._losses) or trace.origin_of_gradient(*parameters)
        if origin is None:
            return
        self.finding = origin_finding(origin, self._step, self._batch)
