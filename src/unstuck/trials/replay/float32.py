"""Running code of half precision in float32: autocast off, weights, batches and casts in 32 bits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from unstuck.trials.replay.stand_ins import attribute

__all__ = ["HALF", "in_float32"]

HALF = (torch.float16, torch.bfloat16)
"""The formats that are replaced."""

_DEVICES = ("cpu", "cuda")


@contextlib.contextmanager
def in_float32(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Inside, nothing is computed in half precision; afterwards every tensor is as it was.

    Args:
        tensors: leaves that the code may read: weights, buffers, batches. Inside they are float32 copies themselves,
            so that gradients of weights come in float32 as well.
    """
    with contextlib.ExitStack() as stack:
        for tensor in tensors:
            if tensor.dtype in HALF and tensor.is_leaf and not tensor.is_inference():
                stack.callback(_put_data, tensor, tensor.data)
                tensor.grad = None
                tensor.data = tensor.data.float()
        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(attribute(torch.autocast, "__enter__", _enter_disabled))
        stack.enter_context(_Widened())
        yield


def _put_data(tensor: torch.Tensor, data: torch.Tensor) -> None:
    tensor.grad = None
    tensor.data = data


_enter: Callable[[Any], Any] = torch.autocast.__enter__


def _enter_disabled(context: Any) -> Any:
    wanted, context._enabled = context._enabled, False
    try:
        return _enter(context)
    finally:
        context._enabled = wanted


class _Widened(TorchFunctionMode):
    """Replaces half-precision formats and tensors among the arguments of whatever the code calls."""

    def __init__(self) -> None:
        super().__init__()
        # A tensor that is written in place must be the same one when it is read.
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _CASTS:
            return self._widen(args[0]).float()
        args, named = tree_map(self._widen, (args, dict(kwargs or {})))
        return func(*args, **named)

    def _widen(self, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return torch.float32 if value in HALF else value
        if not isinstance(value, torch.Tensor):
            return value
        if value.dtype not in HALF:
            return value
        known = self._copies.get(id(value))
        if known is None:
            known = self._copies[id(value)] = (value, value.float())
        return known[1]


_CASTS = (torch.Tensor.half, torch.Tensor.bfloat16)
