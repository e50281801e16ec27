"""The bounds of a batch's loss agree with what is known in closed form."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from unstuck.trials.overfit.bounds import bounds_of, groups_of_equal_inputs


def entropy(labels: torch.Tensor) -> float:
    shares = torch.bincount(labels).double() / len(labels)
    return float(-(shares[shares > 0] * shares[shares > 0].log()).sum())


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=4, max_size=24), st.integers(0, 100))
def test_cross_entropy_lies_between_zero_and_the_entropy_of_the_labels(labels: list[int], seed: int) -> None:
    target = torch.tensor(labels)
    output = torch.randn(len(labels), 5, generator=torch.Generator().manual_seed(seed))
    found = bounds_of(F.cross_entropy, output, target, torch.arange(len(labels)))
    assert found.constant == pytest.approx(entropy(target), abs=2e-3)
    assert found.floor == pytest.approx(0.0, abs=2e-3)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=20))
def test_squared_error_lies_between_zero_and_the_variance(values: list[float]) -> None:
    target = torch.tensor(values).unsqueeze(1)
    found = bounds_of(F.mse_loss, torch.zeros_like(target), target, torch.arange(len(values)))
    variance = float(target.double().var(correction=0))
    assert found.constant == pytest.approx(variance, rel=1e-3, abs=1e-6)
    assert found.floor == pytest.approx(0.0, abs=max(1e-6, 1e-4 * variance))


def test_equal_inputs_with_other_labels_keep_the_loss_above_zero() -> None:
    inputs = torch.tensor([[0.0], [0.0], [1.0], [1.0]])
    target = torch.tensor([0, 1, 1, 1])
    groups = groups_of_equal_inputs(inputs, 4)
    found = bounds_of(F.cross_entropy, torch.randn(4, 2), target, groups)
    assert groups.tolist() == [0, 0, 1, 1]
    assert found.floor == pytest.approx(math.log(2) / 2, abs=1e-3)


def test_a_smoothed_label_keeps_the_loss_above_zero() -> None:
    target = torch.tensor([0, 1, 2, 3] * 4)

    def loss(output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, wanted, label_smoothing=0.1)

    found = bounds_of(loss, torch.randn(16, 4), target, torch.arange(16))
    right, wrong = 0.9 + 0.025, 0.025
    assert found.floor == pytest.approx(-(right * math.log(right) + 3 * wrong * math.log(wrong)), abs=1e-3)


def test_probabilities_stay_probabilities() -> None:
    target = torch.tensor([0.0, 1.0, 1.0, 1.0])
    found = bounds_of(F.binary_cross_entropy, torch.rand(4), target, torch.arange(4))
    assert found.constant == pytest.approx(entropy(target.long()), abs=1e-3)
    assert found.floor == pytest.approx(0.0, abs=1e-3)


def test_vectors_of_length_one_stay_that() -> None:
    def nearest(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output @ output.T, target)

    made = F.normalize(torch.randn(8, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    found = bounds_of(nearest, made, torch.arange(8), torch.arange(8))
    assert found.constant == pytest.approx(math.log(8), abs=1e-3)
    # at best all pairs have the same product, -1 / 7
    assert found.floor == pytest.approx(math.log(1 + 7 * math.exp(-1 / 7 - 1)), abs=1e-3)


def test_a_loss_without_a_lower_end_has_no_bounds() -> None:
    found = bounds_of(F.nll_loss, torch.randn(8, 3), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]), torch.arange(8))
    assert (found.constant, found.floor) == (None, None)


def test_a_loss_that_refuses_such_predictions_has_no_bounds() -> None:
    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no")

    found = bounds_of(loss, torch.randn(4, 2), torch.zeros(4), torch.arange(4))
    assert (found.constant, found.floor) == (None, None)


def test_a_broadcast_target_leaves_nothing_to_learn() -> None:
    target = torch.randn(8)

    def loss(output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return ((output - wanted) ** 2).mean()

    found = bounds_of(loss, torch.randn(8, 1), target, torch.arange(8))
    assert found.floor == pytest.approx(found.constant, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_invents_no_floor(dtype: torch.dtype) -> None:
    target = torch.linspace(200.0, 400.0, 32).unsqueeze(1).to(dtype)
    found = bounds_of(F.mse_loss, torch.randn(32, 1).to(dtype), target, torch.arange(32))
    assert found.constant == pytest.approx(float(target.double().var(correction=0)), rel=1e-3)
    assert found.floor == pytest.approx(0.0, abs=1e-3)
    weighted = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0], dtype=dtype))
    labels = torch.arange(12) % 3
    found = bounds_of(weighted, torch.randn(12, 3).to(dtype), labels, torch.arange(12))
    assert found.floor == pytest.approx(0.0, abs=1e-3)
    assert weighted.weight.dtype == dtype


def test_parameters_of_the_loss_get_no_gradient() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return self.scale * F.mse_loss(output, target)

    loss = Scaled()
    assert bounds_of(loss, torch.randn(8, 1), torch.randn(8, 1), torch.arange(8)).floor == pytest.approx(0.0, abs=1e-6)
    assert loss.scale.grad is None


def test_predictions_too_large_to_minimise_over_have_no_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unstuck.trials.overfit.bounds._MOST_NUMBERS", 20)
    assert bounds_of(F.mse_loss, torch.randn(5, 4), torch.randn(5, 4), torch.arange(5)).floor is not None
    assert bounds_of(F.mse_loss, torch.randn(7, 3), torch.randn(7, 3), torch.arange(7)).floor is None


def test_a_loss_that_takes_too_long_has_no_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unstuck.trials.overfit.bounds._SECONDS", 0.0)
    assert bounds_of(F.mse_loss, torch.randn(5, 4), torch.randn(5, 4), torch.arange(5)).floor is None
