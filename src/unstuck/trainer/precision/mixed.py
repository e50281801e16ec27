"""Mixed precision: parameters in 32 bits, the forward pass in 16 where torch's autocast says that it is safe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import OptState
from torch.optim import LBFGS, Optimizer

from unstuck.errors import MisconfigurationException
from unstuck.trainer.precision.base import Precision, Step

__all__ = ["MixedPrecision"]


class MixedPrecision(Precision):
    """ "16-mixed" (float16 with a gradient scaler, on the CPU too) or "bf16-mixed" (bfloat16, which needs no scaler).

    Args:
        precision: "16-mixed" or "bf16-mixed".
        device: the device type on which the run computes ("cpu", "cuda").
        scaler: a :class:`torch.amp.GradScaler` of the user's own, for "16-mixed".

    Raises:
        ValueError: another precision.
        MisconfigurationException: a scaler with "bf16-mixed".
    """

    def __init__(self, precision: str, device: str, scaler: torch.amp.GradScaler | None = None) -> None:
        if precision not in ("16-mixed", "bf16-mixed"):
            raise ValueError(f"MixedPrecision(precision={precision!r}): choose '16-mixed' or 'bf16-mixed'.")
        if precision == "bf16-mixed" and scaler is not None:
            raise MisconfigurationException(f"precision='bf16-mixed' takes no scaler, got {scaler!r}.")
        self.precision = precision
        self.device = device
        self.dtype = torch.bfloat16 if precision == "bf16-mixed" else torch.float16
        if precision == "16-mixed" and scaler is None:
            scaler = torch.amp.GradScaler(device)
        self.scaler = scaler
        self._scaled_losses = 0
        self._unscaled_at: dict[int, int] = {}

    def autocast_context_manager(self) -> torch.autocast:
        """A fresh context for the forward pass.

        The cast weights aren't kept between uses, so gradients of shared ones add up in 32 bits.
        """
        return torch.autocast(self.device, dtype=self.dtype, cache_enabled=False)

    def wrap_step(self, step: Step) -> Step:
        context = self.autocast_context_manager

        def autocast_step(*args: Any) -> Any:
            with context():
                return step(*args)

        return autocast_step

    def scale(self, loss: Tensor) -> Tensor:
        if self.scaler is None:
            return loss
        self._scaled_losses += 1
        scaled: Tensor = self.scaler.scale(loss)
        return scaled

    def optimizer_step(
        self,
        optimizer: Optimizer,
        closure: Callable[[], Any] | None,
        before_step: Callable[[Optimizer], None],
        **kwargs: Any,
    ) -> Any:
        scaler = self.scaler
        if scaler is None:
            return super().optimizer_step(optimizer, closure, before_step, **kwargs)
        if isinstance(optimizer, LBFGS):
            raise MisconfigurationException(
                "precision='16-mixed' doesn't work with LBFGS: its closure is called several times per step."
            )
        loss = None
        if closure is not None:
            loss = closure()
            if loss is None:
                # A skipped step has no gradients to unscale; what clipping has unscaled isn't stepped.
                before_step(optimizer)
                if self._unscaled_at.pop(id(optimizer), None) is not None:
                    scaler._per_optimizer_states.pop(id(optimizer))
                return None
        # What a closure has just computed is scaled; without one the gradients may have been clipped already.
        self._unscale(optimizer, again=closure is not None)
        before_step(optimizer)
        scale = scaler.get_scale()
        result = scaler.step(optimizer, **kwargs)
        self._unscaled_at.pop(id(optimizer), None)
        self._update(optimizer)
        # A scaler lowers its scale exactly when it has dropped the step.
        self.skipped_step = scaler.get_scale() < scale
        return result

    def check_clipping(self, optimizer: Optimizer) -> None:
        if self.scaler is not None and _unscales_itself(optimizer):
            raise RuntimeError(
                f"The gradients of {type(optimizer).__qualname__} can't be clipped with precision='16-mixed': a fused"
                " optimiser unscales"
                " them itself inside of its step. Make it with `fused=False`."
            )

    def unscale(self, optimizer: Any) -> None:
        if self.scaler is None:
            return
        optimizer = getattr(optimizer, "optimizer", optimizer)
        if self._unscaled_at.get(id(optimizer), self._scaled_losses) != self._scaled_losses:
            raise RuntimeError(
                "Gradients were clipped, and so unscaled, before another backward pass added scaled ones. With"
                " precision='16-mixed' clip once, after the last backward pass before the optimizer's step."
            )
        self._unscale(optimizer, again=False)

    def _unscale(self, optimizer: Optimizer, again: bool) -> None:
        """Unscales the gradients, in the pass in which the scaler looks for infinite ones.

        Args:
            optimizer: whose.
            again: whether they can't have been unscaled since the last step.
        """
        scaler = self.scaler
        if not scaler.is_enabled():
            return
        if again or scaler._per_optimizer_states[id(optimizer)]["stage"] is OptState.READY:
            scaler.unscale_(optimizer)
            self._unscaled_at[id(optimizer)] = self._scaled_losses

    def _update(self, optimizer: Optimizer) -> None:
        """Lets the scaler choose its next scale by what this optimiser's step has met.

        What it knows of the gradients of others that wait for their step, unscaled already, is kept for that.
        """
        scaler = self.scaler
        states = scaler._per_optimizer_states if scaler.is_enabled() else {}
        waiting = {key: states.pop(key) for key in self._unscaled_at if key in states}
        scaler.update()
        if waiting:
            scaler._per_optimizer_states.update(waiting)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.scaler is not None:
            self.scaler.load_state_dict(state_dict)


def _unscales_itself(optimizer: Optimizer) -> bool:
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))
