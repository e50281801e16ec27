"""Single units of an activation function's result: which are off, or at a flat end, for every sample."""

from __future__ import annotations

from typing import Any

import torch

from unstuck.record.anatomy import Units

__all__ = ["units_of"]

_RECTIFIERS = frozenset(
    ("relu", "threshold", "leaky_relu", "elu", "celu", "gelu", "silu", "mish", "hardswish", "clamp_min")
)
_FLAT_ENDS = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0), "hardsigmoid": (0.0, 1.0), "hardtanh": (-1.0, 1.0)}
_NEAR = 0.01
"""Distance from a flat end, as a share of the whole range, from which on hardly a gradient passes."""
_LOOKED_AT = 2**22


def units_of(name: str, settings: dict[str, Any], source: torch.Tensor, result: torch.Tensor) -> Units | None:
    """The units of one operation's result; None for other operations and for what has no units.

    Args:
        name: of the operation.
        settings: its arguments that are no tensors.
        source: what it took, any shape.
        result: what it made, same shape.
    """
    if result.dim() < 2 or result.numel() == 0 or result.numel() > _LOOKED_AT or not result.is_floating_point():
        return None
    if name in _RECTIFIERS:
        if name == "clamp_min" and settings.get("min") != 0:
            return None
        kind, off = "rectifier", (result if name in ("relu", "clamp_min") else source) <= 0
    elif name in _FLAT_ENDS:
        low, high = _FLAT_ENDS[name]
        if name == "hardtanh":
            low, high = float(settings.get("min_val", low)), float(settings.get("max_val", high))
            if low == 0:  # relu6
                return _counted("rectifier", result <= 0)
        margin = _NEAR * (high - low)
        kind, off = name.removeprefix("hard"), (result < low + margin) | (result > high - margin)
    else:
        return None
    return _counted(kind, off)


def _counted(kind: str, off: torch.Tensor) -> Units:
    dim = 1 if off.dim() >= 4 or off.dim() == 2 else off.dim() - 1
    flat = off.movedim(dim, -1).reshape(-1, off.shape[dim])
    return Units(
        kind=kind,
        count=int(flat.shape[1]),
        off=int(flat.all(0).sum()),
        share=float(flat.float().mean()),
        samples=int(flat.shape[0]),
    )
