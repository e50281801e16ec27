"""Is everything finite? One number for many tensors, in a few microseconds.

A sum over all elements is finite only if every element is (an overflow of the sum itself is settled exactly), and small
tensors are summed together after one copy, so that the cost isn't one kernel launch per parameter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

import torch
from torch.nn.parameter import is_lazy

__all__ = ["Sweep", "all_finite", "first_nonfinite", "nonfinite_counts"]

_SMALL = 16384
"""Elements below which copying a tensor next to others is cheaper than a reduction of its own."""

_flatten = torch._C._nn.flatten_dense_tensors


def all_finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether no element of any tensor is NaN or infinite (floating and complex ones; others are always finite).

    Waits for the device if the tensors aren't on the CPU.
    """
    total = 0.0
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)  # the context manager costs as much as the sum of a small network
    try:
        for tensor in _sums(tensors):
            total += tensor.item()
    except (RuntimeError, TypeError, NotImplementedError):
        total = math.nan  # a layout or dtype that has no sum: the exact way decides
    finally:
        torch._C._set_grad_enabled(before)
    if math.isfinite(total):
        return True
    return first_nonfinite(tensors) is None


def first_nonfinite(tensors: Sequence[torch.Tensor]) -> int | None:
    """Index of the first tensor that holds NaN or infinity, by looking at every element; None if all are finite."""
    for index, tensor in enumerate(tensors):
        if not bool(torch.isfinite(_values(tensor)).all()):
            return index
    return None


def nonfinite_counts(tensor: torch.Tensor) -> tuple[int, int]:
    """(number of NaN, number of infinities) in a tensor."""
    values = _values(tensor)
    return int(torch.isnan(values).sum()), int(torch.isinf(values).sum())


class Sweep:
    """:func:`all_finite` for the same list of parameters again and again, sorted by size once.

    A NaN in a derivative spreads to every gradient that is computed after it: to the biases next to it and to all
    layers before it. So a quick look at the small gradients and at the first parameter's finds nearly every one.

    Args:
        parameters: whose values or gradients will be looked at, in the order of the forward pass.

    Attributes:
        parameters: these, but for those that have no shape yet.
        first: the first of them, whose gradient is computed last; None where it isn't of real numbers on the CPU.
        partial: whether a quick look leaves something out.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._all = list(parameters)
        self._sort()

    def _sort(self) -> None:
        """By size; parameters that get their shape in the first forward pass are left out until then."""
        self.parameters = [item for item in self._all if not is_lazy(item)]
        self._lazy = len(self.parameters) < len(self._all)
        plain = [item for item in self.parameters if item.layout is torch.strided and item.dtype in _WIDE]
        same = [item for item in plain if item.dtype is plain[0].dtype and item.device == plain[0].device]
        self._small = [item for item in same if item.numel() <= _SMALL]
        small = {id(item) for item in self._small}
        self._others = [item for item in self.parameters if id(item) not in small]
        self._first = self._others[:1] if self._others and self._others[0].numel() <= 4 * _SMALL else []
        first = self.parameters[0] if self.parameters else None
        self.first = first if first is not None and first.is_cpu and first.is_floating_point() else None
        self.partial = bool(self._small) and len(self._others) > len(self._first)

    def gradients_finite(self, quick: bool = False) -> bool:
        """Whether every gradient is finite; parameters without one are left out.

        Args:
            quick: look only at the small ones and the first.
        """
        if self._lazy:
            self._sort()
        gradients = [item.grad for item in self._small]
        others = self._first if quick and self.partial else self._others
        return self._finite(
            [item for item in gradients if item is not None],
            [gradient for item in others if (gradient := item.grad) is not None],
        )

    def first_gradient_finite(self) -> bool:
        """Whether the gradient that is computed last, the first parameter's, is finite; without it, whether all are."""
        gradient = self.parameters[0].grad if self.parameters else None
        return self.gradients_finite() if gradient is None else self._finite([], [gradient])

    def values_finite(self) -> bool:
        """Whether every parameter is finite."""
        if self._lazy:
            self._sort()
        return self._finite(self._small, self._others)

    def _finite(self, small: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
        if small:
            before = torch.is_grad_enabled()
            torch._C._set_grad_enabled(False)
            try:
                fine = math.isfinite(_flatten(small).sum().item())
            except (RuntimeError, TypeError, NotImplementedError):
                fine = False  # a gradient of another layout than its parameter
            finally:
                torch._C._set_grad_enabled(before)
            if not fine and not all_finite(small):
                return False
        return not others or all_finite(others)


_WIDE = (torch.float32, torch.float64)


def _values(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor.values()
    return tensor


def _sums(tensors: Sequence[torch.Tensor]) -> Iterable[torch.Tensor]:
    if len(tensors) == 1:
        yield _sum(tensors[0])
        return
    small = []
    for tensor in tensors:
        if tensor.numel() <= _SMALL and tensor.layout is torch.strided:
            small.append(tensor)
        else:
            yield _sum(_values(tensor))
    if not small:
        return
    first = small[0]
    if all(tensor.dtype is first.dtype and tensor.device == first.device for tensor in small):
        yield _sum(_flatten(small))
        return
    ordered = sorted(small, key=_kind)
    for _, group in groupby(ordered, key=_kind):
        yield _sum(_flatten(list(group)))


def _kind(tensor: torch.Tensor) -> tuple[str, str]:
    return str(tensor.dtype), str(tensor.device)


def _sum(tensor: torch.Tensor) -> torch.Tensor:
    dtype = tensor.dtype
    if dtype is torch.float32 or dtype is torch.float64:
        return tensor.sum()
    if dtype.is_complex:
        return torch.view_as_real(tensor).sum()
    if dtype.is_floating_point:
        # in its own precision the sum of a half tensor overflows although every element is finite
        return tensor.sum(dtype=torch.float32)
    return torch.zeros(())
