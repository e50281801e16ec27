"""Several loaders at once: ``CombinedLoader``, and the plain iteration that the loops use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

__all__ = ["CombinedLoader", "iterate"]


class CombinedLoader:
    """As in Lightning: iterables, mode, limits, flattened, len, iteration over (batch, batch_idx, dataloader_idx)."""

    def __init__(
        self, iterables: Any, mode: Literal["min_size", "max_size_cycle", "max_size", "sequential"] = "min_size"
    ) -> None:
        raise NotImplementedError


class BatchIterator:
    """One pass over a CombinedLoader: ``for batch, batch_idx, dataloader_idx, is_last in BatchIterator(combined): ...``.

    Underlying iterators are made by the constructor (so the loop decides when; make it before ``on_train_start`` for the first epoch as Lightning does,
    after ``on_train_epoch_start`` for the later ones). A pass of known length draws each batch when it is asked for; of unknown length it is one ahead.
    """


def iterate(loader: CombinedLoader) -> Iterator[tuple[Any, int, int, bool]]:
    """Starts a pass: (batch, batch_idx, dataloader_idx, is_last)."""
    raise NotImplementedError
