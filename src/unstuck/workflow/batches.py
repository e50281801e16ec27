"""The batches of an overfit test: drawn from a loader that is left as it was, or chosen by class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset, IterableDataset

from unstuck.errors import MisconfigurationException
from unstuck.trainer.data.loaders import generators_of, without_workers
from unstuck.trainer.data.seed import isolate_rng

__all__ = ["chosen_batches", "first_batches", "is_batch"]

_MOST_SEARCHED = 1000
"""Batches that are searched for samples of every class."""


def is_batch(data: Any) -> bool:
    """Whether data is one batch (tensors in containers) and not something that gives batches."""
    if isinstance(data, (torch.Tensor, Mapping)):
        return True
    if isinstance(data, (tuple, list)) and data:
        return any(isinstance(item, torch.Tensor) for item in data) or isinstance(data, tuple)
    return False


def first_batches(data: Any, count: int) -> list[Any]:
    """The first ``count`` batches of a loader or a list of batches; a single batch as it is.

    A DataLoader's samples are loaded in this process; its workers, generators and position stay untouched, and so do
    the global random states.

    Raises:
        MisconfigurationException: there is no batch or an empty one, or what is given can be read only once.
    """
    if is_batch(data):
        return _with_samples([data])
    found: list[Any] = []
    with isolate_rng(generators=generators_of([data])):
        for batch in _passed(data):
            found.append(batch)
            if len(found) == count:
                break
    if not found:
        raise MisconfigurationException(f"`data` gave no batch: got {type(data).__name__}, expected at least one")
    return _with_samples(found)


def _with_samples(batches: list[Any]) -> list[Any]:
    """The batches, none of which is empty.

    Raises:
        MisconfigurationException: one is.
    """
    for index, batch in enumerate(batches):
        leaves = [item for item in tree_leaves(batch) if isinstance(item, torch.Tensor)]
        if leaves and all(item.numel() == 0 for item in leaves):
            raise MisconfigurationException(f"batch {index} of `data` has no sample: {_described(batch)}")
    return batches


def chosen_batches(data: Any, per_class: int) -> list[Any]:
    """One batch of ``per_class`` samples of each class, from a loader or a list of (inputs, class numbers).

    Every class that turns up is taken; classes with fewer samples give what they have.

    Raises:
        MisconfigurationException: batches aren't (tensor, class numbers) pairs.
    """
    kept: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    searched = 0
    with isolate_rng(generators=generators_of([data])):
        for inputs, labels in _pairs([data] if is_batch(data) else _passed(data)):
            searched += 1
            for sample, label in zip(inputs, labels, strict=True):
                chosen = kept.setdefault(int(label), [])
                if len(chosen) < per_class:
                    chosen.append((sample, label))
            if searched >= _MOST_SEARCHED:
                break
    samples = [sample for _, chosen in sorted(kept.items()) for sample in chosen]
    return [(torch.stack([sample for sample, _ in samples]), torch.stack([label for _, label in samples]))]


def _pairs(batches: Iterable[Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for batch in batches:
        fits = isinstance(batch, Sequence) and len(batch) == 2 and all(isinstance(item, torch.Tensor) for item in batch)
        if not fits or batch[1].dim() != 1 or batch[1].is_floating_point():
            raise MisconfigurationException(
                "`samples_per_class` needs batches that are pairs of a tensor and a one-dimensional tensor of class "
                f"numbers, got {_described(batch)}"
            )
        yield batch[0], batch[1]


def _described(batch: Any) -> str:
    if isinstance(batch, torch.Tensor):
        return f"a tensor {tuple(batch.shape)} of {batch.dtype}"
    if isinstance(batch, (tuple, list)):
        return f"{type(batch).__name__} of [{', '.join(_described(item) for item in batch[:4])}]"
    return type(batch).__name__


def _passed(data: Any) -> Iterable[Any]:
    """What to iterate in the place of ``data``, so that it stays as it is."""
    if isinstance(data, DataLoader):
        return without_workers(data)
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        raise MisconfigurationException(
            f"`data` must be a batch, a list of batches or a loader of batches, got the dataset {type(data).__name__}; "
            "give DataLoader(dataset, batch_size=32)"
        )
    if not isinstance(data, Iterable):
        raise MisconfigurationException(
            f"`data` must be a batch, a list of batches or a loader of batches, got {type(data).__name__}"
        )
    if iter(data) is data:
        raise MisconfigurationException(
            "`data` is an iterator, which can be read only once; give the loader itself, or a list of batches"
        )
    return data
