"""Puts tensors back that a replay writes to: copies are taken at the first write, not before.

A dispatch mode sees every operation below autograd; an operation whose schema says that it writes to an argument is
preceded by a copy of that argument's storage, if it is one that the program already had.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["WriteJournal"]


class WriteJournal(TorchDispatchMode):
    """While active, remembers what is overwritten in ``known`` tensors; ``restore`` puts it back.

    Args:
        known: tensors that the program has; their version counters are put back, too, since autograd compares them.
    """

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        tensors = list(known)
        self._versions = [(tensor, tensor._version) for tensor in tensors if not tensor.is_inference()]
        storages = (_storage(tensor) for tensor in tensors)
        self._known = {storage._cdata: storage for storage in storages if storage is not None}
        self._copies: list[tuple[torch.UntypedStorage, torch.UntypedStorage]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            for index, argument in enumerate(func._schema.arguments):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    self._before_write(args[index] if index < len(args) else kwargs.get(argument.name))
        elif "batch_norm" in func.name():
            # the schemas of several variants don't say that the running statistics are written
            self._before_write([item for item in args if isinstance(item, torch.Tensor) and item.dim() <= 1])
        return func(*args, **kwargs)

    def _before_write(self, value: Any) -> None:
        for tensor in value if isinstance(value, (list, tuple)) else [value]:
            storage = _storage(tensor) if isinstance(tensor, torch.Tensor) else None
            if storage is not None and self._known.pop(storage._cdata, None) is not None:
                self._copies.append((storage, storage.clone()))

    def restore(self) -> None:
        """Put back every overwritten storage, and the version counters."""
        for storage, copy in self._copies:
            storage.copy_(copy, non_blocking=False)
        changed = [(tensor, version) for tensor, version in self._versions if tensor._version != version]
        if changed:
            torch._C._autograd._unsafe_set_version_counter(
                tuple(tensor for tensor, _ in changed), tuple(version for _, version in changed)
            )
        self._copies.clear()


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
