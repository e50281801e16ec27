"""Numbers that tell what an operation of a certain kind was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["measured"]

_LOOKED_AT = 2**22


def measured(name: str, settings: dict[str, Any], sources: Sequence[tuple[str, int, torch.Tensor]]) -> dict[str, float]:
    """The numbers of one operation; see :attr:`unstuck.record.anatomy.Op.measured`.

    Args:
        name: of the operation.
        settings: its arguments that are no tensors.
        sources: its tensors: argument, place in a list, tensor.
    """
    taken = {argument: tensor for argument, _, tensor in sources}
    if name in ("nll_loss", "nll_loss2d") and "self" in taken:
        scores = taken["self"]
        dim = 1 if scores.dim() > 1 else 0
    elif name == "ctc_loss" and "log_probs" in taken:
        scores = taken["log_probs"]
        dim = scores.dim() - 1
    else:
        return {}
    if not scores.is_floating_point() or scores.numel() == 0 or scores.numel() > _LOOKED_AT:
        return {}
    return {"logsumexp": float(torch.logsumexp(scores.detach().float(), dim).mean())}
