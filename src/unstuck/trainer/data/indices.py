"""Which samples a batch was made of: remembered as a loader's sampler draws them."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from unstuck.instruments.drawn_indices import plain_indices
from unstuck.trainer.data.loaders import with_batch_sampler, with_sampler

__all__ = ["PassIndices", "RecordedDraws", "recording_indices"]

_KEPT = 512
"""Last draws of a pass that are kept; workers are sent ahead of the batch that is trained on."""


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


class PassIndices:
    """What the sampler has drawn for the last batches of a pass, as the loader's own iterator asks for it."""

    def __init__(self) -> None:
        self._draws: deque[Any] = deque(maxlen=_KEPT)
        self._count = 0

    def begin(self, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Begin a pass by ``start``, which makes or resets a DataLoader's iterator, and follow it.

        Workers are sent for their first batches while the iterator is made, before anybody has it: so the class is
        patched for that long, and the iterator itself afterwards.
        """
        self.forget()
        original: Callable[[Any], Any] = _BaseDataLoaderIter._next_index

        def noting(iterator: Any) -> Any:
            draw = original(iterator)
            self._draws.append(draw)
            self._count += 1
            return draw

        setattr(_BaseDataLoaderIter, "_next_index", noting)  # noqa: B010 - an assignment to a method
        try:
            iterator = start()
        finally:
            setattr(_BaseDataLoaderIter, "_next_index", original)  # noqa: B010
        if isinstance(iterator, _BaseDataLoaderIter):
            own = weakref.ref(iterator)  # an iterator that held itself would keep its workers alive
            iterator.__dict__["_next_index"] = lambda: noting(own())
        return iterator

    def forget(self) -> None:
        """Know nothing of the present pass."""
        self._draws.clear()
        self._count = 0

    def of(self, batch_idx: int) -> list[int] | None:
        """The dataset's indices of the samples of a batch of the present pass, None where they aren't known."""
        place = batch_idx - (self._count - len(self._draws))
        if not 0 <= place < len(self._draws):
            return None
        return plain_indices(self._draws[place])
