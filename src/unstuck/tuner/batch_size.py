"""The largest batch size that fits into memory, by trials."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from unstuck.messages import rank_zero_info

__all__ = ["is_out_of_memory", "largest_size"]

_SIGNS = ("out of memory", "can't allocate memory", "CUDNN_STATUS_NOT_SUPPORTED")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on whatever device."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def largest_size(
    fits: Callable[[int], bool], mode: str, init_val: int, max_trials: int, margin: float, max_val: int
) -> int:
    """Search for the largest size that fits.

    Args:
        fits: tries a size.
        mode: ``power`` doubles until a size doesn't fit; ``binsearch`` then halves the gap, and takes ``margin`` off.
        init_val: where to begin.
        max_trials: of either phase.
        margin: share that is kept free, for ``binsearch``.
        max_val: largest size that is tried.

    Returns:
        The largest size that fitted, 1 at least.
    """
    good, bad = 0, None
    size = init_val
    for _ in range(max_trials):
        size = min(size, max_val)
        if not fits(size):
            bad = size
            break
        rank_zero_info(f"Batch size {size} fits.")
        good = size
        if size >= max_val:
            break
        size *= 2
    while good == 0 and bad is not None and bad > 1:  # the first one was too large already
        size = max(1, bad // 2)
        if fits(size):
            good = size
        else:
            bad = size
    if mode == "power" or bad is None:
        return max(good, 1)
    for _ in range(max_trials):
        if bad - good <= 1:
            break
        size = (good + bad) // 2
        if fits(size):
            rank_zero_info(f"Batch size {size} fits.")
            good = size
        else:
            bad = size
    return max(1, int(good * (1 - margin)))


def free_memory() -> None:
    """Give back what a failed trial held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
