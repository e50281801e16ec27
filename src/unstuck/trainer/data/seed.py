"""Random state: seeding everything, seeding workers, and code that must leave the random state as it found it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

__all__ = ["isolate_rng", "pl_worker_init_function", "seed_everything"]


def seed_everything(seed: int | None = None, workers: bool = False, verbose: bool = True) -> int:
    """Seeds python, numpy and torch; None takes the seed from PL_GLOBAL_SEED, else 0. Sets PL_GLOBAL_SEED and PL_SEED_WORKERS."""
    raise NotImplementedError


def pl_worker_init_function(worker_id: int, rank: int | None = None) -> None:
    """A ``worker_init_fn`` that seeds python and numpy of each worker differently."""
    raise NotImplementedError


@contextmanager
def isolate_rng(include_cuda: bool = True, generators: Sequence[torch.Generator] = ()) -> Iterator[None]:
    """Puts the random state of torch (with CUDA), numpy, python and of ``generators`` back at its end. Wrap every validation within a fit in it."""
    raise NotImplementedError
