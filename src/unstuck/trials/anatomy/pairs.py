"""Whether a loss compares what belongs to one sample with what belongs to another."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unstuck.trials.tracing.lineage import SAMPLE

__all__ = ["OTHERS", "paired"]

OTHERS = "other samples"

_LIKELIHOODS = frozenset(("nll_loss", "nll_loss2d"))
_COMPARING = frozenset(
    ("mse_loss", "smooth_l1_loss", "huber_loss", "sub", "binary_cross_entropy", "binary_cross_entropy_with_logits")
)


def paired(
    name: str, sources: Sequence[tuple[str, int, torch.Tensor]], shadows: Sequence[torch.Tensor | None]
) -> dict[str, float]:
    """Of the numbers that are compared the share that belongs to different samples.

    Args:
        name: of the operation.
        sources: its tensors: argument, place in a list, tensor.
        shadows: which sample each of their elements belongs to.

    Returns:
        Nothing where it isn't known of every element of both, and nothing where all samples are moved on by the same
        number of places, as in a series that is compared with its own future.
    """
    if name not in _LIKELIHOODS and name not in _COMPARING:
        return {}
    if len(sources) < 2 or shadows[0] is None or shadows[1] is None:
        return {}
    one, other = shadows[0], shadows[1]
    if name in _LIKELIHOODS:
        if one.dim() < 2 or not bool((one == one.narrow(1, 0, 1)).all()):
            return {}
        one = one.select(1, 0)
    elif sources[0][2].shape != sources[1][2].shape:
        return {}
    if one.dim() != other.dim() or int(one.min()) < SAMPLE or int(other.min()) < SAMPLE:
        return {}
    apart = one - other
    if apart.numel() < 2 or bool((apart == apart.reshape(-1)[0]).all()):
        return {OTHERS: 0.0} if not bool(apart.any()) else {}
    return {OTHERS: float((apart != 0).float().mean())}
