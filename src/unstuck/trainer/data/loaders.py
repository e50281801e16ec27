"""Loaders: where they come from, how long they are, what they are called, and copies of them with another sampler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = [
    "LoaderSource",
    "find_source",
    "length_of",
    "loader_names",
    "use_distributed_sampler",
    "with_sampler",
    "with_batch_sampler",
]


@dataclass(frozen=True)
class LoaderSource:
    """Where the loaders of a stage come from: loaders that were passed, or a hook of the module or data module."""

    hook: str
    """"train_dataloader", "val_dataloader", ..."""
    given: Any = None
    owner: Any = None

    @property
    def is_defined(self) -> bool:
        raise NotImplementedError

    def request(self) -> Any:
        """The loaders; calls the hook anew each time."""
        raise NotImplementedError


def find_source(hook: str, given: Any, datamodule: Any, module: Any) -> LoaderSource:
    """Passed loaders go before the data module's, and these before the module's."""
    raise NotImplementedError


def length_of(loader: Any) -> int | float:
    """Batches of one epoch, inf when the loader can't tell."""
    raise NotImplementedError


def loader_names(base: str, loaders: Any) -> list[str]:
    """A name for each loader of a collection in flat order: ``train_dataloader['a'][0]``."""
    raise NotImplementedError


def is_shuffled(loader: Any) -> bool:
    """Whether a loader draws its samples by a RandomSampler (or a distributed sampler that shuffles)."""
    raise NotImplementedError


def generators_of(loaders: Sequence[Any]) -> list[torch.Generator]:
    """The generators that iterating the loaders draws from, for ``seed.isolate_rng``."""
    raise NotImplementedError


def use_distributed_sampler(
    loader: Any, *, num_replicas: int, rank: int, stage: str = "train", seed: int | None = None
) -> Any:
    """A copy of the loader that shows rank ``rank`` its share; the loader itself where nothing is to be done."""
    raise NotImplementedError


def set_epoch(loader: Any, epoch: int) -> None:
    """Tells the loader's samplers which epoch it is, where they want to know."""
    raise NotImplementedError


def seed_workers(loader: Any, rank: int) -> None:
    """Gives a loader with workers the worker init function, when ``seed_everything(workers=True)`` asked for it."""
    raise NotImplementedError


def with_sampler(loader: Any, sampler: Any) -> Any:
    """A copy of a DataLoader that draws its indices from ``sampler``; everything else kept, own ``__init__`` not called."""
    raise NotImplementedError


def with_batch_sampler(loader: Any, batch_sampler: Any) -> Any:
    """The same with ``batch_sampler``."""
    raise NotImplementedError
