"""The four ways in which the values of an epoch become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from unstuck.errors import MisconfigurationException

__all__ = ["INITIAL", "parse_reduction"]

# What an epoch starts from. The sums of a mean are divided by the sum of the batch sizes.
INITIAL = {"mean": 0.0, "sum": 0.0, "max": float("-inf"), "min": float("inf")}

_CALLABLES: dict[Any, str] = {
    torch.mean: "mean",
    torch.sum: "sum",
    sum: "sum",
    torch.max: "max",
    max: "max",
    torch.min: "min",
    min: "min",
}


def parse_reduction(reduce_fx: str | Callable[[Any], Any]) -> str:
    """Return ``"mean"``, ``"sum"``, ``"max"`` or ``"min"`` for what was given as ``self.log(reduce_fx=...)``.

    Args:
        reduce_fx: a name in any case (``"avg"`` is a mean), torch's function of that name, or Python's ``sum``, ``min``
            and ``max``.

    Raises:
        MisconfigurationException: for everything else.
    """
    if isinstance(reduce_fx, str):
        name = reduce_fx.lower()
        name = "mean" if name == "avg" else name
    else:
        name = _CALLABLES.get(reduce_fx, "")
    if name not in INITIAL:
        raise MisconfigurationException(
            f"`self.log(reduce_fx={reduce_fx!r})`: only mean, sum, min and max are supported."
            " Log a `torchmetrics.Metric` for any other way to reduce."
        )
    return name
