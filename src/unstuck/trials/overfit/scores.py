"""Which samples of a classification are right, and how many can be."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["class_targets", "hits"]


def class_targets(output: Any, target: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """(predicted, wanted) classes, one for each decision of a batch; None where the task is no classification.

    Args:
        output: (samples, classes, ...) scores with integer targets (samples, ...), or (..., classes) with targets
            (...); or scores of two classes in the shape of targets that are all 0 or 1.
        target: as the loss takes it.
    """
    if not (isinstance(output, torch.Tensor) and isinstance(target, torch.Tensor)) or not output.is_floating_point():
        return None
    wanted = target.detach()
    if not wanted.is_floating_point() and not wanted.is_complex():
        for dim in (1, -1):
            if output.dim() > 1 and output.shape[dim] > 1 and _without(output.shape, dim) == tuple(wanted.shape):
                return output.detach().argmax(dim), wanted
    if output.numel() != wanted.numel() or wanted.numel() == 0 or not bool(((wanted == 0) | (wanted == 1)).all()):
        return None
    scores = output.detach()
    if scores.dim() > 2 or bool((wanted == wanted.flatten()[0]).all()):
        return None
    middle = 0.5 if bool((scores >= 0).all()) and bool((scores <= 1).all()) else 0.0
    return (scores > middle).long().reshape(wanted.shape), wanted.long()


def hits(
    predicted: torch.Tensor, wanted: torch.Tensor, groups: torch.Tensor, in_loss: torch.Tensor | None = None
) -> tuple[int, int, int]:
    """(right, attainable, all) decisions, without those that are left out of the loss.

    Args:
        predicted: (samples, ...) classes.
        wanted: the same shape.
        groups: (samples,) equal numbers for equal inputs; the most frequent class of each is attainable.
        in_loss: like ``wanted``, False for what is left out; None: that is -100.
    """
    counted = wanted != -100 if in_loss is None else in_loss
    right = int(((predicted == wanted) & counted).sum())
    places = wanted.reshape(wanted.shape[0], -1)
    if places.shape[0] != groups.shape[0]:
        return right, int(counted.sum()), int(counted.sum())
    attainable = 0
    group = groups.to(places.device).unsqueeze(1).expand_as(places)
    position = torch.arange(places.shape[1], device=places.device).expand_as(places)
    rows = torch.stack([group, position, places], -1)[counted.reshape(places.shape)]
    if rows.numel():
        kinds, counts = torch.unique(rows, dim=0, return_counts=True)
        _, where = torch.unique(kinds[:, :2], dim=0, return_inverse=True)
        best = torch.zeros(int(where.max()) + 1, dtype=counts.dtype, device=counts.device)
        attainable = int(best.scatter_reduce_(0, where, counts, "amax").sum())
    return right, attainable, int(counted.sum())


def _without(shape: torch.Size, dim: int) -> tuple[int, ...]:
    sizes = list(shape)
    del sizes[dim]
    return tuple(sizes)
