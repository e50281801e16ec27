"""Moving batches of any structure to a device."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["move_data_to_device"]

# Leaves that hold nothing to move; sequences that it would be slow or endless to look into.
_UNMOVED: frozenset[type] = frozenset({int, float, str, bytes, bool, complex, type(None), range, bytearray, memoryview})


_CPU = torch.device("cpu")


def move_data_to_device(batch: Any, device: torch.device | str | int) -> Any:
    """Moves every tensor of a batch to a device.

    Args:
        batch: tensors and objects with a method ``to(device)``, in mappings, sequences, named tuples and dataclasses,
        nested as
            you like. Everything else stays as it is.
        device: the device, as torch takes it.

    Returns:
        A batch of the same structure. Containers in which nothing had to move are the same objects, so on the CPU this
        costs a look at each element. An object whose ``to`` returns None is taken to have moved itself.
    """
    if not isinstance(device, torch.device):
        device = torch.device(device)
    if device == _CPU and _lies_on_cpu(batch):
        return batch
    return _moved(batch, device)


def _lies_on_cpu(item: Any) -> bool:
    """Whether a batch is of the plainest kind and on the CPU already: the quick answer for every step on the CPU."""
    kind = type(item)
    if kind is Tensor:
        return bool(item.is_cpu)
    if kind is tuple or kind is list:
        parts = item
    elif kind is dict:
        parts = item.values()
    else:
        return kind in _UNMOVED
    for part in parts:  # noqa: SIM110 - a generator costs three times as much
        if not (part.is_cpu if type(part) is Tensor else _lies_on_cpu(part)):
            return False
    return True


def _moved(item: Any, device: torch.device) -> Any:
    kind = type(item)
    if kind is Tensor:
        # Elsewhere than on CUDA, an asynchronous copy could be read before it is complete.
        return item if item.device == device else item.to(device, non_blocking=device.type == "cuda")
    if kind is list or kind is tuple:
        return _rebuilt(item, [_moved(part, device) for part in item], kind)
    if kind is dict:
        moved = {key: _moved(part, device) for key, part in item.items()}
        return moved if any(moved[key] is not part for key, part in item.items()) else item
    if kind in _UNMOVED or isinstance(item, (str, type)):
        return item
    return _moved_object(item, device)


def _rebuilt(item: Sequence[Any], parts: list[Any], make: Callable[[list[Any]], Any]) -> Any:
    """The sequence that ``make`` makes of the parts, or the item itself if these are its own."""
    for part, own in zip(parts, item, strict=True):
        if part is not own:
            return make(parts)
    return item


def _moved_object(item: Any, device: torch.device) -> Any:
    """Moves what isn't one of python's own containers or a plain tensor."""
    to = getattr(item, "to", None)
    if callable(to):
        options = {"non_blocking": True} if isinstance(item, Tensor) and device.type == "cuda" else {}
        moved = to(device, **options)
        return item if moved is None else moved
    if isinstance(item, tuple):
        kind: Any = type(item)
        named = hasattr(item, "_fields")
        parts = [_moved(part, device) for part in item]
        return _rebuilt(item, parts, (lambda own: kind(*own)) if named else kind)
    if isinstance(item, Mapping):
        changed = _changed({key: (part, _moved(part, device)) for key, part in item.items()})
        return _with_items(item, changed)
    if isinstance(item, Sequence):
        changed = _changed({index: (part, _moved(part, device)) for index, part in enumerate(item)})
        return _with_items(item, changed)
    if dataclasses.is_dataclass(item):
        names = [field.name for field in dataclasses.fields(item) if hasattr(item, field.name)]
        changed = _changed({name: (getattr(item, name), _moved(getattr(item, name), device)) for name in names})
        return _with_attributes(item, changed)
    return item


def _changed(pairs: dict[Any, tuple[Any, Any]]) -> dict[Any, Any]:
    return {key: moved for key, (own, moved) in pairs.items() if moved is not own}


def _with_items(item: Any, changed: dict[Any, Any]) -> Any:
    """A copy of a container with other items, which keeps its type and attributes where the type can be written to."""
    if not changed:
        return item
    if isinstance(item, (MutableMapping, MutableSequence)):
        clone = copy.copy(item)
        for key, part in changed.items():
            clone[key] = part
        return clone
    if isinstance(item, Mapping):
        return type(item)({**item, **changed})  # type: ignore[call-arg]
    return type(item)([changed.get(index, part) for index, part in enumerate(item)])


def _with_attributes(item: Any, changed: dict[str, Any]) -> Any:
    """A copy of a dataclass with other fields, whether or not it is frozen or its ``__init__`` takes them."""
    if not changed:
        return item
    clone = copy.copy(item)
    for name, part in changed.items():
        object.__setattr__(clone, name, part)
    return clone
