"""What the loss of a step is made of is found where it follows from one prediction, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from unstuck.trials.overfit.capture import look, looking
from unstuck.trials.overfit.evidence import accuracy_over, bounds_over
from unstuck.trials.overfit.training import Passed

INPUTS = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) % 3
WISHES = torch.linspace(200.0, 400.0, 12).unsqueeze(1)


def model_of(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, outputs))


def seen(step: Callable[[nn.Module], Any], model: nn.Module) -> Passed:
    with torch.no_grad():
        return look(lambda: step(model), model, {"x": INPUTS, "y": LABELS})


def test_a_loss_of_torch_gives_prediction_and_target() -> None:
    found = seen(lambda model: {"loss": F.cross_entropy(model(INPUTS), LABELS)}, model_of(3))
    assert torch.equal(found.target, LABELS)
    accuracy, attainable = accuracy_over([found])
    assert accuracy is not None
    assert attainable == 1.0


def test_a_loss_by_hand_is_a_function_of_the_models_answer() -> None:
    found = seen(lambda model: ((model(INPUTS) - WISHES) ** 2).mean(), model_of(1))
    bounds = bounds_over([found])
    assert bounds.constant == pytest.approx(float(WISHES.double().var(correction=0)), rel=1e-3)
    assert bounds.floor == pytest.approx(0.0, abs=1e-2)


def test_of_several_modules_the_last_one_answers() -> None:
    model = model_of(1)
    found = seen(lambda model: ((model[2](model[1](model[0](INPUTS))) - WISHES) ** 2).mean(), model)
    bounds = bounds_over([found])
    assert bounds.constant == pytest.approx(float(WISHES.double().var(correction=0)), rel=1e-3)
    assert bounds.floor == pytest.approx(0.0, abs=1e-2)
    with torch.no_grad():
        model[0].bias.fill_(-100.0)  # dead: what reaches the last module is the same for all samples
    found = seen(lambda model: ((model[2](model[1](model[0](INPUTS))) - WISHES) ** 2).mean(), model)
    assert bounds_over([found]).floor == pytest.approx(0.0, abs=1e-2)


def with_noise(model: nn.Module) -> torch.Tensor:
    return ((model(INPUTS) - torch.randn(12, 1)) ** 2).mean()


def with_drawn_target(model: nn.Module) -> torch.Tensor:
    return F.mse_loss(model(INPUTS), torch.randn(12, 1))


def with_weights(model: nn.Module) -> torch.Tensor:
    return ((model(INPUTS) - WISHES) ** 2).mean() + sum((item**2).sum() for item in model.parameters())


def with_two_calls(model: nn.Module) -> torch.Tensor:
    return ((model(INPUTS) - model(-INPUTS)) ** 2).mean()


def with_two_losses(model: nn.Module) -> torch.Tensor:
    return F.mse_loss(model[0](INPUTS).mean(1, keepdim=True), WISHES) + F.mse_loss(model(INPUTS), WISHES)


@pytest.mark.parametrize("step", [with_noise, with_drawn_target, with_weights, with_two_calls, with_two_losses])
def test_other_losses_are_left_alone(step: Callable[[nn.Module], torch.Tensor]) -> None:
    model = model_of(1)
    found = seen(step, model)
    assert found.loss_fn is None
    assert bounds_over([found]).floor is None
    assert all(not module._forward_hooks and "forward" not in vars(module) for module in model.modules())


def test_a_pass_that_tells_its_prediction_keeps_it() -> None:
    model = model_of(3)

    def run(model: nn.Module, batch: Any) -> Passed:
        output = model(INPUTS)
        return Passed(F.cross_entropy(output, LABELS), output, LABELS, INPUTS, F.cross_entropy)

    assert looking(run)(model, None).loss_fn is F.cross_entropy
