"""What keeps the values of keys: the newest of each step, and the sums from which an epoch's values are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unstuck.messages import PossibleUserWarning, rank_zero_warn
from unstuck.trainer.results.options import Settings
from unstuck.trainer.results.reduction import INITIAL
from unstuck.trainer.results.values import accumulation_dtype

__all__ = ["Group", "MetricHolder", "Reduce", "RunContext"]

# All integers up to it are.
EXACT_IN_FLOAT32 = 2**24

Reduce = Callable[[Tensor, Any, str], Tensor]
"""Reduces a tensor over all processes: ``reduce(tensor, process_group, "mean" | "sum" | "max" | "min")``."""


@dataclasses.dataclass
class RunContext:
    """What logging needs to know of the run.

    Attributes:
        module: the module that logs, where metric objects are looked for.
        device: where a number is put that has to be reduced over processes.
        reduce: reduces over processes; None where there is only one.
        has_logger: whether anything reads what is logged with ``logger=True``.
    """

    module: nn.Module | None = None
    device: torch.device = dataclasses.field(default_factory=lambda: torch.device("cpu"))
    reduce: Reduce | None = None
    has_logger: bool = True


class Group:
    """Tensors that are always logged in one call, kept as one vector; a single value has no dimension.

    Attributes:
        settings: one per value, equal but for the name.
        dtype: of the values with which the group began.
        step: the newest values, shape (n,) or (), None before the first.
        total: the epoch's weighted sums, sums, maxima or minima, same shape; None before the first.
        weight: sum of the batch sizes; shape (n,) where values with histories of their own came together.
        empty: whether nothing has been logged since the last reset.
    """

    __slots__ = (
        "_epoch",
        "_last_batch_size",
        "_last_factor",
        "dtype",
        "empty",
        "keep_graph",
        "on_epoch",
        "on_step",
        "reduction",
        "settings",
        "step",
        "synced",
        "total",
        "weight",
    )

    def __init__(self, settings: list[Settings], dtype: torch.dtype) -> None:
        self.settings = settings
        self.dtype = dtype
        first = settings[0]
        self.on_step = first.on_step
        self.on_epoch = first.on_epoch
        self.reduction = first.reduction
        self.synced = first.synced
        self.keep_graph = first.enable_graph
        self._last_batch_size: int | None = None
        self._last_factor: int | Tensor = 1
        self.reset()

    def reset(self) -> None:
        """Forget the values and keep the settings."""
        self.step: Tensor | None = None
        self.total: Tensor | None = None
        self.weight: int | Tensor = 0
        self.empty = True
        self._epoch: Tensor | None = None

    def update(self, values: Tensor, batch_size: int, context: RunContext) -> None:
        """Take the values of one call.

        Args:
            values: shape (n,) or (), owned by the group from now on.
            batch_size: weight in an epoch's mean.
            context: of the run.
        """
        self.empty = False
        if self.on_step:
            self.step = _reduce(values.clone(), self.settings[0], context) if self.synced else values
            if not self.on_epoch:
                return
        if self.keep_graph:
            values = values.detach()
        total = self.total
        if total is None:
            total = torch.full_like(values, INITIAL[self.reduction], dtype=accumulation_dtype())
        elif total.device != values.device:
            total = total.to(values.device)
        if self.reduction == "mean":
            # Two operations, no fused one: the product is rounded before it is added. Never in place, as sums that were
            # begun in inference mode can't be changed outside of it, and as published values must not change.
            self.total = total + (values if batch_size == 1 else values * self._factor(batch_size))
            self.weight = self.weight + batch_size
        elif self.reduction == "sum":
            self.total = total + values
        elif self.reduction == "max":
            self.total = torch.maximum(total, values)
        else:
            self.total = torch.minimum(total, values)
        self._epoch = None

    def epoch(self, context: RunContext) -> Tensor:
        """Return the epoch's values so far, shape (n,) or ().

        Over several processes this is a collective operation, done once until the next update.
        """
        if self._epoch is None:
            assert self.total is not None
            value, settings = self.total, self.settings[0]
            if self.synced:
                value = _reduce(value.clone(), settings, context)
            elif torch.distributed.is_available() and torch.distributed.is_initialized():
                _warn_unsynced(settings.name)
            if self.reduction == "mean":
                # As a tensor on the values' device: a division by a number may become a product with its reciprocal.
                weight = torch.as_tensor(self.weight, device=value.device)
                # Over processes the weights are averaged as the sums are, which needs fractions.
                value = value / (_reduce(weight.to(value.dtype), settings, context) if self.synced else weight)
            self._epoch = value
        return self._epoch

    def _factor(self, batch_size: int) -> int | Tensor:
        """Return the batch size in the form with which a product takes half the time, where that changes no bit."""
        if batch_size != self._last_batch_size:
            exact = isinstance(batch_size, int) and abs(batch_size) <= EXACT_IN_FLOAT32
            self._last_factor = (
                torch.tensor(float(batch_size), dtype=torch.float32, device="cpu") if exact else batch_size
            )
            self._last_batch_size = batch_size
        return self._last_factor

    def split(self) -> list[Group]:
        """Return one group for each value, with its history."""
        singles = []
        for index, settings in enumerate(self.settings):
            single = Group([settings], self.dtype)
            single.step = None if self.step is None else self.step[index]
            single.total = None if self.total is None else self.total[index]
            single.weight = self.weight if isinstance(self.weight, int) else self.weight[index]
            single.empty = self.empty
            singles.append(single)
        return singles

    def join(self, singles: list[Group | None], device: torch.device) -> bool:
        """Take over the epoch's sums of groups of one value; None for a name that is new.

        Returns:
            Whether that was possible: sums of different dtypes aren't kept together.
        """
        initial = torch.tensor(INITIAL[self.reduction], dtype=accumulation_dtype())
        totals = [initial if single is None or single.total is None else single.total for single in singles]
        if len({total.dtype for total in totals}) > 1:
            return False
        weights = [0 if single is None else single.weight for single in singles]
        if any(total is not initial for total in totals):
            self.total = torch.stack([total.to(device) for total in totals])
            self.weight = torch.stack([torch.as_tensor(weight, device=device) for weight in weights])
            self.empty = False
        return True


class MetricHolder:
    """A metric object of torchmetrics, which keeps its own state.

    Attributes:
        settings: how it was logged, one element.
        metric: the object.
        step: what its last ``forward`` returned, None when only ``update`` was called.
        empty: whether it hasn't been logged since the last reset.
    """

    __slots__ = ("_epoch", "empty", "metric", "settings", "step")

    def __init__(self, settings: Settings, metric: Any) -> None:
        self.settings = [settings]
        self.metric = metric
        self.step: Any = None
        self.empty = True
        self._epoch: Any = None

    def update(self) -> None:
        """Note that the metric was logged."""
        self.step = self.metric._forward_cache
        self.empty = False
        self._epoch = None

    def epoch(self) -> Any:
        """Return the metric's value over the epoch so far."""
        if self._epoch is None:
            self._epoch = self.metric.compute()
        return self._epoch

    def reset(self) -> None:
        """Reset the metric object itself: its next epoch begins."""
        self.metric.reset()
        self.step = None
        self.empty = True
        self._epoch = None


def _reduce(tensor: Tensor, settings: Settings, context: RunContext) -> Tensor:
    assert context.reduce is not None
    if tensor.device.type == "cpu":  # a number's place; the processes may only reach each other's devices
        tensor = tensor.to(context.device)
    return context.reduce(tensor, settings.sync_dist_group, settings.reduction)


def _warn_unsynced(name: str) -> None:
    rank_zero_warn(
        f"`self.log({name!r}, ...)` collects an epoch's value on this process only, though there are several."
        " Use `sync_dist=True` to reduce it over all of them.",
        category=PossibleUserWarning,
    )
