"""The assertions of ``unstuck.testing``: silent on sound models, and telling on broken ones."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from unstuck.errors import MisconfigurationException
from unstuck.testing import (
    assert_all_parameters_train,
    assert_finite_training,
    assert_loss_at_init_near,
    assert_no_batch_mixing,
    assert_overfits,
)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 6, generator=generator), torch.arange(12) % 3


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(6, 3)
        self.forgotten = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.used(x)
        return out


class OverBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.layer(x), 0)


def test_overfits(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert_overfits(network(), batch, nn.CrossEntropyLoss(), lambda items: torch.optim.Adam(items, lr=1e-2))
    with pytest.raises(AssertionError, match=r"a learning rate of .* learns"):
        assert_overfits(network(), batch, nn.CrossEntropyLoss(), lambda items: torch.optim.SGD(items, lr=1e-6))


def test_all_parameters_train(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert_all_parameters_train(network(), batch, nn.CrossEntropyLoss())
    with pytest.raises(AssertionError, match=r"no gradient in 5 steps: forgotten.weight, forgotten.bias"):
        assert_all_parameters_train(Branches(), batch, nn.CrossEntropyLoss())
    assert_all_parameters_train(Branches(), batch, nn.CrossEntropyLoss(), except_for=["forgotten"])
    assert_all_parameters_train(network(), batch, nn.CrossEntropyLoss(), lambda items: torch.optim.LBFGS(items))


def test_a_parameter_that_the_optimizer_does_not_hold(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    model = network()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    with pytest.raises(AssertionError, match=r"not changed by the optimizer: 0.weight, 0.bias"):
        assert_all_parameters_train(model, batch, nn.CrossEntropyLoss(), optimizer)


def test_finite_training(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert_finite_training(network(), batch, nn.CrossEntropyLoss())

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.log(output.relu() * 0).mean()

    with pytest.raises(AssertionError, match=r"numerics.nonfinite-forward \(.*test_testing.py:\d+\)"):
        assert_finite_training(network(), batch, loss)


def test_loss_at_init(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert_loss_at_init_near(network(), batch, nn.CrossEntropyLoss(), math.log(3))
    assert_loss_at_init_near(network(), batch, nn.CrossEntropyLoss())
    loud = network()
    with torch.no_grad():
        loud[2].weight.mul_(100)
    with pytest.raises(AssertionError, match=r"untrained model is .* best constant prediction"):
        assert_loss_at_init_near(loud, batch, nn.CrossEntropyLoss())


def test_no_batch_mixing(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert_no_batch_mixing(network(), batch[0])
    assert_no_batch_mixing(nn.Sequential(network(), nn.BatchNorm1d(3)), batch[0])
    with pytest.raises(AssertionError, match="11 other samples changed"):
        assert_no_batch_mixing(OverBatch(), batch[0])
    with pytest.raises(AssertionError, match="1 other sample changed"):
        assert_no_batch_mixing(OverBatch(), batch[0][:2])
    with pytest.raises(AssertionError, match="sample 0 was replaced"):
        assert_no_batch_mixing(nn.Sequential(nn.BatchNorm1d(6), network()), batch[0], sample=0, training=True)
    with pytest.raises(MisconfigurationException, match="two samples"):
        assert_no_batch_mixing(network(), batch[0][:1])


def test_models_and_random_states_stay(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    model = nn.Sequential(network(), nn.Dropout(0.5), nn.BatchNorm1d(3))
    before = [item.clone() for item in model.state_dict().values()]
    state = torch.get_rng_state()
    assert_finite_training(model, batch, nn.CrossEntropyLoss())
    assert_all_parameters_train(model, batch, nn.CrossEntropyLoss())
    assert_no_batch_mixing(model, batch[0])
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values(), strict=True))
    assert all(item.grad is None for item in model.parameters())


class WithTerm(nn.Module):
    """Answers with a number that is made of all samples, beside its outputs."""

    def __init__(self, *, outputs: bool) -> None:
        super().__init__()
        self.layer, self.outputs = nn.Linear(6, 3), outputs

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scores = self.layer(x)
        return (scores, scores.square().mean()) if self.outputs else (scores.square().mean(),)


def test_a_number_made_of_all_samples_is_no_mixing(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert_no_batch_mixing(WithTerm(outputs=True), batch[0])
    with pytest.raises(MisconfigurationException, match="no output of the model has 12 samples"):
        assert_no_batch_mixing(WithTerm(outputs=False), batch[0])


def test_a_batch_of_one_sample_and_batch_norm(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    model = nn.Sequential(network(), nn.BatchNorm1d(3))
    one = (batch[0][:1], batch[1][:1])
    for assertion in (assert_all_parameters_train, assert_finite_training, assert_overfits):
        with pytest.raises(AssertionError, match=r"model.norm-misuse.*1 \(BatchNorm1d\)"):
            assertion(model, one, nn.CrossEntropyLoss())


def test_a_single_sample_says_nothing_of_the_first_loss(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    with pytest.raises(MisconfigurationException, match="a single sample"):
        assert_loss_at_init_near(network(), (batch[0][:1], batch[1][:1]), nn.CrossEntropyLoss())


def test_parameters_of_the_loss_train_too(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    class Centres(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.centres = nn.Parameter(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)))

        def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(-torch.cdist(output, self.centres), target)

    loss, model = Centres(), network()
    before = loss.centres.detach().clone()
    optimizer = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=1e-2)
    assert_all_parameters_train(model, batch, loss, optimizer)
    assert_overfits(model, batch, loss, optimizer)
    assert torch.equal(loss.centres, before)
    assert loss.centres.grad is None


def test_no_step_can_be_taken(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    def cut(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(output.detach(), target)

    for assertion in (assert_all_parameters_train, assert_finite_training, assert_overfits):
        with pytest.raises(AssertionError, match=r"loss.disconnected \(.*test_testing.py:\d+\)"):
            assertion(network(), batch, cut)
    other = network()
    with pytest.raises(MisconfigurationException, match="the model that `step` is called with"):
        assert_all_parameters_train(
            network(), batch, step=lambda _, data: nn.functional.cross_entropy(other(data[0]), data[1])
        )
    assert all(item.grad is None for item in other.parameters())
    with pytest.raises(MisconfigurationException, match="reduce it"):
        assert_finite_training(network(), batch, nn.CrossEntropyLoss(reduction="none"))


def test_missing_values_are_the_cause_of_a_training_that_is_not_finite(
    batch: tuple[torch.Tensor, torch.Tensor],
) -> None:
    inputs = batch[0].clone()
    inputs[5, 2] = torch.nan
    with pytest.raises(
        AssertionError, match=r"data.nonfinite-input: 1 of 12 samples .* holds .* the first is number 5"
    ):
        assert_finite_training(network(), (inputs, batch[1]), nn.CrossEntropyLoss())


def test_batches_must_be_pairs(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    for assertion in (assert_all_parameters_train, assert_finite_training, assert_overfits, assert_loss_at_init_near):
        with pytest.raises(MisconfigurationException, match="pair of inputs and target, got tuple of 3"):
            assertion(network(), (*batch, batch[1]), nn.CrossEntropyLoss())


class Lookup(nn.Module):
    """Class numbers and yes or no from a table of ten rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        made = self.table(x)
        return made, made.argmax(-1), made > 0


def test_integers_are_replaced_by_those_of_another_sample() -> None:
    numbers = torch.full((5, 3), 9)
    with pytest.raises(MisconfigurationException, match="all samples are the same"):
        assert_no_batch_mixing(Lookup(), numbers)
    numbers[0] = 8
    assert_no_batch_mixing(Lookup(), numbers)
    assert_no_batch_mixing(Lookup(), numbers, sample=-1)
    with pytest.raises(MisconfigurationException, match="one of the 5 samples, got 5"):
        assert_no_batch_mixing(Lookup(), numbers, sample=5)
    assert_no_batch_mixing(nn.Linear(3, 2), torch.ones(4, 3))


def test_outputs_whose_shape_depends_on_the_sample_are_refused() -> None:
    class Shortened(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, : int(x[:, 0].max())]

    inputs = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [3.0, 1.0, 1.0]])
    with pytest.raises(MisconfigurationException, match=r"their shapes are \[\(3, 1\)\] instead of \[\(3, 3\)\]"):
        assert_no_batch_mixing(Shortened(), inputs, sample=2)
