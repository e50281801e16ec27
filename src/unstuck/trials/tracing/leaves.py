"""What the step found in memory: parameters, buffers, the tensors of the batch. Everything else is a constant."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from unstuck.trials.tracing.lineage import Lineage
from unstuck.trials.tracing.memory import Memory, Region, Storage, scan, strided
from unstuck.trials.tracing.modules import prefixed, roots

__all__ = ["Leaves", "tensors_in"]

_DEPTH = 8


def tensors_in(value: Any, path: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in a nesting of containers, with its key path (``['image'][0]``)."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth <= 0:
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, f"{path}[{key!r}]", depth - 1)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for name in value._fields:
            yield from tensors_in(getattr(value, name), f"{path}.{name}", depth - 1)
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from tensors_in(item, f"{path}[{place}]", depth - 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name, None), f"{path}.{field.name}", depth - 1)
    elif not isinstance(value, (str, bytes, int, float, torch.nn.Module, type)) and hasattr(value, "__dict__"):
        for name, item in vars(value).items():
            yield from tensors_in(item, f"{path}.{name}", depth - 1)


class Leaves:
    """The kinds and names of what was in memory before the step.

    Args:
        memory: storages of the trace.
        models: the program's modules by the variable that holds each.
        batch: the step's data.
    """

    def __init__(self, memory: Memory, models: Mapping[str, torch.nn.Module], batch: Any) -> None:
        self._known: dict[int, list[tuple[str, str, torch.Tensor]]] = {}
        self._memory = memory
        self.batch = [(path, values) for path, tensor in tensors_in(batch) if (values := strided(tensor)) is not None]
        for path, tensor in self.batch:
            self._add("batch", path, tensor)
        self.know(models)

    def know(self, models: Mapping[str, torch.nn.Module]) -> None:
        """Add the parameters and buffers of models."""
        top = roots(models)
        for name, model in top.items():
            for kind, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers())):
                for path, tensor in named:
                    if is_lazy(tensor):
                        continue
                    values = strided(tensor.detach())
                    if values is not None:
                        self._add(kind, prefixed(name, path, len(top) > 1), values)

    def _add(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        storage = self._memory.storage(tensor)
        self._known.setdefault(storage.key, []).append((kind, name, tensor))

    def declare(self, batch: Any, lineage: Lineage | None) -> int | None:
        """Add a batch that has only now come to light; returns its size."""
        found = [(path, values) for path, tensor in tensors_in(batch) if (values := strided(tensor)) is not None]
        size = next((tensor.shape[0] for _, tensor in found if tensor.dim()), None)
        for path, tensor in found:
            self._add("batch", path, tensor)
            if lineage is not None and tensor.dim() and tensor.shape[0] == size:
                lineage.seed(tensor)
        self.batch += found
        return size

    def forget(self) -> None:
        """Let go of every tensor."""
        self._known.clear()
        self.batch.clear()

    def seed(self, lineage: Lineage, batch_size: int | None) -> None:
        """Tell the lineage which tensors run over the samples."""
        if batch_size is None:
            batch_size = next((tensor.shape[0] for _, tensor in self.batch if tensor.dim()), None)
        for _, tensor in self.batch:
            if tensor.dim() and tensor.shape[0] == batch_size:
                lineage.seed(tensor)

    def name(self, region: Region) -> tuple[str, str | None]:
        """Kind and name of what lies in a region: of the tensor that shows it, else of one in the same storage."""
        known = self._known.get(region.storage.key, [])
        for kind, name, tensor in known:
            if (tuple(tensor.shape), tensor.stride(), tensor.storage_offset()) == region.geometry:
                return kind, name
        for kind, name, tensor in known:
            extent = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
            if tensor.storage_offset() <= region.geometry[2] <= tensor.storage_offset() + extent:
                return kind, name
        return "constant", None

    def intended(self, storage: Storage, infinite: bool) -> bool:
        """Whether what was there before the step may be meant: an infinity in a constant, a buffer or a mask."""
        return infinite and not any(
            kind == "parameter" or (kind == "batch" and not _is_mask(tensor))
            for kind, _, tensor in self._known.get(storage.key, [])
        )


def _is_mask(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds nothing but 0 and infinities: made to be added to scores."""
    seen = scan(tensor.detach())
    return seen.bad and seen.low == 0 and seen.high == 0
