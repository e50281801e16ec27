"""What the loss of a pass was made of: the call of torch's loss function, its prediction and its target."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

__all__ = ["CapturedLoss", "LossCapture", "inputs_beside"]

_NAMES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
)
_SIGNATURES = {getattr(functional, name): inspect.signature(getattr(functional, name)) for name in _NAMES}


@dataclass(frozen=True)
class CapturedLoss:
    """One call of a loss function.

    Attributes:
        loss_fn: the same call with another prediction and target.
        output: the prediction.
        target: the target.
        value: what it returned.
    """

    loss_fn: Callable[[Any, Any], torch.Tensor]
    output: torch.Tensor
    target: Any
    value: torch.Tensor


class LossCapture(TorchFunctionMode):
    """While it is active, remembers calls of torch's loss functions that returned a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[CapturedLoss] = []
        self._inside = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        signature = _SIGNATURES.get(func) if not self._inside else None
        if signature is None:
            return func(*args, **keywords)
        self._inside = True  # some are written in terms of others
        try:
            value = func(*args, **keywords)
        finally:
            self._inside = False
        bound = signature.bind(*args, **keywords).arguments
        first, second, *_ = signature.parameters
        output, target = bound.pop(first), bound.pop(second)
        if isinstance(value, torch.Tensor) and value.numel() == 1 and isinstance(output, torch.Tensor):
            self.calls.append(
                CapturedLoss(lambda given, wanted: func(given, wanted, **bound), output, target, value.detach())
            )
        return value

    def only(self, loss: torch.Tensor) -> CapturedLoss | None:
        """The call that made the whole of a loss; None where several did, or something else as well."""
        found = [call for call in self.calls if torch.allclose(call.value.double(), loss.detach().double(), rtol=1e-5)]
        return found[0] if len(self.calls) == 1 and found else None


def inputs_beside(target: Any, batch: Any) -> list[torch.Tensor]:
    """The tensors of a batch without its target, however that was reshaped."""
    wanted = [item.detach() for item in tree_leaves(target) if isinstance(item, torch.Tensor)]
    return [
        item
        for item in tree_leaves(batch)
        if isinstance(item, torch.Tensor) and not any(_same_numbers(item, other) for other in wanted)
    ]


def _same_numbers(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.numel() == b.numel() and torch.equal(a.detach().flatten().double().cpu(), b.flatten().double().cpu())
