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
from unstuck.trials.overfit.copies import deep_copied

__all__ = ["chosen_batches", "first_batches", "is_batch", "varied_batches"]

_MOST_SEARCHED = 1000
"""Batches that are searched for samples of every class."""

_MOST_LOOKED_AT = 16
"""Batches beyond the first ones that are searched for targets that differ."""

_LARGE = 64 * 2**20
"""Bytes from which on an array that a stream's dataset holds isn't copied with it."""


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
    return _drawn(data, count, 0)


def varied_batches(data: Any, count: int) -> list[Any]:
    """As :func:`first_batches`, but where all targets of the first ones are equal, the last of them gives way.

    In its place is the next one by which the targets differ, if it is among the first few: with rare classes many a
    batch holds one class alone, which a constant prediction learns. Only batches that are pairs are searched.
    """
    return _drawn(data, count, _MOST_LOOKED_AT)


def _drawn(data: Any, count: int, more: int) -> list[Any]:
    if is_batch(data):
        return _with_samples([data])
    found: list[Any] = []
    with isolate_rng(generators=generators_of([data])):
        looked_at = 0
        for batch in _passed(data):
            if len(found) < count:
                found.append(batch)
            elif _differ([*found[:-1], batch]):
                found[-1] = batch
                break
            else:
                looked_at += 1
            if len(found) == count and (looked_at >= more or not _are_alike(found)):
                break
    if not found:
        raise MisconfigurationException(f"`data` gave no batch: got {type(data).__name__}, expected at least one")
    return _with_samples(found)


def _targets(batches: Sequence[Any]) -> list[torch.Tensor]:
    """The targets of batches that are pairs, if all are."""
    pairs = [item for item in batches if isinstance(item, (tuple, list)) and len(item) == 2]
    found = [item[1] for item in pairs if isinstance(item[1], torch.Tensor) and item[1].dim() > 0]
    return found if len(found) == len(batches) else []


def _differ(batches: Sequence[Any]) -> bool:
    """Whether the targets of pairs are known not to be the same for all samples."""
    found = _targets(batches)
    first = next((item[:1] for item in found if len(item)), None)
    return first is not None and not all(
        item.shape[1:] == first.shape[1:] and bool((item == first).all()) for item in found
    )


def _are_alike(batches: Sequence[Any]) -> bool:
    """Whether the targets of pairs are known to be the same for all samples."""
    return bool(_targets(batches)) and not _differ(batches)


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
        loader = without_workers(data)
        if isinstance(loader.dataset, IterableDataset):
            loader.__dict__["dataset"] = _stream_of_its_own(loader.dataset)
        return loader
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


def _stream_of_its_own(dataset: IterableDataset[Any]) -> IterableDataset[Any]:
    """A copy, since a stream may keep its own position; the stream itself where it can't be copied."""
    large = [value for value in vars(dataset).values() if getattr(value, "nbytes", 0) > _LARGE]
    try:
        return deep_copied(dataset, *large)
    except MisconfigurationException:
        return dataset
