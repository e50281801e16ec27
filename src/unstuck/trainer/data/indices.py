"""Which samples a batch was made of: remembered as a loader's sampler draws them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from unstuck.trainer.data.loaders import with_batch_sampler, with_sampler

__all__ = ["RecordedDraws", "recording_indices"]


class RecordedDraws:
    """A sampler, or batch sampler, that remembers what it has drawn in its last pass.

    Args:
        sampler: what to draw from.

    Attributes:
        draws: indices (or lists of indices) in their order.
    """

    def __init__(self, sampler: Any) -> None:
        self.draws: list[Any] = []
        self._sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        self.draws = []
        for draw in self._sampler:
            self.draws.append(draw)
            yield draw

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_sampler":
            raise AttributeError(name)
        return getattr(self._sampler, name)

    def indices_of(self, batch_idx: int) -> list[int]:
        """Return the indices of the samples of a batch of the last pass, in the batch's order."""
        draw = self.draws[batch_idx]
        return list(draw) if isinstance(draw, (list, tuple)) else [draw]


def recording_indices(loader: Any) -> tuple[Any, RecordedDraws | None]:
    """Return a loader of the same batches, and where the indices of their samples are found.

    Args:
        loader: any loader. One whose batches have no indices (a stream, something else than a DataLoader) is returned
            as it is, with None.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader, None
    if loader.batch_sampler is not None:
        draws = RecordedDraws(loader.batch_sampler)
        return with_batch_sampler(loader, draws), draws
    draws = RecordedDraws(loader.sampler)
    return with_sampler(loader, draws), draws
