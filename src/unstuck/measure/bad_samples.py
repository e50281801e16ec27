"""Which sample of a batch holds NaN or infinity."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten_with_path

from unstuck.measure.finiteness import nonfinite_counts

__all__ = ["nonfinite_in"]


def nonfinite_in(batch: Any) -> tuple[int | None, str | None]:
    """(first sample, key path) of NaN or infinity in a batch."""
    leaves, _ = tree_flatten_with_path(batch)
    tensors = [(path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
    size = next((leaf.shape[0] for _, leaf in tensors if leaf.dim()), None)
    for path, leaf in tensors:
        if leaf.is_floating_point() and any(nonfinite_counts(leaf)):
            bad = (~torch.isfinite(leaf)).flatten(1).any(1) if leaf.dim() > 1 else ~torch.isfinite(leaf)
            sample = int(bad.reshape(-1).nonzero()[0]) if leaf.dim() and leaf.shape[0] == size else None
            return sample, "".join(str(item) for item in path)
    return None, None
