"""The number of samples in a batch of any structure: the weight of its values in an epoch's mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor

from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_warn

__all__ = ["extract_batch_size"]

_UNKNOWN = (
    "The batch size can't be found in the batch. Simplify the batch's structure, or give the number of samples:"
    " `self.log(..., batch_size=batch_size)`."
)


def extract_batch_size(batch: Any) -> int:
    """Return the size of the first dimension of the first tensor in ``batch``.

    Args:
        batch: tensors, strings, mappings, dataclasses and iterables, nested as you like.

    Returns:
        The number of samples; 1 for a tensor without dimensions, the length for a string.

    Raises:
        MisconfigurationException: when there is no tensor or string in it.
        RecursionError: when the batch contains itself.

    Warns when a second size is found, as then the first one may be wrong.
    """
    sizes = _sizes(batch)
    try:
        first = next(sizes, None)
        if first is None:
            raise MisconfigurationException(_UNKNOWN)
        ambiguous = any(size != first for size in sizes)
    except RecursionError:
        raise RecursionError(_UNKNOWN) from None
    if ambiguous:
        rank_zero_warn(
            f"The batch holds tensors of different first dimensions; {first} is taken as the batch size."
            " Give the right one to be sure: `self.log(..., batch_size=batch_size)`."
        )
    return first


def _sizes(batch: Any) -> Iterator[int]:
    if isinstance(batch, Tensor):
        yield batch.size(0) if batch.ndim > 0 else 1
    elif isinstance(batch, str):
        yield len(batch)
    elif isinstance(batch, (Iterable, Mapping)):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _sizes(part)
    elif dataclasses.is_dataclass(batch):
        for field in dataclasses.fields(batch):
            yield from _sizes(getattr(batch, field.name))
