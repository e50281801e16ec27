"""Which samples of its dataset a loader's batch is made of: what its sampler has told, in the order of the batches."""

from __future__ import annotations

from collections import deque
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["DrawnIndices", "plain_indices"]

_AHEAD = 256
"""Batches that workers may be sent ahead."""


class _Waiting:
    def __init__(self) -> None:
        self.sampled: Any = None
        self.indices: deque[Any] = deque(maxlen=_AHEAD)


class DrawnIndices:
    """Indices of batches to come, by iterator."""

    def __init__(self) -> None:
        self._waiting: WeakKeyDictionary[Any, _Waiting] = WeakKeyDictionary()

    def note(self, iterator: Any, indices: Any) -> None:
        """A sampler has drawn for a batch; with workers long before that is given."""
        known = self._waiting.get(iterator)
        if known is None:
            known = self._waiting[iterator] = _Waiting()
        sampled = getattr(iterator, "_sampler_iter", None)
        if known.sampled is not sampled:  # persistent workers begin another pass
            known.sampled = sampled
            known.indices.clear()
        known.indices.append(indices)

    def take(self, iterator: Any) -> list[int] | None:
        """The dataset's indices of the batch that is given now; None where they aren't plain numbers."""
        known = self._waiting.get(iterator)
        return plain_indices(known.indices.popleft()) if known is not None and known.indices else None


def plain_indices(indices: Any) -> list[int] | None:
    """What a sampler has drawn as a list of numbers, None where it is something else."""
    if isinstance(indices, int):
        return [indices]
    if isinstance(indices, (list, tuple)) and all(isinstance(item, int) for item in indices):
        return list(indices)
    return None
