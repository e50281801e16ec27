"""Single units of an activation function's result: which are off, or at a flat end, for every sample."""

from __future__ import annotations

from typing import Any

import torch

from unstuck.record.anatomy import Units

__all__ = ["CHANNELS_FIRST", "units_of", "units_of_states"]

CHANNELS_FIRST = frozenset(("convolution", "batch_norm", "group_norm"))
"""Operations whose results have their channels along dimension 1, however many dimensions follow."""

_FLOORS = {"relu": 0.0, "threshold": 0.0, "clamp": 0.0, "clamp_min": 0.0, "hardtanh": 0.0, "hardswish": -3.0}
_FAINT = {"gelu": -4.0, "silu": -12.0, "mish": -12.0, "softplus": -12.0}
"""Inputs from which on downwards the function gives nothing, and those where what it gives is below 1e-3."""

_FLAT_ENDS = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0), "hardsigmoid": (0.0, 1.0), "hardtanh": (-1.0, 1.0)}
_NEAR = 0.01
"""Distance from a flat end, as a share of the whole range, from which on hardly a gradient passes."""
_LOOKED_AT = 2**22
_NAMED = 4096
"""Units whose state is kept one by one."""


def units_of(
    name: str, settings: dict[str, Any], source: torch.Tensor, result: torch.Tensor, channels_first: bool
) -> Units | None:
    """The units of one operation's result; None for other operations and for what has no units.

    Functions that let gradients through everywhere (leaky ReLU, ELU) have none that are off.

    Args:
        name: of the operation.
        settings: its arguments that are no tensors.
        source: what it took, any shape; where the operation worked in place, what it has made of it.
        result: what it made, same shape.
        channels_first: its units lie along dimension 1, as those of images do, though there are only three dimensions.
    """
    if result.dim() < 2 or result.numel() == 0 or result.numel() > _LOOKED_AT or not result.is_floating_point():
        return None
    ends = _ends(name, settings)
    if ends is not None:
        low, high = ends
        margin = _NEAR * (high - low)
        return _counted(name.removeprefix("hard"), (result < low + margin) | (result > high - margin), channels_first)
    if name in _FLOORS and _is_rectifier(name, settings):
        return _counted("rectifier", result == 0, channels_first)
    if name in _FAINT:
        floor = _FAINT[name]
        off = source < floor if source is not result else result.abs() < 1e-3
        return _counted("rectifier", off, channels_first)
    return None


def units_of_states(module: torch.nn.Module, states: torch.Tensor) -> Units | None:
    """The units of a plain recurrent layer; None for those with gates, whose states are products.

    Args:
        module: the layer.
        states: of all times, the units along the last dimension.
    """
    if not isinstance(module, torch.nn.RNN):
        return None
    return units_of(str(module.nonlinearity), {}, states, states, False)


def _ends(name: str, settings: dict[str, Any]) -> tuple[float, float] | None:
    ends = _FLAT_ENDS.get(name)
    if ends is None or name != "hardtanh":
        return ends
    low, high = float(settings.get("min_val", ends[0])), float(settings.get("max_val", ends[1]))
    return (low, high) if low < 0 else None  # one that begins at 0 is a ReLU with a ceiling


def _is_rectifier(name: str, settings: dict[str, Any]) -> bool:
    if name == "clamp":
        return settings.get("min") == 0 and settings.get("max") is None
    if name == "clamp_min":
        return settings.get("min") == 0
    if name == "threshold":
        return settings.get("threshold") == 0 and settings.get("value") == 0
    return True


def _counted(kind: str, off: torch.Tensor, channels_first: bool) -> Units:
    dim = 1 if off.dim() != 3 or channels_first else 2
    flat = off.movedim(dim, -1).reshape(-1, off.shape[dim])
    always = flat.all(0)
    return Units(
        kind=kind,
        count=int(flat.shape[1]),
        off=int(always.sum()),
        share=float(flat.float().mean()),
        samples=int(flat.shape[0]),
        mask=_mask(always) if flat.shape[1] <= _NAMED else "",
    )


def _mask(flags: torch.Tensor) -> str:
    """Flags as a hexadecimal number, the first one in its lowest bit."""
    number = 0
    for index in flags.nonzero().flatten().tolist():
        number |= 1 << index
    return format(number, "x")
