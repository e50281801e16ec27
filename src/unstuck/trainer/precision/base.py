"""Single precision, and what every precision answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from unstuck.measure.gradient_norms import norms_of, total_of

__all__ = ["ClipObserver", "Precision"]

Step = Callable[..., Any]


class ClipObserver(Protocol):
    """Looks at gradients when they are clipped."""

    def clipping_begins(self, optimizer: Any, algorithm: str) -> Tensor | None:
        """Clipping is about to act; returns the 2-norm of the gradients if it is known and needn't be computed."""

    def clipped(self, optimizer: Any, algorithm: str, limit: float, norm: Tensor | None) -> None:
        """Clipping has acted; with the norm before it, where it is by norm."""


class Precision:
    """32-bit floats throughout ("32-true"): the module and its batches stay as they are.

    A subclass overrides what differs. Nothing here is called in a step where the answer is "nothing to do":
    :meth:`wrap_step` hands
    the user's method back, :attr:`converts_batches` and :attr:`scaler` are read once per run.
    """

    @property
    def clip_observers(self) -> list[ClipObserver]:
        """Who is told of clipping; a list to be changed."""
        observers: list[ClipObserver] = self.__dict__.setdefault("_clip_observers", [])
        return observers

    precision: str = "32-true"
    scaler: Any = None
    converts_batches: bool = False
    skipped_step: bool = False
    """Whether the scaler dropped the last optimiser step, for infinite gradients."""

    def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Casts the module's parameters and buffers to the format of the run."""
        return module

    def convert_batch(self, batch: Any) -> Any:
        """Casts the floating-point tensors of a batch, in whatever containers they are."""
        return batch

    def wrap_step(self, step: Step) -> Step:
        """The user's step method, run in this precision."""
        return step

    def init_context(self) -> AbstractContextManager[Any]:
        """The context in which ``configure_model`` and ``Trainer.init_module`` make parameters."""
        return nullcontext()

    def scale(self, loss: Tensor) -> Tensor:
        """The loss that ``backward`` takes."""
        return loss

    def optimizer_step(
        self,
        optimizer: Optimizer,
        closure: Callable[[], Any] | None,
        before_step: Callable[[Optimizer], None],
        **kwargs: Any,
    ) -> Any:
        """Steps an optimiser.

        Args:
            optimizer: the optimiser.
            closure: computes loss and gradients; None if the gradients are there already (manual optimisation).
            before_step: to be called between the gradients and the step: hooks and clipping, on unscaled gradients.
            kwargs: handed to ``optimizer.step``.

        Returns:
            What ``optimizer.step`` returns.
        """

        def gradients() -> Any:
            loss = None if closure is None else closure()
            before_step(optimizer)
            return loss

        return optimizer.step(closure=gradients, **kwargs)

    def check_clipping(self, optimizer: Optimizer) -> None:
        """Raises if the gradients of this optimiser can't be clipped in this precision."""

    def unscale(self, optimizer: Any) -> None:
        """Makes scaled gradients those of the loss itself before the optimiser's step, unless they are already.

        Args:
            optimizer: whose gradients, maybe wrapped.
        """

    def clip_gradients(
        self, optimizer: Any, clip_val: float | None, algorithm: Any = None, error_if_nonfinite: bool = False
    ) -> None:
        """Clips the gradients of an optimiser's parameters.

        Args:
            optimizer: whose parameters.
            clip_val: the largest norm, or the largest absolute value; None or not above 0: nothing is done.
            algorithm: "norm" (the 2-norm of all gradients as one vector; the default) or "value" (each element).
            error_if_nonfinite: whether gradients that aren't finite are an error, before anything is clipped.

        Raises:
            RuntimeError: asked for by ``error_if_nonfinite``, as by torch's own clipping.
        """
        if clip_val is None or clip_val <= 0:
            return
        self.check_clipping(optimizer)
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not parameters:
            # A skipped step has none, at which torch's clipping by value stumbles.
            return
        algorithm = "norm" if algorithm is None or algorithm == "norm" else "value"
        observers = self.clip_observers
        known = [observer.clipping_begins(optimizer, algorithm) for observer in observers]
        norm = next((norm for norm in known if norm is not None), None)
        if error_if_nonfinite:
            _refuse_nonfinite(parameters, norm)
        if algorithm != "norm":
            torch.nn.utils.clip_grad_value_(parameters, clip_val)
        elif norm is not None and hasattr(torch.nn.utils.clip_grad, "_clip_grads_with_norm_"):
            # Looked up here, since a watched run has put something around it.
            torch.nn.utils.clip_grad._clip_grads_with_norm_(parameters, clip_val, norm)
        else:
            norm = torch.nn.utils.clip_grad_norm_(parameters, clip_val)
        for observer in observers:
            observer.clipped(optimizer, algorithm, clip_val, norm)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold to go on exactly."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""


def _refuse_nonfinite(parameters: list[Any], norm: Tensor | None) -> None:
    """Raises if the norm of all gradients, computed here if it isn't known, isn't finite."""
    if norm is None:
        norm = total_of(norms_of([parameter.grad for parameter in parameters], 2.0), 2.0)
    if not math.isfinite(float(norm)):
        raise RuntimeError(
            f"The total norm of the gradients is {float(norm)}, so they aren't clipped"
            " (`clip_gradients(error_if_nonfinite=True)`)."
        )
