"""How well targets can be told from inputs, without the program's model: a linear model and nearest neighbours.

Both are fitted to standardised inputs. Skill is measured on samples that the fit hasn't seen, so that it is about zero
where inputs and targets have nothing to do with each other. No random numbers are drawn from the program's generators.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

__all__ = [
    "LinearFit",
    "linear_fit",
    "nearest",
    "skill_of_neighbours",
    "standardised",
    "word_counts",
]

_ITERATIONS = 150
_NEIGHBOURS = 5
_DECAY = 1e-2
_WORDS = 512


@dataclass(frozen=True)
class LinearFit:
    """What a linear model reaches on the half of the samples that it wasn't fitted to.

    Attributes:
        loss: mean negative log-likelihood in nats for classes, mean square error for numbers.
        skill: (accuracy - that of the most frequent class) / (1 - that), or R squared; at most 1, may be negative.
    """

    loss: float
    skill: float


def standardised(rows: torch.Tensor) -> torch.Tensor:
    """Columns with mean 0 and deviation 1, columns that hardly vary left out: (samples, columns)."""
    rows = torch.where(torch.isfinite(rows), rows, 0.0).double()
    mean, deviation = rows.mean(0), rows.std(0)
    used = deviation > 1e-6 * rows.abs().amax(0).clamp_min(1e-30)
    return (rows[:, used] - mean[used]) / deviation[used]


def word_counts(rows: torch.Tensor) -> torch.Tensor:
    """For token ids: how often each occurs in a sample, (samples, at most 512)."""
    ids = rows.long().clamp_min(0) % _WORDS
    counts = torch.zeros(rows.shape[0], _WORDS, dtype=torch.float64)
    return counts.scatter_add_(1, ids, torch.ones_like(ids, dtype=torch.float64))


def linear_fit(rows: torch.Tensor, targets: torch.Tensor, classes: bool) -> LinearFit | None:
    """Fit a linear model to one half of the samples and try it on the other.

    Args:
        rows: standardised inputs, (samples, columns).
        targets: class ids (samples, 1), or numbers (samples, values).
        classes: which of the two.

    Returns:
        None where there is nothing to tell: no columns, one class, constant targets.
    """
    count = rows.shape[0]
    if count < 32 or rows.shape[1] == 0:
        return None
    order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
    fit, tried = order[: count // 2], order[count // 2 :]
    rows = torch.cat([rows, torch.ones(count, 1, dtype=rows.dtype)], 1)
    if classes:
        known, labels = torch.unique(targets[:, 0].long(), return_inverse=True)
        if len(known) < 2 or len(known) > count // 4:
            return None
        return _logistic(rows, labels, len(known), fit, tried)
    return _ridge(rows, targets.double(), fit, tried)


def _logistic(
    rows: torch.Tensor, labels: torch.Tensor, classes: int, fit: torch.Tensor, tried: torch.Tensor
) -> LinearFit:
    x, hot = rows[fit], torch.nn.functional.one_hot(labels[fit], classes).double()
    weights = torch.zeros(x.shape[1], classes, dtype=x.dtype)
    ahead = weights
    # 1 / the largest curvature of the mean loss, by a few power iterations
    vector = torch.ones(x.shape[1], dtype=x.dtype)
    size = 1.0
    for _ in range(8):
        vector = x.T @ (x @ vector) / x.shape[0]
        size = float(vector.norm())
        vector = vector / max(size, 1e-30)
    rate = 1.0 / (0.5 * size + _DECAY)
    for index in range(_ITERATIONS):
        error = torch.softmax(x @ ahead, 1) - hot
        following = ahead - rate * (x.T @ error / x.shape[0] + _DECAY * ahead)
        ahead = following + index / (index + 3) * (following - weights)
        weights = following
    scores = torch.log_softmax(rows[tried] @ weights, 1)
    truth = labels[tried]
    loss = -float(scores[torch.arange(len(truth)), truth].mean())
    return LinearFit(loss, _accuracy_skill(scores.argmax(1), truth))


def _accuracy_skill(chosen: torch.Tensor, truth: torch.Tensor) -> float:
    base = float(torch.bincount(truth).max()) / len(truth)
    right = float((chosen == truth).double().mean())
    return (right - base) / (1.0 - base) if base < 1.0 else 0.0


def _ridge(rows: torch.Tensor, targets: torch.Tensor, fit: torch.Tensor, tried: torch.Tensor) -> LinearFit | None:
    x = rows[fit]
    mean = targets[fit].mean(0)
    square = x.T @ x + _DECAY * len(fit) * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(square, x.T @ (targets[fit] - mean))
    loss = float((rows[tried] @ weights + mean - targets[tried]).square().mean())
    total = float((targets[tried] - targets[tried].mean(0)).square().mean())
    if not total > 0.0 or not math.isfinite(loss):
        return None
    return LinearFit(loss, 1.0 - loss / total)


def nearest(rows: torch.Tensor) -> torch.Tensor:
    """Indices of the nearest other samples, (samples, 5)."""
    distances = torch.cdist(rows, rows)
    distances.fill_diagonal_(float("inf"))
    return distances.topk(min(_NEIGHBOURS, rows.shape[0] - 1), largest=False).indices


def skill_of_neighbours(near: torch.Tensor, targets: torch.Tensor, classes: bool) -> float:
    """Skill of nearest other samples at telling a sample's target.

    Args:
        near: their indices, (samples, neighbours).
        targets: as for :func:`linear_fit`.
        classes: as for :func:`linear_fit`.
    """
    if classes:
        known, labels = torch.unique(targets[:, 0].long(), return_inverse=True)
        votes = torch.nn.functional.one_hot(labels, len(known))[near].sum(1)
        return _accuracy_skill(votes.argmax(1), labels)
    values = targets.double()
    total = float((values - values.mean(0)).square().mean())
    if not total > 0.0:
        return 0.0
    return 1.0 - float((values[near].mean(1) - values).square().mean()) / total
