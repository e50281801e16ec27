"""A tensor in an anatomy: where it came from and what its numbers look like."""

from __future__ import annotations

import torch

from unstuck.record.anatomy import Value
from unstuck.trials.tracing.leaves import Leaves
from unstuck.trials.tracing.lineage import MIXED, SAMPLE, STATISTIC
from unstuck.trials.tracing.memory import Geometry, Memory, geometry

__all__ = ["Makers", "moments", "samples_of"]

_LOOKED_AT = 2**20
"""Elements of a tensor that its mean is taken of."""


class Makers:
    """Which operation of the trace made what a tensor shows.

    Args:
        memory: storages of the trace.
        leaves: what was there before.
    """

    def __init__(self, memory: Memory, leaves: Leaves) -> None:
        self._memory = memory
        self._leaves = leaves
        self._shown: dict[int, dict[Geometry, int]] = {}
        self._written: dict[int, int] = {}

    def wrote(self, tensor: torch.Tensor, op: int, view: bool) -> None:
        """An operation has written a tensor, or made a view."""
        key = self._memory.storage(tensor).key
        if view:
            self._shown.setdefault(key, {})[geometry(tensor)] = op
        else:
            self._shown[key] = {geometry(tensor): op}
            self._written[key] = op

    def of(self, tensor: torch.Tensor) -> tuple[int | None, str | None, str | None]:
        """(operation, None, None), or (None, kind of leaf, its name)."""
        region = self._memory.region(tensor)
        shown = self._shown.get(region.storage.key)
        if shown is not None and region.geometry in shown:
            return shown[region.geometry], None, None
        written = self._written.get(region.storage.key)
        if written is not None:
            return written, None, None
        kind, name = self._leaves.name(region)
        return None, kind, name


def moments(tensor: torch.Tensor) -> tuple[float | None, float | None]:
    """(mean, standard deviation) of the finite elements of a floating point tensor, of a regular sample if it is large.

    None for what has none.
    """
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return None, None
    flat = tensor.detach().reshape(-1)
    step = -(-flat.numel() // _LOOKED_AT)
    values = flat[::step] if step > 1 else flat
    if values.dtype != torch.float64:
        values = values.float()
    deviation, mean = torch.std_mean(values, correction=0)
    if not bool(mean.isfinite()):
        values = values[values.isfinite()]
        if not values.numel():
            return None, None
        deviation, mean = torch.std_mean(values, correction=0)
    return float(mean), float(deviation)


def integer_range(tensor: torch.Tensor) -> tuple[float | None, float | None]:
    """(smallest, largest) of an integer or boolean tensor that isn't huge."""
    if tensor.numel() == 0 or tensor.numel() > _LOOKED_AT or tensor.is_complex():
        return None, None
    low, high = torch.aminmax(tensor.detach().to(torch.int64) if tensor.dtype is torch.bool else tensor.detach())
    return float(low), float(high)


def samples_of(shadow: torch.Tensor | None) -> str:
    """What a shadow says of a whole tensor; see :attr:`unstuck.record.anatomy.Value.samples`."""
    if shadow is None or shadow.numel() == 0:
        return "none"
    codes = shadow.flatten()
    if bool((codes == MIXED).any()):
        return "mixed"
    if bool((codes == STATISTIC).any()):
        return "statistic"
    return "apart" if bool((codes >= SAMPLE).any()) else "none"


def described(
    argument: str,
    tensor: torch.Tensor,
    maker: tuple[int | None, str | None, str | None],
    grad: bool | None,
    span: tuple[float | None, float | None],
    middle: tuple[float | None, float | None],
    samples: str | None,
) -> Value:
    """The record of a tensor."""
    op, leaf, name = maker
    return Value(
        argument=argument,
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        op=op,
        leaf=leaf,
        name=name,
        grad=grad,
        low=span[0],
        high=span[1],
        mean=middle[0],
        std=middle[1],
        samples=samples,
    )
