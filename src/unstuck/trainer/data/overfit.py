"""Training on the same few batches in every epoch, to see whether a model can memorise them.

Every epoch sees the same samples of the dataset: that is what makes the test mean something. How it is reached depends
on what decides about a loader's samples, and the user's own loader is never touched:

- a sequential loader is left as it is;
- torch's RandomSampler is replaced by a SequentialSampler, a shuffling DistributedSampler by one that doesn't, with a
  warning;
- what any other sampler or batch sampler draws for the first batches is drawn once and replayed;
- the batches of streams, of loaders that aren't DataLoaders, and of DataLoaders that iterate in a way of their own are
  drawn once, kept and replayed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_info, rank_zero_warn
from unstuck.trainer.data.combined import CombinedLoader
from unstuck.trainer.data.limits import Overfit, resolve_limit
from unstuck.trainer.data.loaders import draws_from_batch_sampler, length_of, with_batch_sampler, with_sampler
from unstuck.trainer.data.replay import RecordedSampler, ReplayedLoader, ReshuffledSampler

__all__ = ["freeze_loader", "freeze_loaders", "number_of_overfit_batches", "training_subset"]

# Packages whose loaders, however they iterate, ask their sampler.
_TRUSTED = ("torch.", "torchdata.")


def freeze_loaders(
    combined: CombinedLoader, names: Sequence[str], overfit: Overfit, *, stage: str = "train", num_replicas: int = 1
) -> CombinedLoader:
    """Limits each loader of a collection to its first batches and makes it show the same ones in every epoch.

    Call it after distributed samplers were put in and before the first batch is drawn.

    Args:
        combined: the loaders of a stage; left as they are.
        names: a name for each, in flat order.
        overfit: how many batches, and how.
        stage: "train", or "val": a fraction leaves a validation loader at least one batch, and its order is never
        shuffled.
        num_replicas: processes that train, each on its own share.

    Returns:
        The frozen loaders in a collection of the same structure and mode, with their limits set.

    Raises:
        MisconfigurationException: for a fraction that rounds to no batch of a training loader, or one of a loader
        without
            length; it names ``overfit_batches``, the loader, its length and the smallest valid value.
    """
    if stage == "val" and overfit.order == "shuffle":
        overfit = replace(overfit, order="sequential")
    limits = [
        number_of_overfit_batches(overfit, loader, name, stage)
        for loader, name in zip(combined.flattened, names, strict=True)
    ]
    if overfit.order == "shuffle" and math.inf in limits:
        raise MisconfigurationException(
            f"Trainer(overfit_batches={overfit}): all batches of `{names[limits.index(math.inf)]}`, which has no "
            f"length, can't be "
            "shuffled. Give a number of batches as an int; the smallest is 1."
        )
    loaders = [
        freeze_loader(loader, limit, name, overfit.order)
        for loader, name, limit in zip(combined.flattened, names, limits, strict=True)
    ]
    # A sampler that drew with replacement may have promised more batches than its dataset holds.
    limits = [min(limit, length_of(loader)) for limit, loader in zip(limits, loaders, strict=True)]
    if stage == "train" and num_replicas > 1:
        for name, limit in zip(names, limits, strict=True):
            rank_zero_info(
                f"`overfit_batches`: each of {num_replicas} processes trains on its own {limit} batches of `{name}`, "
                f"{limit * num_replicas} in total."
            )
    frozen = CombinedLoader(combined.iterables, combined.mode)
    frozen.flattened = loaders
    frozen.limits = limits
    frozen.limits_each = True
    return frozen


def number_of_overfit_batches(overfit: Overfit, loader: Any, name: str, stage: str) -> int | float:
    """Batches of one loader: a fraction leaves a validation loader at least one.

    Raises:
        MisconfigurationException: as :func:`freeze_loaders`.
    """
    length = length_of(loader)
    if stage == "val" and isinstance(overfit.batches, float) and 1 <= length < math.inf:
        return max(1, int(length * overfit.batches))
    return resolve_limit(overfit.batches, length, name="overfit_batches", loader=name)


def freeze_loader(loader: Any, count: int | float, name: str, order: str = "sequential") -> Any:
    """A loader that shows the same ``count`` batches (inf: all of them) in every epoch.

    It may be longer than ``count``, where the first batches are the same in every epoch anyway.

    Args:
        loader: any loader; it is returned itself if it needs no change.
        count: number of batches.
        name: the loader's name, for messages.
        order: see :class:`~unstuck.trainer.data.limits.Overfit`.
    """
    if order == "replay":
        return ReplayedLoader(loader, count)
    if not isinstance(loader, DataLoader):
        if isinstance(loader, (list, tuple, range)):
            return loader
        return _kept(loader, count, name, "it isn't a DataLoader")
    if isinstance(loader.dataset, IterableDataset):
        return _kept(loader, count, name, "its dataset is a stream", shuffle=order == "shuffle")
    if not _asks_its_sampler(loader):
        return _kept(
            loader, count, name, f"{type(loader).__qualname__} has its own way to iterate", shuffle=order == "shuffle"
        )
    return _reshuffled(loader, count) if order == "shuffle" else _sequential(loader, count, name)


def _asks_its_sampler(loader: DataLoader[Any]) -> bool:
    """Whether a DataLoader is known to draw from its sampler, so that another sampler means other samples.

    A subclass that iterates in its own way may do anything, and so may one that computes its sampler.
    """
    cls = type(loader)
    iterates = all(_is_trusted(cls, name) for name in ("__iter__", "_get_iterator"))
    stores = all(loader.__dict__.get(name, loader) is getattr(loader, name) for name in ("sampler", "batch_sampler"))
    return iterates and stores


def _is_trusted(cls: type[DataLoader[Any]], method: str) -> bool:
    """Whether a subclass iterates as DataLoader does, which a tool that watches loaders may have patched."""
    own = getattr(cls, method)
    return own is getattr(DataLoader, method) or getattr(own, "__module__", "").startswith(_TRUSTED)


def _kept(loader: Any, count: int | float, name: str, reason: str, shuffle: bool = False) -> ReplayedLoader:
    rank_zero_info(
        f"`overfit_batches`: the first batches of `{name}` are kept and replayed in every epoch, as {reason}."
    )
    return ReplayedLoader(loader, count, shuffle=shuffle, generator=getattr(loader, "generator", None))


def _sequential(loader: DataLoader[Any], count: int | float, name: str) -> DataLoader[Any]:
    """A DataLoader whose first batches are the same in every epoch, without shuffling."""
    if draws_from_batch_sampler(loader):
        batch_sampler: Any = loader.batch_sampler
        inner = batch_sampler.sampler if type(batch_sampler) is BatchSampler else None
        if _is_fixed(inner):
            return loader
        if _is_shuffling(inner):
            _warn_shuffling(name, "its DistributedSampler is replaced by one with shuffle=False")
            still = BatchSampler(_stilled(inner), batch_sampler.batch_size, batch_sampler.drop_last)
            return with_batch_sampler(loader, still)
        _tell_recorded(name, batch_sampler)
        return with_batch_sampler(loader, RecordedSampler(batch_sampler, count))
    sampler = loader.sampler
    if _is_fixed(sampler):
        return loader
    if isinstance(sampler, RandomSampler) and type(sampler).__iter__ is RandomSampler.__iter__:
        _warn_shuffling(name, "its RandomSampler is replaced by a SequentialSampler")
        return with_sampler(loader, SequentialSampler(sampler.data_source))
    if _is_shuffling(sampler):
        _warn_shuffling(name, "its DistributedSampler is replaced by one with shuffle=False")
        return with_sampler(loader, _stilled(sampler))
    _tell_recorded(name, sampler)
    if isinstance(sampler, DistributedSampler):
        sampler = _stilled(sampler)
    return with_sampler(loader, RecordedSampler(sampler, count * (loader.batch_size or 1)))


def _reshuffled(loader: DataLoader[Any], count: int | float) -> DataLoader[Any]:
    """A DataLoader that shows the samples of its first batches in an order that follows the user's shuffle."""
    batch_sampler: Any = loader.batch_sampler
    if draws_from_batch_sampler(loader):
        if type(batch_sampler) is not BatchSampler:
            return with_batch_sampler(loader, _shuffled_draws(batch_sampler, count, loader))
        if _is_fixed(batch_sampler.sampler):
            return loader
        samples = _shuffled_draws(batch_sampler.sampler, count * batch_sampler.batch_size, loader)
        return with_batch_sampler(loader, BatchSampler(samples, batch_sampler.batch_size, batch_sampler.drop_last))
    if _is_fixed(loader.sampler):
        return loader
    return with_sampler(loader, _shuffled_draws(loader.sampler, count * (loader.batch_size or 1), loader))


def _shuffled_draws(sampler: Any, count: int | float, loader: DataLoader[Any]) -> ReshuffledSampler:
    generator = getattr(sampler, "generator", None) or loader.generator
    return ReshuffledSampler(RecordedSampler(sampler, count), generator)


def _is_fixed(sampler: Any) -> bool:
    """Whether a sampler draws the same in every pass: the sequential one, also in batches, and a distributed one
    without shuffle.
    """
    if type(sampler) is BatchSampler:
        sampler = sampler.sampler
    return type(sampler) is SequentialSampler or _is_still(sampler)


def _is_distributed(sampler: Any) -> bool:
    """Whether it draws as torch's own distributed sampler does."""
    return isinstance(sampler, DistributedSampler) and type(sampler).__iter__ is DistributedSampler.__iter__


def _is_still(sampler: Any) -> bool:
    return _is_distributed(sampler) and not sampler.shuffle


def _is_shuffling(sampler: Any) -> bool:
    return _is_distributed(sampler) and bool(sampler.shuffle)


def _stilled(sampler: Any) -> DistributedSampler[Any]:
    """A copy of a distributed sampler that doesn't shuffle."""
    still: DistributedSampler[Any] = copy.copy(sampler)
    still.shuffle = False
    return still


def _warn_shuffling(name: str, remedy: str) -> None:
    rank_zero_warn(
        f"`overfit_batches` turns off the shuffling of `{name}`: {remedy}, so that every epoch sees the same samples."
    )


def _tell_recorded(name: str, sampler: Any) -> None:
    rank_zero_info(
        f"`overfit_batches`: what the {type(sampler).__qualname__} of `{name}` draws for the first batches is drawn "
        f"once and "
        "replayed in every epoch."
    )


def training_subset(frozen: CombinedLoader) -> CombinedLoader:
    """The frozen training loaders once more, to validate on the very samples that are trained on.

    The copy has iterators and workers of its own, so it can be iterated in the middle of a training epoch, and never
    shuffles.
    """
    subset = CombinedLoader(frozen.iterables, frozen.mode)
    subset.flattened = [_in_order(loader) for loader in frozen.flattened]
    subset.limits = frozen.limits
    subset.limits_each = frozen.limits_each
    return subset


def _in_order(loader: Any) -> Any:
    if isinstance(loader, ReplayedLoader):
        return loader.in_order()
    if not isinstance(loader, DataLoader):
        return loader
    batch_sampler: Any = loader.batch_sampler
    if draws_from_batch_sampler(loader):
        if isinstance(batch_sampler, ReshuffledSampler):
            return with_batch_sampler(loader, batch_sampler.recorded)
        if isinstance(getattr(batch_sampler, "sampler", None), ReshuffledSampler):
            samples = batch_sampler.sampler.recorded
            return with_batch_sampler(loader, BatchSampler(samples, batch_sampler.batch_size, batch_sampler.drop_last))
        return with_batch_sampler(loader, batch_sampler)
    sampler: Any = loader.sampler
    return with_sampler(loader, sampler.recorded if isinstance(sampler, ReshuffledSampler) else sampler)
