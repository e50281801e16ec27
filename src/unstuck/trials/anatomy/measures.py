"""Numbers that tell what an operation of a certain kind was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["measured"]

_LOOKED_AT = 2**22
_SORTED = 2**14
"""Elements of a target that are sorted, a regular sample of a larger one."""

_SHARES = (0.05, 0.2, 0.8, 0.95)
_COMPARING = frozenset(("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "sub"))

Sources = Sequence[tuple[str, int, torch.Tensor]]


def measured(name: str, settings: dict[str, Any], sources: Sources) -> dict[str, float]:
    """The numbers of one operation; see :attr:`unstuck.record.anatomy.Op.measured`.

    Args:
        name: of the operation.
        settings: its arguments that are no tensors.
        sources: its tensors: argument, place in a list, tensor.
    """
    if name in ("nll_loss", "nll_loss2d", "ctc_loss"):
        return _normaliser(name, sources[0][2])
    if name in _COMPARING and len(sources) >= 2:
        return _target(name, sources[0][2], sources[1][2])
    return {}


def _normaliser(name: str, scores: torch.Tensor) -> dict[str, float]:
    if not scores.is_floating_point() or scores.numel() == 0 or scores.numel() > _LOOKED_AT:
        return {}
    dim = scores.dim() - 1 if name == "ctc_loss" or scores.dim() == 1 else 1
    return {"logsumexp": float(torch.logsumexp(scores.detach().float(), dim).mean())}


def _target(name: str, one: torch.Tensor, other: torch.Tensor) -> dict[str, float]:
    if one.requires_grad == other.requires_grad:
        return {}
    output, target = (one, other) if one.requires_grad else (other, one)
    if not target.is_floating_point() or target.numel() < 2 or target.numel() != output.numel():
        return {}
    flat = target.detach().reshape(-1)
    values = flat[:: -(-flat.numel() // _SORTED)].float()
    values = values[values.isfinite()].sort().values
    if not values.numel():
        return {}
    last = values.numel() - 1
    found = {f"target {share:.0%}": float(values[round(share * last)]) for share in _SHARES}
    if name == "binary_cross_entropy" and target.dim() > 1:
        found["target sum"] = float(target.detach().float().sum(-1).mean())
    return found
