"""A loader's share for each process of a distributed run."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)
from torch.utils.data.distributed import DistributedSampler

from unstuck.errors import MisconfigurationException
from unstuck.trainer.data.limits import Stage
from unstuck.trainer.data.loaders import draws_from_batch_sampler, with_batch_sampler, with_sampler, without_dropping

__all__ = ["DistributedSamplerWrapper", "UnrepeatedDistributedSampler", "use_distributed_sampler"]


class UnrepeatedDistributedSampler(DistributedSampler[Any]):
    """A distributed sampler that shows no sample twice: ranks may get one sample fewer than others. For prediction."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        total = len(self.dataset)  # type: ignore[arg-type]
        self.num_samples = len(range(self.rank, total, self.num_replicas))
        self.total_size = total

    def __iter__(self) -> Iterator[Any]:
        total = len(self.dataset)  # type: ignore[arg-type]
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = torch.randperm(total, generator=generator).tolist()
        else:
            order = list(range(total))
        return iter(order[self.rank : total : self.num_replicas])


class _DrawnItems(Dataset[Any]):
    """What a sampler draws in one pass, as something that indices point into."""

    def __init__(self, sampler: Sampler[Any]) -> None:
        self.sampler = sampler
        self.items: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.sampler) if self.items is None else len(self.items)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        if self.items is None:
            self.draw(0)
        return cast("list[Any]", self.items)[index]

    def draw(self, seed: int) -> None:
        """Draws a pass; every rank that gives the same seed draws the same from torch's random state, which is left as
        it was.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.items = list(self.sampler)


class DistributedSamplerWrapper(DistributedSampler[Any]):
    """Shares what any sampler draws between the ranks, in the order in which it draws it.

    A sampler with a random state of its own (a generator, numpy) has to be seeded alike on all ranks.
    """

    def __init__(self, sampler: Sampler[Any], **kwargs: Any) -> None:
        try:
            super().__init__(_DrawnItems(sampler), shuffle=False, **kwargs)
        except TypeError as error:
            raise MisconfigurationException(
                f"The sampler {type(sampler).__qualname__} can't be shared between processes, as it has no length "
                f"({error}). "
                "Set Trainer(use_distributed_sampler=False) and share the samples yourself."
            ) from None
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        drawn = cast(_DrawnItems, self.dataset)
        drawn.draw(self.seed + self.epoch)
        return (drawn[index] for index in super().__iter__())

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        inner = getattr(self.sampler, "set_epoch", None)
        if callable(inner):
            inner(epoch)


def use_distributed_sampler(
    loader: Any, *, num_replicas: int, rank: int, stage: Stage = "train", seed: int | None = None
) -> Any:
    """A copy of a loader that shows one rank its share of the samples.

    Args:
        loader: any loader. What isn't a DataLoader over a dataset with indices is returned as it is, as is a loader
        that
            has a distributed sampler already; streams have to share their samples themselves.
        num_replicas: number of processes.
        rank: number of this process.
        stage: prediction shows every sample once; the other stages repeat samples so that all ranks get equally many.
        seed: seed of the shuffle, the same on all ranks; None takes the one of ``seed_everything``, or 0.

    Raises:
        MisconfigurationException: for a batch sampler that has no sampler to be replaced.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader
    if stage == "predict":
        loader = without_dropping(loader)
    own_batches = draws_from_batch_sampler(loader)
    sampler = getattr(loader.batch_sampler, "sampler", None) if own_batches else loader.sampler
    if isinstance(sampler, DistributedSampler):
        return loader
    if sampler is None:
        raise MisconfigurationException(
            f"The batch sampler {type(loader.batch_sampler).__qualname__} has no `sampler` that could be replaced by a "
            f"distributed one. "
            "Give it one, or set Trainer(use_distributed_sampler=False) and share the samples between the processes "
            "yourself."
        )
    if seed is None:
        seed = int(os.environ.get("PL_GLOBAL_SEED", 0))
    share = _share(sampler, loader.dataset, num_replicas, rank, stage, seed)
    if not own_batches:
        return with_sampler(loader, share)
    batch_sampler = copy.copy(loader.batch_sampler)
    batch_sampler.sampler = share
    return with_batch_sampler(loader, batch_sampler)


def _share(
    sampler: Any, dataset: Any, num_replicas: int, rank: int, stage: Stage, seed: int
) -> DistributedSampler[Any]:
    kwargs: dict[str, Any] = {"num_replicas": num_replicas, "rank": rank, "seed": seed}
    if type(sampler) in (RandomSampler, SequentialSampler):
        shuffle = isinstance(sampler, RandomSampler) and stage == "train"
        cls = UnrepeatedDistributedSampler if stage == "predict" else DistributedSampler
        return cls(dataset, shuffle=shuffle, **kwargs)
    return DistributedSamplerWrapper(sampler, **kwargs)
