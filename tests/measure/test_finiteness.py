"""One number for many tensors agrees with a look at every element."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unstuck.measure.finiteness import Sweep, all_finite, first_nonfinite, nonfinite_counts

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64]


def slow(tensors: list[torch.Tensor]) -> bool:
    """The obvious twin: every element as a Python number."""
    for tensor in tensors:
        for value in tensor.flatten().tolist():
            parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
            if not all(math.isfinite(part) for part in parts):
                return False
    return True


@st.composite
def lists_of_tensors(draw: st.DrawFn) -> list[torch.Tensor]:
    tensors = []
    for _ in range(draw(st.integers(0, 5))):
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        tensor = torch.zeros(shape, dtype=dtype)
        if tensor.numel() and dtype is not torch.int64:
            value = draw(st.sampled_from([0.0, 1.0, -1.0, 6e4, math.inf, -math.inf, math.nan]))
            flat = tensor.view(-1)
            flat[draw(st.integers(0, flat.numel() - 1))] = value
        tensors.append(tensor)
    return tensors


@given(lists_of_tensors())
@settings(max_examples=200, deadline=None)
def test_it_agrees_with_the_slow_twin(tensors: list[torch.Tensor]) -> None:
    assert all_finite(tensors) == slow(tensors)
    bad = first_nonfinite([tensor for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()])
    assert (bad is None) == slow(tensors)


@given(lists_of_tensors())
@settings(max_examples=100, deadline=None)
def test_a_sweep_agrees_too(values: list[torch.Tensor]) -> None:
    parameters = [value.clone().requires_grad_() for value in values if value.is_floating_point()]
    for parameter in parameters:
        parameter.grad = parameter.detach().clone()
    sweep = Sweep(parameters)
    assert sweep.values_finite() == sweep.gradients_finite() == slow([item.detach() for item in parameters])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_overflow_of_the_sum_is_no_infinity(dtype: torch.dtype) -> None:
    large = torch.full((64, 64), torch.finfo(dtype).max, dtype=dtype)
    assert all_finite([large])
    assert all_finite([large, large])


def test_opposite_infinities_do_not_cancel() -> None:
    assert not all_finite([torch.tensor([math.inf, -math.inf]), torch.ones(3)])


def test_sparse_gradients_are_looked_at() -> None:
    sparse = torch.sparse_coo_tensor([[0, 2]], [1.0, math.nan], (4,), check_invariants=True)
    assert not all_finite([sparse, torch.ones(2)])
    assert all_finite([torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,), check_invariants=True)])


def test_a_quick_look_sees_the_small_ones_and_the_first() -> None:
    first, large, bias = (torch.zeros(size, requires_grad=True) for size in (20_000, 100_000, 8))
    for parameter in (first, large, bias):
        parameter.grad = torch.zeros_like(parameter)
    sweep = Sweep([first, large, bias])
    assert sweep.partial
    large.grad[5] = math.nan  # type: ignore[index]
    assert sweep.gradients_finite(quick=True)
    assert not sweep.gradients_finite()
    bias.grad[1] = math.inf  # type: ignore[index]
    assert not sweep.gradients_finite(quick=True)


def test_no_graph_is_built_and_the_grad_mode_stays() -> None:
    parameter = torch.ones(3, requires_grad=True)
    assert Sweep([parameter, torch.ones(2, requires_grad=True)]).values_finite()
    assert torch.is_grad_enabled()
    assert parameter.grad_fn is None


def test_counts() -> None:
    assert nonfinite_counts(torch.tensor([1.0, math.nan, math.inf, -math.inf])) == (1, 2)
