"""What may be logged, and how it becomes the tensor that is kept."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_warn
from unstuck.trainer.results.metric_objects import is_metric

__all__ = ["accumulation_dtype", "check_loggable", "gather", "gather_checked", "mixed_kinds", "snapshot", "to_scalars"]

_SUMMABLE = (torch.float32, torch.float64)
_TENSORS = frozenset({Tensor, torch.nn.Parameter})
_NUMBERS = frozenset({float, int, bool})


def accumulation_dtype() -> torch.dtype:
    """Return the dtype in which values are summed: torch's default, but no lower than float32."""
    default = torch.get_default_dtype()
    return default if default in _SUMMABLE else torch.float32


def check_loggable(name: str, value: object) -> None:
    """Refuse everything that isn't a number, a tensor or a metric.

    Raises:
        ValueError: naming the key and the type.
    """
    if isinstance(value, Mapping):
        raise ValueError(f"`self.log({name!r}, ...)` got a dictionary. Log its entries with `self.log_dict`, unnested.")
    if not isinstance(value, (Tensor, numbers.Number)) and not is_metric(value):
        raise ValueError(f"`self.log({name!r}, ...)` got a {type(value).__name__}, which can't be logged.")


def mixed_kinds(name: str) -> MisconfigurationException:
    """Return the error for a key under which both a metric object and a value are logged."""
    return MisconfigurationException(
        f"`self.log({name!r}, ...)` got a metric object here and a value there. Give one of them another name."
    )


def snapshot(name: str, value: Any, keep_graph: bool = False) -> Tensor:
    """Copy a value, so that what the caller does to it later doesn't change what was logged.

    Args:
        name: key, for messages.
        value: number, or tensor with one element of any shape and dtype.
        keep_graph: whether the copy stays in autograd's graph.

    Returns:
        A tensor without dimensions, float64 where the value was that, else of :func:`accumulation_dtype`. A tensor's
        copy stays on its device; a number's is on the CPU, as moving it would stop the device.

    Raises:
        ValueError: when the tensor has more than one element, or none, or the value is neither number nor tensor.
        MisconfigurationException: when it is a metric object, as values were logged under its key before.
    """
    if not isinstance(value, Tensor):
        check_loggable(name, value)
        if is_metric(value):
            raise mixed_kinds(name)
        return torch.tensor(value, dtype=accumulation_dtype(), device="cpu")
    if value.numel() != 1:
        raise ValueError(
            f"`self.log({name!r}, ...)` got a tensor of shape {tuple(value.shape)}, but only one element can be logged."
            f" Reduce it first, for example `self.log({name!r}, value.mean())`."
        )
    copy = value.clone() if keep_graph else value.detach().clone()
    if not copy.is_floating_point():
        rank_zero_warn(
            f"`self.log({name!r}, ...)` got a tensor of {copy.dtype}, which is converted to {accumulation_dtype()} so"
            " that it can be reduced. Convert it yourself to silence this warning, or use `self.logger.log_metrics` for"
            " what shall not be reduced, like the step."
        )
    return _summable(copy.reshape(()))


def gather(values: Sequence[Any]) -> Tensor | None:
    """Copy values into one vector, quickly.

    Args:
        values: numbers, or tensors without dimensions, of one dtype and device.

    Returns:
        Shape (n,), outside of autograd's graph. None when the values are of another or of more than one kind.
    """
    kinds = set(map(type, values))
    if kinds <= _TENSORS:
        try:
            stacked = torch.stack(values)  # type: ignore[arg-type]
        except RuntimeError:  # shapes or devices differ
            return None
        if stacked.ndim != 1 or not stacked.is_floating_point():
            return None
        return _summable(stacked.detach() if stacked.requires_grad else stacked)
    if kinds <= _NUMBERS:
        return torch.tensor(values, dtype=accumulation_dtype(), device="cpu")
    return None


def gather_checked(values: Mapping[str, Any]) -> Tensor | None:
    """Copy values into one vector, checking each of them.

    Args:
        values: numbers and tensors with one element, by key.

    Returns:
        Shape (n,), outside of autograd's graph. None when dtypes or devices differ, so that no vector holds them all.

    Raises:
        ValueError: as :func:`snapshot`.
    """
    parts = [snapshot(name, value) for name, value in values.items()]
    if len({(part.dtype, part.device) for part in parts}) != 1:
        return None
    return torch.stack(parts)


def to_scalars(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Turn tensors into Python numbers, waiting for each device once.

    Args:
        metrics: numbers and tensors with one element; other values pass unchanged.

    Raises:
        ValueError: when a tensor has more than one element, or none.
    """
    scalars = dict(metrics)
    alike: dict[tuple[torch.device, torch.dtype], list[str]] = {}
    for name, value in metrics.items():
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise ValueError(f"The metric {name!r} has {value.numel()} elements, so it is no scalar.")
            alike.setdefault((value.device, value.dtype), []).append(name)
    for names in alike.values():
        with torch.no_grad():
            values = [metrics[name] if metrics[name].ndim == 0 else metrics[name].reshape(()) for name in names]
            host_values = torch.stack(values).tolist()
        scalars.update(zip(names, host_values, strict=True))
    return scalars


def _summable(values: Tensor) -> Tensor:
    """Return ``values`` in a dtype in which sums keep their digits."""
    return values if values.dtype in _SUMMABLE else values.to(accumulation_dtype())
