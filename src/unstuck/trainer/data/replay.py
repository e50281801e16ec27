"""Iterables that show the same items in every pass, whatever they were made from."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import Sampler

from unstuck.trainer.data.loaders import length_of, shut_down_workers

__all__ = ["RecordedSampler", "Recording", "ReplayedLoader", "ReshuffledSampler", "copy_of"]


def copy_of(item: Any) -> Any:
    """A copy that shares nothing that could be changed in place.

    Tensors that are part of a graph can't be copied deeply; they are cut off and cloned. What can't be copied at all
    stays shared.
    """
    if isinstance(item, (int, float, str, bytes, bool, type(None))):
        return item
    try:
        return copy.deepcopy(item)
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError, copy.Error):
        return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), item)


class Recording:
    """The first items of an iterable: drawn once, no earlier than they are asked for, and replayed ever after.

    Several passes may run at the same time, and a pass that ends early is continued by the next one that gets further.
    Every pass is handed its own copies, since a training may change its batches in place.
    """

    def __init__(self, source: Iterable[Any], count: int | float, on_end: Callable[[], None] | None = None) -> None:
        """
        Args:
            source: what to draw from; iterated once only.
            count: number of items, inf for all.
            on_end: called when nothing more will be drawn.
        """
        self._source = source
        self._count = count
        self._on_end = on_end
        self._items: list[Any] = []
        self._iterator: Iterator[Any] | None = None
        self._ended = count == 0

    def __iter__(self) -> Iterator[Any]:
        index = 0
        while True:
            if index < len(self._items):
                yield copy_of(self._items[index])
            elif self._ended:
                return
            else:
                if self._iterator is None:
                    self._iterator = iter(self._source)
                try:
                    item = next(self._iterator)
                except StopIteration:
                    self._end()
                    return
                # Keeping the copy also lets go of the workers' shared memory, of which a process can't hold much.
                self._items.append(copy_of(item))
                if len(self._items) >= self._count:
                    self._end()
                yield item
            index += 1

    def __len__(self) -> int:
        """Items of a pass. Raises TypeError while nobody can know."""
        if self._ended:
            return len(self._items)
        length = length_of(self._source)
        if math.isinf(length):
            raise TypeError(f"{type(self._source).__qualname__} has no length")
        return int(min(length, self._count))

    def _end(self) -> None:
        self._ended = True
        self._iterator = None
        if self._on_end is not None:
            self._on_end()


class RecordedSampler(Sampler[Any]):
    """The first draws of a sampler (or batch sampler), whatever they are: indices, lists, dicts, tuples."""

    def __init__(self, sampler: Any, count: int | float) -> None:
        """
        Args:
            sampler: what to draw from.
            count: number of draws, inf for all.
        """
        self.original = sampler
        self._recording = Recording(sampler, count)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._recording)

    def __len__(self) -> int:
        return len(self._recording)


class ReshuffledSampler(Sampler[Any]):
    """The draws of a recorded sampler, in another order in every pass.

    The order comes from ``generator``, or from torch's global random state, as for torch's own RandomSampler.
    """

    def __init__(self, recorded: RecordedSampler, generator: torch.Generator | None = None) -> None:
        self.recorded = recorded
        self.generator = generator

    def __iter__(self) -> Iterator[Any]:
        items = list(self.recorded)
        return (items[index] for index in torch.randperm(len(items), generator=self.generator).tolist())

    def __len__(self) -> int:
        return len(self.recorded)


class ReplayedLoader:
    """The first batches of any loader, kept in memory and replayed in every epoch.

    Attributes other than the iteration are those of the original loader.
    """

    def __init__(
        self, loader: Any, count: int | float, *, shuffle: bool = False, generator: torch.Generator | None = None
    ) -> None:
        """
        Args:
            loader: the loader to draw from.
            count: number of batches, inf for all.
            shuffle: whether the kept batches come in another order in every epoch.
            generator: where that order comes from; None is torch's global random state.
        """
        self.original = loader
        self._recording = Recording(loader, count, on_end=partial(shut_down_workers, loader))
        self._shuffle = shuffle
        self._generator = generator

    def __iter__(self) -> Iterator[Any]:
        if not self._shuffle:
            return iter(self._recording)
        batches = list(self._recording)
        return (batches[index] for index in torch.randperm(len(batches), generator=self._generator).tolist())

    def __len__(self) -> int:
        return len(self._recording)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("original", "_recording"):
            raise AttributeError(name)
        return getattr(self.original, name)

    def in_order(self) -> ReplayedLoader:
        """The same batches, never shuffled."""
        same = copy.copy(self)
        same._shuffle = False
        return same
