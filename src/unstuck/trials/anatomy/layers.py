"""What single operations of layers do to a batch: how far its samples lie apart, what a normalisation works with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["measured_of", "spreads_of"]

_LAYERS = frozenset(("addmm", "mm", "bmm", "baddbmm", "linear", "convolution", "matmul", "addmv", "mv"))
_BATCH_NORMS = frozenset(("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm"))
_LAYER_NORMS = frozenset(("native_layer_norm", "layer_norm"))
_GROUP_NORMS = frozenset(("native_group_norm", "group_norm"))
_NORMS = _BATCH_NORMS | _LAYER_NORMS | _GROUP_NORMS
_LOOKED_AT = 2**22
_MOST = 32
"""Slices of a weight along each of the first two dimensions that are compared."""


def measured_of(
    name: str,
    settings: dict[str, Any],
    sources: Sequence[tuple[str, int, torch.Tensor]],
    outputs: Sequence[torch.Tensor],
) -> dict[str, float]:
    """Numbers of one operation by name; see :attr:`unstuck.record.anatomy.Op.measured`.

    Args:
        name: of the operation, as users know it.
        settings: its arguments that are no tensors.
        sources: its tensors: argument, place in a list, tensor.
        outputs: its results.
    """
    if not outputs or (name not in _LAYERS and name not in _NORMS):
        return {}
    result, tensors = outputs[0], {argument: tensor for argument, _, tensor in sources}
    if not result.is_floating_point() or result.numel() == 0 or result.numel() > _LOOKED_AT:
        return {}
    if name in _LAYERS and result.dim() >= 2 and result.shape[0] > 1:
        return {"apart": _apart(result)}
    if name in _BATCH_NORMS:
        return _of_batch_norm(settings, tensors)
    if name in _LAYER_NORMS:
        shape = settings.get("normalized_shape") or []
        return _of_groups(tensors["input"], -1 if not shape else torch.Size(shape).numel(), settings)
    if name in _GROUP_NORMS:
        source = tensors["input"]
        groups = int(settings.get("group") or settings.get("num_groups") or 1)
        return _of_groups(source, source[0].numel() // groups, settings)
    return {}


def spreads_of(weight: torch.Tensor, groups: int = 1) -> tuple[float, float] | None:
    """How much the slices of a weight along its first and its second dimension differ.

    Deviation from their mean over the root mean square: 0 for equal slices, about 1 for random ones. Of a regular
    sample where the weight is large; None where it has fewer than two dimensions.

    Args:
        weight: the units of a layer lie along one of the first two dimensions.
        groups: blocks along the first dimension that are compared within themselves only: the gates of a recurrent
            layer.
    """
    if weight.dim() < 2 or weight.numel() == 0 or not weight.is_floating_point() or weight.is_meta:
        return None
    values = weight.detach()
    rows, columns = (-(-size // _MOST) for size in values.shape[:2])
    sample = values.unflatten(0, (groups, -1))[:, ::rows, ::columns]
    return _spread(sample, 1), _spread(sample, 2)


def _spread(values: torch.Tensor, dim: int) -> float:
    values = values.double()
    size = values.pow(2).mean().sqrt()
    deviation = (values - values.mean(dim, keepdim=True)).pow(2).mean().sqrt()
    ratio = float(deviation / size) if float(size) > 0.0 else 0.0
    return ratio if ratio == ratio else 1.0


def _apart(result: torch.Tensor) -> float:
    """Standard deviation over the first dimension, root mean square over the rest."""
    values = result.detach().reshape(result.shape[0], -1).float()
    # twice over the values, but several times faster than torch.var
    return float((values - values.mean(0)).square_().mean().sqrt())


def _of_batch_norm(settings: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, float]:
    source = tensors["input"].detach().float()
    if source.dim() < 2 or not settings.get("training", True):
        return {}
    dims = [dim for dim in range(source.dim()) if dim != 1]
    variance, mean = torch.var_mean(source, dims, correction=0)
    eps = float(settings.get("eps") or settings.get("epsilon") or 0.0)
    numbers = {
        "values per statistic": source.numel() / source.shape[1],
        "passed": _passed(variance, eps),
    }
    running_mean, running_var = tensors.get("running_mean"), tensors.get("running_var")
    if running_mean is not None and running_var is not None:
        running_var = running_var.detach().float()
        # what evaluation gives for this batch: each channel's values shifted and scaled by what the two differ in
        shift = (mean - running_mean.detach().float()) / (running_var + eps).sqrt()
        scale = ((variance + eps) / (running_var + eps)).sqrt()
        numbers["evaluation shift"] = float(shift.pow(2).mean().sqrt())
        numbers["evaluation scale"] = float(scale.clamp(1e-12).log().pow(2).mean().sqrt().exp())
    return numbers


def _of_groups(source: torch.Tensor, size: int, settings: dict[str, Any]) -> dict[str, float]:
    if size <= 0 or source.numel() % size:
        return {}
    eps = float(settings.get("eps") or 0.0)
    variance = source.detach().float().reshape(-1, size).var(1, correction=0)
    return {"values per statistic": float(size), "passed": _passed(variance, eps)}


def _passed(variance: torch.Tensor, eps: float) -> float:
    """What is left of unit variance after a normalisation: below 1 as far as eps outweighs the variance.

    Channels without any variance are left out.
    """
    living = variance[variance > 0]
    return float((living / (living + eps)).mean()) if living.numel() else 0.0
