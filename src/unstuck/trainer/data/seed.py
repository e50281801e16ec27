"""Random state: seeding everything, seeding workers, and code that must leave the random state as it found it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from unstuck.messages import global_rank, rank_zero_info

__all__ = ["isolate_rng", "pl_worker_init_function", "seed_everything"]

# The variables are interface: programs and launchers set and read them.
SEED_VARIABLE = "PL_GLOBAL_SEED"
SEED_WORKERS_VARIABLE = "PL_SEED_WORKERS"
MAX_SEED = 2**32 - 1
"""What numpy's global random state takes at most."""


def seed_everything(seed: int | None = None, workers: bool = False, verbose: bool = True) -> int:
    """Seeds the global random states of python, numpy and torch (on all devices).

    Args:
        seed: 0 to 2**32 - 1. None takes the seed from the environment variable ``PL_GLOBAL_SEED``, or else 0.
        workers: whether the Trainer gives loaders with workers :func:`pl_worker_init_function`, so that numpy and
            python are seeded differently in each worker.
        verbose: whether to tell the seed.

    Returns:
        The seed. It is also kept in ``PL_GLOBAL_SEED`` for processes that are started later, and ``workers`` in
        ``PL_SEED_WORKERS``.

    Raises:
        ValueError: for a seed that isn't a number or out of bounds.
    """
    if seed is None:
        given = os.environ.get(SEED_VARIABLE, "0")
        try:
            seed = int(given)
        except ValueError:
            raise ValueError(f"the seed in {SEED_VARIABLE}={given!r} is no whole number") from None
    seed = int(seed)
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"the seed {seed} is out of bounds: numpy takes 0 to {MAX_SEED}")
    if verbose:
        rank_zero_info(f"Seed set to {seed}")
    os.environ[SEED_VARIABLE] = str(seed)
    os.environ[SEED_WORKERS_VARIABLE] = str(int(workers))
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    return seed


def pl_worker_init_function(worker_id: int, rank: int | None = None) -> None:
    """Seeds python, numpy and torch of a loader's worker; a ``worker_init_fn``.

    The seeds depend on the loader's seed (which changes with every epoch), the worker and the process, so that no two
    workers augment alike.

    Args:
        worker_id: number of the worker.
        rank: number of the training process; None takes that of this process.
    """
    rank = global_rank() if rank is None else rank
    loader_seed = torch.initial_seed() - worker_id  # torch has added the worker's number
    state = np.random.SeedSequence([loader_seed, worker_id, rank]).generate_state(4)
    torch.manual_seed(int(state[0]))
    np.random.seed(int(state[1]))
    random.seed(int(state[2]) << 32 | int(state[3]))


@contextmanager
def isolate_rng(include_cuda: bool = True, generators: Sequence[torch.Generator] = ()) -> Iterator[None]:
    """Puts all random states back at its end, so that what runs in it changes no random number of what follows.

    Args:
        include_cuda: whether the states of all CUDA devices are kept too; they are only if CUDA is in use already.
        generators: generators of the user's that are kept as well.
    """
    state = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if include_cuda and torch.cuda.is_initialized() else None
    mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    numpy_state = np.random.get_state(legacy=False)
    python_state = random.getstate()
    generator_states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        torch.set_rng_state(state)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if mps is not None:
            torch.mps.set_rng_state(mps)
        np.random.set_state(numpy_state)
        random.setstate(python_state)
        for generator, generator_state in zip(generators, generator_states, strict=True):
            generator.set_state(generator_state)
