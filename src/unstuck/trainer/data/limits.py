"""How many batches a run uses: reading the limits that a Trainer is given, and resolving them against loaders.

A limit is either an ``int``, a number of batches, or a ``float`` within 0.0 and 1.0, a fraction of the loader's batches: ``1`` is one batch, ``1.0`` all of them.
Both count batches per device, before accumulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from unstuck.trainer.data.overfit import Overfit

__all__ = [
    "BatchLimits",
    "parse_batch_limits",
    "parse_limit",
    "parse_val_check_interval",
    "resolve_limit",
    "resolve_val_check_interval",
]

NumBatches = int | float  # an int, or inf for a loader without length


def parse_limit(name: str, value: Any) -> int | float:
    """Reads one limit: an int of at least 0 or a float of 0.0 to 1.0; ``None`` reads as 1.0 and whole floats above 1 as ints.

    Raises MisconfigurationException that names ``name`` and the smallest valid value.
    """
    raise NotImplementedError


def describe_limit(name: str, value: int | float) -> str | None:
    """The line that tells how an explicit 1 or 1.0 was read, or None."""
    raise NotImplementedError


def resolve_limit(limit: int | float, length: NumBatches, *, name: str, loader: str) -> NumBatches:
    """The number of batches that ``limit`` allows of a loader of ``length`` batches (inf: unknown): ``int(length * fraction)``.

    Args: name: the Trainer's argument; loader: the loader's name, both for the error.
    Raises MisconfigurationException (a fraction that rounds to nothing; a fraction of a loader without length).
    """
    raise NotImplementedError


def parse_val_check_interval(value: Any, check_val_every_n_epoch: int | None = 1) -> int | float | timedelta:
    """Reads ``val_check_interval``: int batches, float fraction of an epoch, or a time (timedelta, dict of its keywords, "DD:HH:MM:SS")."""
    raise NotImplementedError


def resolve_val_check_interval(
    interval: int | float | timedelta,
    num_training_batches: NumBatches,
    *,
    every_n_epochs: int | None = 1,
    validates: bool = True,
) -> NumBatches | None:
    """The number of training batches between validations (inf: only at the epoch's end; None: by time)."""
    raise NotImplementedError


@dataclass(frozen=True)
class BatchLimits:
    """All limits of a Trainer, read and checked, ``fast_dev_run`` and ``overfit_batches`` already applied."""

    train: int | float
    val: int | float
    test: int | float
    predict: int | float
    sanity: int | float
    """Batches per validation loader in the sanity check; inf for all."""
    val_check_interval: int | float | timedelta
    overfit: Overfit | None
    """None when ``overfit_batches`` is 0."""
    fast_dev_run: int
    """0 = off"""
    notes: tuple[str, ...] = ()
    """Lines to show to the user once: how 1 and 1.0 were read."""


def parse_batch_limits(
    *,
    limit_train_batches: Any = None,
    limit_val_batches: Any = None,
    limit_test_batches: Any = None,
    limit_predict_batches: Any = None,
    overfit_batches: Any = 0.0,
    val_check_interval: Any = None,
    check_val_every_n_epoch: int | None = 1,
    num_sanity_val_steps: Any = None,
    fast_dev_run: Any = False,
) -> BatchLimits:
    """Reads the Trainer's keywords on numbers of batches. Raises MisconfigurationException."""
    raise NotImplementedError
