"""The number of samples in a batch of any structure."""

from __future__ import annotations

from typing import Any

__all__ = ["extract_batch_size"]


def extract_batch_size(batch: Any) -> int:
    """Size of the first tensor's first dimension (1 for a scalar tensor); warns when tensors differ, raises MisconfigurationException without any."""
    raise NotImplementedError
