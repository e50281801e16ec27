"""Gradient norms agree with a slow, obvious computation, and with Lightning's keys."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from unstuck.utilities import grad_norm


def slow_norms(module: nn.Module, p: float) -> dict[str, float]:
    """Element by element, in double precision."""
    values: dict[str, list[float]] = {}
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            grad = parameter.grad.to_dense() if parameter.grad.layout is not torch.strided else parameter.grad
            values[name] = [abs(float(value)) for value in grad.flatten().tolist()]

    def norm(items: list[float]) -> float:
        if not items:
            return 0.0
        return max(items) if math.isinf(p) else sum(item**p for item in items) ** (1 / p)

    norms = {f"grad_{p}_norm/{name}": norm(items) for name, items in values.items()}
    if norms:
        norms[f"grad_{p}_norm_total"] = norm([item for items in values.values() for item in items])
    return norms


def module_with(gradients: list[Tensor | None]) -> nn.Module:
    module = nn.Module()
    for index, gradient in enumerate(gradients):
        like = torch.zeros(2) if gradient is None else torch.zeros(gradient.shape, dtype=gradient.dtype)
        parameter = nn.Parameter(like)
        parameter.grad = gradient
        module.register_parameter(f"p{index}", parameter)
    return module


def assert_close(fast: dict[str, Tensor], slow: dict[str, float], tolerance: float = 1e-4) -> None:
    assert fast.keys() == slow.keys()
    for name, value in fast.items():
        assert value.shape == ()
        assert float(value) == pytest.approx(slow[name], rel=tolerance, abs=1e-12)


shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])
kinds = st.sampled_from(["random", "zero", "missing"])
orders = st.sampled_from([0.5, 1, 2, 3, "2.5", math.inf, "inf"])


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(shapes, dtypes, kinds), max_size=5), orders, st.integers(0, 2**16))
def test_any_shapes_dtypes_and_orders(layout: list[Any], order: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    gradients = [
        None if kind == "missing" else (torch.randn(shape, generator=generator) * (kind != "zero")).to(dtype)
        for shape, dtype, kind in layout
    ]
    module = module_with(gradients)
    assert_close(grad_norm(module, order), slow_norms(module, float(order)))


def test_keys_are_lightning_s() -> None:
    from lightning.pytorch.utilities import grad_norm as theirs

    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    assert grad_norm(module, 2) == {}
    module(torch.ones(2, 3)).sum().backward()
    for order in (1, 2, "2.5", "inf"):
        expected = {name: float(value) for name, value in theirs(module, order, group_separator=".").items()}
        assert_close(grad_norm(module, order, group_separator="."), expected)


@pytest.mark.parametrize("order", [0, -1, "-inf", "x", math.nan, None])
def test_other_orders_are_refused(order: Any) -> None:
    with pytest.raises(ValueError, match="must be a number above 0 or 'inf'"):
        grad_norm(nn.Linear(1, 1), order)


def test_a_shared_parameter_counts_once() -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    module(torch.ones(1, 2)).sum().backward()
    norms = grad_norm(module, 2)
    assert list(norms) == ["grad_2.0_norm/0.weight", "grad_2.0_norm_total"]
    assert norms["grad_2.0_norm_total"] == norms["grad_2.0_norm/0.weight"]


def test_sparse_gradients() -> None:
    module = nn.Embedding(10, 3, sparse=True)
    module(torch.tensor([1, 1, 7])).pow(2).sum().backward()
    assert_close(grad_norm(module, 2), slow_norms(module, 2.0))


def test_small_halves_neither_overflow_nor_vanish() -> None:
    module = module_with([torch.full((64,), 6e4, dtype=torch.float16), torch.full((4,), 1e-7, dtype=torch.float16)])
    norms = grad_norm(module, 2)
    assert norms["grad_2.0_norm/p0"].item() == pytest.approx(6e4 * 8, rel=1e-3)
    assert norms["grad_2.0_norm/p1"].item() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64])
def test_high_orders_neither_overflow_nor_vanish(dtype: torch.dtype) -> None:
    module = nn.Module()
    module.large, module.small = (nn.Parameter(torch.zeros(3, dtype=dtype)) for _ in range(2))
    module.large.grad = torch.full((3,), 8.0, dtype=dtype)
    module.small.grad = torch.full((3,), 0.125, dtype=dtype)
    norms = grad_norm(module, 100)
    assert {value.dtype for value in norms.values()} == {torch.float32}
    expected = {"large": 8.0 * 3**0.01, "small": 0.125 * 3**0.01, "total": 8.0 * 3**0.01}
    assert list(norms.values()) == pytest.approx(list(expected.values()), rel=1e-5)


def test_nothing_is_changed_and_nothing_hangs_on_the_graph() -> None:
    module = nn.Linear(2, 1)
    module(torch.ones(1, 2)).sum().backward()
    before = module.weight.grad.clone()
    assert not any(value.requires_grad for value in grad_norm(module, 2).values())
    assert torch.equal(module.weight.grad, before)


def test_names_and_order_are_those_of_named_parameters() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.blocks = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2, bias=False)])
            self.again = self.blocks[0]
            self.nothing = None
            self.register_parameter("absent", None)
            self.by_name = nn.ParameterDict({"w": torch.ones(2)})

    module = Odd()
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    expected = [f"grad_2.0_norm/{name}" for name, _ in module.named_parameters()]
    assert list(grad_norm(module, 2)) == [*expected, "grad_2.0_norm_total"]

    class Renaming(Odd):
        def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
            yield "only", self.scale

    renaming = Renaming()
    renaming.scale.grad = torch.ones(())
    assert list(grad_norm(renaming, 2)) == ["grad_2.0_norm/only", "grad_2.0_norm_total"]
