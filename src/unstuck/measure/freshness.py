"""Whether weights look as they were drawn, or as if something had been learnt."""

from __future__ import annotations

import math

import torch

__all__ = ["looks_drawn"]

_FEWEST = 64
"""Elements below which nothing can be told."""

_SIDE = 192
"""Rows and columns that are looked at."""

_EDGE, _NOISE = 1.05, 0.5
"""Times the largest singular value that independent numbers are expected to have, and how much more, over the smaller
side, it may be by chance: about one in a thousand goes beyond."""


def looks_drawn(weight: torch.Tensor) -> bool | None:
    """Whether a matrix looks like independent random numbers, or like a random orthogonal matrix.

    Learning adds directions of large weight: the largest singular value leaves the range that independent numbers of
    the same variance have (up to ``sigma * (sqrt(rows) + sqrt(columns))``, Marchenko and Pastur 1967).

    Args:
        weight: any shape; from the second dimension on it is flattened.

    Returns:
        None where there are too few numbers, or only constants.
    """
    if weight.dim() < 2 or weight.numel() < _FEWEST or not weight.is_floating_point():
        return None
    with torch.no_grad():
        matrix = weight.detach().reshape(weight.shape[0], -1)
        matrix = matrix[:_SIDE, :_SIDE].to("cpu", torch.float64)
        full = matrix.any(dim=1)  # a padding row is zero by definition
        matrix = matrix[full]
        rows, columns = matrix.shape
        if matrix.numel() < _FEWEST or not bool(matrix.isfinite().all()):
            return None
        sigma = float(matrix.std())
        if sigma < 1e-12:
            return None
        singular = torch.linalg.svdvals(matrix)
    largest, smallest = float(singular[0]), float(singular[-1])
    if largest < 1.05 * smallest:
        return True  # orthogonal, from whichever side
    if abs(float(matrix.mean())) > sigma * (0.1 + 4.0 / math.sqrt(matrix.numel())):
        return False
    expected = sigma * (math.sqrt(rows) + math.sqrt(columns))
    return largest < (_EDGE + _NOISE / min(rows, columns)) * expected
