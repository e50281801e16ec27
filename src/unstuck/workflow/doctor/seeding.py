"""The random states from which a program is built and trained: the same in every check, and put back afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from unstuck.trainer.data.seed import isolate_rng

__all__ = ["seeded"]

SEED = 0


@contextmanager
def seeded() -> Iterator[None]:
    """Inside, the random numbers are those of every such block; outside, nothing has been drawn."""
    with isolate_rng():
        random.seed(SEED)
        np.random.seed(SEED)
        torch.manual_seed(SEED)
        yield
