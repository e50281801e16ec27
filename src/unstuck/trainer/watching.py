"""What the optimisation of a batch tells whoever watches it for values that aren't finite.

The loops know this interface and nothing of sessions; a Trainer with ``barebones=True`` has no watcher.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor
from torch.optim import Optimizer

__all__ = ["EvaluationWatcher", "StepWatcher"]


class EvaluationWatcher(Protocol):
    """Told of every batch of a validation or test."""

    def begin(self) -> None:
        """The step's method is about to be called."""

    def see(self, name: str, output: Any, arguments: tuple[Any, ...], batch_idx: int, dataloader_idx: int) -> None:
        """``validation_step`` or ``test_step``, the ``name``, has returned ``output``; its values are logged."""


class StepWatcher(Protocol):
    """Told of every batch of automatic optimisation, in this order; each call costs the step some microseconds."""

    suspects: bool
    """Whether a loss since the last step was not finite, so that :meth:`after_backward` is of interest."""

    def begin(self, arguments: tuple[Any, ...], batch_idx: int) -> None:
        """``training_step`` is about to be called with these arguments."""

    def see_loss(self, loss: Tensor) -> None:
        """It has returned this loss."""

    def after_backward(self) -> None:
        """Gradients have been accumulated; no hook has changed them yet. Asked for where it is of interest."""

    def backward_failed(self) -> None:
        """The backward pass has raised an exception."""

    def before_step(self, optimizer: Optimizer) -> None:
        """The optimiser is about to take the gradients, as hooks and clipping have left them."""

    def end(self, optimizer: Optimizer, stepped: bool, scaler_skipped: bool) -> None:
        """The batch is done with, and must not be kept.

        Args:
            optimizer: whose gradients it made.
            stepped: whether a step was due; else more batches add to its gradients.
            scaler_skipped: whether the loss scaler has dropped it.
        """
