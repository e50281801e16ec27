"""Loaders: where they come from, how long they are, what they are called, and copies of them with another sampler."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler
from torch.utils.data.distributed import DistributedSampler

from unstuck.errors import MisconfigurationException
from unstuck.messages import PossibleUserWarning, rank_zero_warn
from unstuck.trainer.data.seed import SEED_WORKERS_VARIABLE, pl_worker_init_function
from unstuck.trainer.hooks import is_overridden

__all__ = [
    "LoaderSource",
    "check_iterable",
    "draws_from_batch_sampler",
    "find_source",
    "flatten_loaders",
    "generators_of",
    "has_running_workers",
    "is_shuffled",
    "is_stateful",
    "iterate_as_if_running",
    "length_of",
    "loader_names",
    "seed_workers",
    "set_epoch",
    "shut_down_workers",
    "skipping_loader",
    "warn_if_evaluation_is_shuffled",
    "with_batch_sampler",
    "with_sampler",
    "without_dropping",
    "without_workers",
]


@dataclass(frozen=True)
class LoaderSource:
    """Where the loaders of a stage come from: passed by the caller, or returned by a hook of data module or module."""

    hook: str
    """The hook that returns loaders of this kind: "train_dataloader", "val_dataloader", ..."""
    given: Any = None
    """Loaders that were passed."""
    owner: Any = None
    """The data module or module whose hook is called when none were passed."""

    @property
    def is_defined(self) -> bool:
        """Whether there are loaders to ask for."""
        return self.given is not None or (self.owner is not None and is_overridden(self.hook, self.owner))

    def request(self) -> Any:
        """The loaders; the hook is called anew each time.

        Raises:
            MisconfigurationException: when nobody defines them.
        """
        if self.given is not None:
            return self.given
        if not self.is_defined:
            raise MisconfigurationException(
                f"`{self.hook}` has to be implemented by the module or data module, or loaders have to be passed."
            )
        return getattr(self.owner, self.hook)()

    @property
    def description(self) -> str:
        """What the loaders were, for an error: "passed as ..." or "returned by ..."."""
        if self.given is not None:
            keyword = "train_dataloaders" if self.hook == "train_dataloader" else "dataloaders"
            return f"passed to the Trainer as `{keyword}`"
        return f"returned by `{type(self.owner).__qualname__}.{self.hook}()`"


def find_source(hook: str, given: Any, datamodule: Any, module: Any) -> LoaderSource:
    """Decides who provides loaders: passed ones go before the data module's, and these before the module's.

    Args:
        hook: "train_dataloader", "val_dataloader", "test_dataloader" or "predict_dataloader".
        given: loaders that the caller passed, or None.
        datamodule: the data module, or None.
        module: the module, or None.
    """
    if given is not None:
        return LoaderSource(hook, given=given)
    if datamodule is not None and is_overridden(hook, datamodule):
        return LoaderSource(hook, owner=datamodule)
    return LoaderSource(hook, owner=module)


def check_iterable(loader: Any, source: LoaderSource) -> None:
    """Refuses what can't be iterated.

    Raises:
        TypeError: naming where the object came from.
    """
    iterable = hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")
    if isinstance(loader, type) or not iterable:
        raise TypeError(f"An invalid loader was {source.description}: {loader!r} can't be iterated.")


def _is_one_loader(node: Any) -> bool:
    """Whether a list, tuple or dict is itself a loader: one of plain numbers or texts, or an empty one."""
    if isinstance(node, dict):
        return all(isinstance(child, (int, float, str)) for child in node.values())
    return isinstance(node, (list, tuple)) and all(isinstance(child, (int, float, str)) for child in node)


def flatten_loaders(loaders: Any) -> tuple[list[Any], pytree.TreeSpec]:
    """Takes a nested collection (lists, tuples, dicts) of loaders apart.

    Returns:
        The loaders in order, and what :func:`torch.utils._pytree.tree_unflatten` needs to put them together again.
    """
    return pytree.tree_flatten(loaders, is_leaf=_is_one_loader)


def loader_names(base: str, loaders: Any) -> list[str]:
    """A name for each loader of a nested collection, in flat order.

    >>> loader_names("train_dataloader", {"a": [range(3), range(4)], "b": range(5)})
    ["train_dataloader['a'][0]", "train_dataloader['a'][1]", "train_dataloader['b']"]
    """
    paths, _ = pytree.tree_flatten_with_path(loaders, is_leaf=_is_one_loader)
    return [base + pytree.keystr(path) for path, _ in paths]


def length_of(loader: Any) -> int | float:
    """The number of batches in one pass of a loader, inf when it can't tell."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return math.inf


def draws_from_batch_sampler(loader: DataLoader[Any]) -> bool:
    """Whether a batch sampler of the user's own composes a DataLoader's batches, rather than ``batch_size``."""
    made_by_loader = (
        type(loader.batch_sampler) is BatchSampler
        and loader.batch_sampler.sampler is loader.sampler
        and loader.batch_size is not None
    )
    return loader.batch_sampler is not None and not made_by_loader


def _sampler_of(loader: Any) -> Any:
    """The sampler that decides about a loader's order, as far down as it can be seen."""
    sampler = getattr(loader, "batch_sampler", None)
    if sampler is None:
        sampler = getattr(loader, "sampler", None)
    while isinstance(sampler, BatchSampler) or (sampler is not None and hasattr(sampler, "sampler")):
        sampler = sampler.sampler
    return sampler


def is_shuffled(loader: Any) -> bool:
    """Whether a loader is known to draw its samples at random: by a RandomSampler, or a distributed sampler that
    shuffles.

    Streams aren't: an iterable dataset has no order that a sampler could change.
    """
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return False
    sampler = _sampler_of(loader)
    if isinstance(sampler, DistributedSampler):
        return bool(sampler.shuffle)
    return isinstance(sampler, RandomSampler)


def is_stateful(loader: Any) -> bool:
    """Whether a loader can tell where it stands and go on from there."""
    return callable(getattr(loader, "state_dict", None)) and callable(getattr(loader, "load_state_dict", None))


def warn_if_evaluation_is_shuffled(loader: Any, name: str) -> None:
    """Warns about a validation, test or prediction loader that shuffles."""
    if is_shuffled(loader):
        rank_zero_warn(
            f"`{name}` has shuffling enabled. Loaders for evaluation had better not shuffle, as they show every sample "
            "anyway and the results then come in another order each time.",
            category=PossibleUserWarning,
        )


def generators_of(loaders: Sequence[Any]) -> list[torch.Generator]:
    """The generators that iterating the loaders draws from, each once, to be protected by ``seed.isolate_rng``."""
    found: dict[int, torch.Generator] = {}
    for loader in loaders:
        for owner in (loader, getattr(loader, "sampler", None), _sampler_of(loader)):
            generator = getattr(owner, "generator", None)
            if isinstance(generator, torch.Generator):
                found[id(generator)] = generator
    return list(found.values())


def set_epoch(loader: Any, epoch: int) -> None:
    """Tells the samplers of a loader which epoch begins, where they want to know."""
    told: set[int] = set()
    for name in ("sampler", "batch_sampler"):
        owner = getattr(loader, name, None)
        while owner is not None and id(owner) not in told:
            told.add(id(owner))
            setter = getattr(owner, "set_epoch", None)
            if callable(setter):
                setter(epoch)
            owner = getattr(owner, "sampler", None)


def seed_workers(loader: Any, rank: int) -> None:
    """Gives a DataLoader the worker init function that ``seed_everything(workers=True)`` asked for, unless it has one.

    Args:
        loader: any loader; it is changed in place, so that it stays the object that the user knows.
        rank: number of this process.
    """
    asked = os.environ.get(SEED_WORKERS_VARIABLE) == "1"
    if asked and isinstance(loader, DataLoader) and loader.num_workers > 0 and loader.worker_init_fn is None:
        loader.worker_init_fn = partial(pl_worker_init_function, rank=rank)


def shut_down_workers(loader: Any) -> None:
    """Ends the persistent workers of a DataLoader, if it has some. Other loaders are left alone."""
    iterator = getattr(loader, "_iterator", None)
    if isinstance(loader, DataLoader) and iterator is not None:
        shut_down = getattr(iterator, "_shutdown_workers", None)
        if shut_down is not None:
            shut_down()
        loader._iterator = None


def has_running_workers(loader: Any) -> bool:
    """Whether a DataLoader's persistent workers run, so that another pass starts none and draws no seed for them."""
    return isinstance(loader, DataLoader) and loader.persistent_workers and loader._iterator is not None


def iterate_as_if_running(loader: Any) -> Iterator[Any]:
    """Begins a pass that draws as many random numbers as one whose persistent workers run already.

    New workers are given a seed, which a loader draws from its generator. Here it comes from a copy of that generator.
    """
    if not isinstance(loader, DataLoader) or not loader.persistent_workers or has_running_workers(loader):
        return iter(loader)
    own = loader.generator
    loader.generator = torch.Generator() if own is None else torch.Generator(own.device)
    loader.generator.set_state(torch.get_rng_state() if own is None else own.get_state())
    try:
        return iter(loader)
    finally:
        loader.generator = own


def _copied(loader: DataLoader[Any], **attributes: Any) -> DataLoader[Any]:
    """A shallow copy of a DataLoader with other attributes.

    The copy is made below the class: a subclass's own ``__init__`` may take other arguments than it stores, its
    ``__copy__`` or ``__reduce__`` may do anything, and a DataLoader refuses to have its sampler set. So every attribute
    is kept by construction, and the user's loader isn't touched.
    """
    cls = type(loader)
    clone: DataLoader[Any] = object.__new__(cls)
    clone.__dict__.update(loader.__dict__)
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and hasattr(loader, slot):
                object.__setattr__(clone, slot, getattr(loader, slot))
    clone.__dict__["_iterator"] = None  # persistent workers belong to the original
    clone.__dict__.update(attributes)
    return clone


def without_workers(loader: DataLoader[Any]) -> DataLoader[Any]:
    """A copy of a DataLoader that loads in this process."""
    return _copied(
        loader, num_workers=0, prefetch_factor=None, persistent_workers=False, timeout=0, multiprocessing_context=None
    )


def with_sampler(loader: DataLoader[Any], sampler: Sampler[Any] | Iterable[Any]) -> DataLoader[Any]:
    """A copy of a DataLoader that draws its indices from ``sampler``, with the same batch size.

    Everything else is kept: collate function, workers, generator, attributes of a subclass, whose ``__init__`` isn't
    called.
    """
    if loader.batch_sampler is None:
        return _copied(loader, sampler=sampler)
    if loader.batch_size is None:
        raise ValueError("a loader with a batch sampler of its own takes with_batch_sampler")
    batch_sampler = BatchSampler(sampler, loader.batch_size, loader.drop_last)
    return _copied(loader, sampler=sampler, batch_sampler=batch_sampler)


def with_batch_sampler(loader: DataLoader[Any], batch_sampler: Any) -> DataLoader[Any]:
    """A copy of a DataLoader that draws its lists of indices from ``batch_sampler``; everything else is kept."""
    return _copied(loader, batch_sampler=batch_sampler)


class SkippedIndices:
    """The draws of a sampler (or batch sampler) of which the first are dropped, in one pass.

    Args:
        sampler: what to draw from.
        count: how many draws are dropped.
    """

    def __init__(self, sampler: Iterable[Any], count: int) -> None:
        self._sampler = sampler
        self._count = count
        self._draws: Iterator[Any] | None = None

    def drop(self) -> bool:
        """Drops them now.

        Returns:
            Whether torch's global random state moved after the first of them: the sampler draws from it all the time.
        """
        self._draws = iter(self._sampler)
        if self._count:
            next(self._draws, None)
        before = torch.get_rng_state()
        for _ in range(self._count - 1):
            next(self._draws, None)
        return not torch.equal(before, torch.get_rng_state())

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        assert self._draws is not None, "drop comes first"
        return next(self._draws)


def skipping_loader(loader: DataLoader[Any], count: int) -> tuple[DataLoader[Any], SkippedIndices]:
    """A copy of a DataLoader for one pass without its first ``count`` batches, which aren't loaded.

    Returns:
        The copy, and the draws of its sampler, whose ``drop`` has to be called between making the iterator and its
        first batch.
    """
    indices = SkippedIndices(loader.sampler if loader.batch_sampler is None else loader.batch_sampler, count)
    if loader.batch_sampler is None:
        return _copied(loader, sampler=indices), indices
    return _copied(loader, batch_sampler=indices), indices


def without_dropping(loader: Any) -> Any:
    """A loader that shows an incomplete last batch too, for predictions, which shall cover every sample.

    Returns the loader itself unless it is a DataLoader that is known to drop samples.
    """
    if not isinstance(loader, DataLoader) or type(loader.batch_sampler) is not BatchSampler:
        return loader
    made = loader.batch_sampler
    if not made.drop_last:
        return loader
    complete = BatchSampler(made.sampler, made.batch_size, drop_last=False)
    if draws_from_batch_sampler(loader):
        return with_batch_sampler(loader, complete)
    return _copied(loader, batch_sampler=complete, drop_last=False)
