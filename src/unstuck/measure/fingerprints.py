"""A number per sample that is equal for equal samples: which inputs come again, and with which targets.

Python's hash of the sample's bytes, so two different samples share a number with a chance of about 2**-60. The numbers
mean something within one process only.
"""

from __future__ import annotations

import torch

__all__ = ["COLUMNS", "fingerprints", "rows_of"]

COLUMNS = 2048
"""Elements of a sample that are read, evenly spread over it."""


def rows_of(tensor: torch.Tensor, count: int | None = None) -> torch.Tensor | None:
    """A tensor as (samples, elements); None where it can't be.

    Args:
        tensor: samples along its first dimension.
        count: number of samples, where the first dimension holds samples and places flattened together.
    """
    if tensor.dim() == 0 or tensor.layout is not torch.strided or tensor.numel() == 0:
        return None
    first = tensor.shape[0] if count is None else count
    if first == 0 or tensor.shape[0] % first:
        return None
    return tensor.detach().reshape(first, -1)


def fingerprints(rows: torch.Tensor) -> list[int]:
    """One number per row; zeros at its end don't count.

    Args:
        rows: (samples, elements) on the CPU.
    """
    step = -(-rows.shape[1] // COLUMNS)
    if step > 1:
        rows = rows[:, ::step]
    if rows.dtype is torch.bfloat16:
        rows = rows.contiguous().view(torch.int16)
    array = rows.resolve_conj().resolve_neg().numpy()
    # what a sequence is padded with depends on the batch that it is in
    return [hash(row.tobytes().rstrip(b"\0")) for row in array]
