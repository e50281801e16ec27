"""How many samples models with batch normalisation are given in each pass: the last batch of an epoch may be tiny."""

from __future__ import annotations

from types import FrameType
from typing import Any
from weakref import ref

import torch

from unstuck.instruments.guard import Guard
from unstuck.record.batch_sizes import BatchSizes
from unstuck.record.recording import Recording
from unstuck.signals import Rest

__all__ = ["BatchSizesOfModels"]

_MODELS, _SIZES, _STEPS = 64, 256, 64
"""Models, sizes of each, and steps of each size that are kept."""

_FEWEST_CALLS = 8
_PAUSE = 64
"""Steps between two looks for models that come later, where those at first have no batch normalisation."""

_DEPTH = 3


class BatchSizesOfModels:
    """The instrument.

    Args:
        recording: where the counts go.
        guard: counts the steps.
    """

    name = "batch sizes"

    def __init__(self, recording: Recording, guard: Guard) -> None:
        self._recording = recording
        self._guard = guard
        self._known: dict[int, tuple[ref[torch.nn.Module], BatchSizes | None]] = {}
        self._any = False
        self.rest = Rest(("forward_begins",))
        self._calls = 0

    @property
    def wants_calls(self) -> bool:
        """Whether the first module call of each pass is needed: until the first passes show that no model has one."""
        return self._any or self._calls < _FEWEST_CALLS

    def forward_begins(self, module: torch.nn.Module, args: Any, kwargs: Any, frame: FrameType) -> None:
        self._calls += 1
        if not self.wants_calls:
            self.rest.begin(_PAUSE)
        known = self._known.get(id(module))
        if known is None or known[0]() is not module:
            if len(self._known) >= _MODELS:
                return
            known = self._known[id(module)] = (ref(module), self._begin(module))
        sizes = known[1]
        if sizes is None or not module.training:
            return
        size = _leading((args, kwargs), _DEPTH)
        if size is None or (size not in sizes.counts and len(sizes.counts) >= _SIZES):
            return
        sizes.passes += 1
        sizes.counts[size] = sizes.counts.get(size, 0) + 1
        steps = sizes.steps.setdefault(size, [])
        if len(steps) < _STEPS:
            steps.append(self._guard.steps)

    def _begin(self, module: torch.nn.Module) -> BatchSizes | None:
        if not any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in module.modules()):
            return None
        self._any = True
        sizes = BatchSizes(type(module).__name__)
        self._recording.keep(sizes)
        return sizes


def _leading(value: Any, depth: int) -> int | None:
    """Size of the first dimension of the first tensor in what a module was called with."""
    if isinstance(value, torch.Tensor):
        return value.shape[0] if value.dim() else None
    if depth <= 0:
        return None
    items: Any = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    for item in items:
        size = _leading(item, depth - 1)
        if size is not None:
            return size
    return None
