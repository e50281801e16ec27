"""Casting the floating-point tensors of a batch, in whatever containers they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["cast_floats"]


def cast_floats(batch: Any, dtype: torch.dtype) -> Any:
    """The batch with every floating-point tensor cast to ``dtype``; integers, booleans and everything else stay."""

    def cast(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    return pytree.tree_map(cast, batch)
