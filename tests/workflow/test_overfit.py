"""``unstuck.overfit``: verdicts on real data, and nothing of the user's is touched."""

from __future__ import annotations

import inspect
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import unstuck
from unstuck.diagnosis.memorised import judge_memory
from unstuck.errors import MisconfigurationException
from unstuck.testing import assert_finite_training
from unstuck.workflow.overfit.result import RateTried


@pytest.fixture(scope="module")
def digits() -> TensorDataset:
    data = load_digits()
    return TensorDataset(torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target))


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))


def state_of_everything(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]) -> list[Any]:
    return [
        [item.clone() for item in model.state_dict().values()],
        [None if item.grad is None else item.grad.clone() for item in model.parameters()],
        [module.training for module in model.modules()],
        str(optimizer.state_dict()),
        torch.get_rng_state(),
        np.random.get_state()[1].tolist(),
        random.getstate(),
        loader.generator.get_state() if loader.generator is not None else None,
    ]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def test_a_sound_model_memorises_digits(digits: TensorDataset) -> None:
    model = classifier()
    result = unstuck.overfit(model, DataLoader(digits, batch_size=32), nn.CrossEntropyLoss(), progress=False)
    assert result.memorised
    assert result.memory.accuracy == 1.0
    assert result.memory.steps == len(result.losses) <= 300
    assert result.losses[-1] < 0.2 * result.losses[0]
    assert result.rates == ()


@pytest.mark.parametrize("way", ["an end", "an exception", "Ctrl-C"])
def test_nothing_is_touched(way: str, digits: TensorDataset) -> None:
    model = classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(digits, batch_size=16, shuffle=True, generator=generator)
    nn.functional.cross_entropy(model(digits[:8][0]), digits[:8][1]).backward()
    optimizer.step()
    before = state_of_everything(model, optimizer, loader)
    calls = 0

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if way != "an end" and calls > 300:
            raise (KeyboardInterrupt if way == "Ctrl-C" else ValueError)
        return nn.functional.cross_entropy(output, target)

    expected: dict[str, type[BaseException]] = {"an exception": ValueError, "Ctrl-C": KeyboardInterrupt}
    if way == "an end":
        unstuck.overfit(model, loader, loss, optimizer, steps=20, progress=False)
    else:
        with pytest.raises(expected[way]):
            unstuck.overfit(model, loader, loss, optimizer, steps=100_000, progress=False)
    assert same(state_of_everything(model, optimizer, loader), before)


def test_a_rate_far_too_low_is_told_with_one_that_learns(digits: TensorDataset) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    result = unstuck.overfit(model, DataLoader(digits, batch_size=32), nn.CrossEntropyLoss(), optimizer, progress=False)
    assert not result.memorised
    assert result.best_rate is not None
    assert result.best_rate >= 1e-3
    assert f"a learning rate of {result.best_rate:.3g} learns" in str(result)


def test_samples_are_chosen_by_class(digits: TensorDataset) -> None:
    seen: list[torch.Tensor] = []

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        seen.append(target)
        return nn.functional.cross_entropy(output, target)

    unstuck.overfit(classifier(), DataLoader(digits, batch_size=7), loss, samples_per_class=2, steps=3, progress=False)
    assert seen[0].tolist() == [label for label in range(10) for _ in range(2)]


def test_a_broadcast_loss_is_never_memorised() -> None:
    data = load_diabetes()
    inputs, target = torch.tensor(data.data[:32]).float(), torch.tensor(data.target[:32]).float()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))

    def loss(output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return ((output - wanted) ** 2).mean()

    result = unstuck.overfit(
        model, (inputs, target), loss, lambda items: torch.optim.Adam(items, lr=0.1), steps=200, progress=False
    )
    assert result.verdict == "not memorised"
    assert "better than a constant" in result.memory.sentence


def test_lbfgs_gets_its_closure() -> None:
    data = load_diabetes()
    inputs, target = torch.tensor(data.data[:16]).float(), torch.tensor(data.target[:16, None]).float() / 100
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1))
    result = unstuck.overfit(
        model, (inputs, target), nn.MSELoss(), lambda items: torch.optim.LBFGS(items, lr=0.5), progress=False
    )
    assert result.memorised


def test_batches_of_any_form_with_a_step() -> None:
    model = nn.Linear(3, 1)
    batch = {"x": torch.randn(8, 3), "y": torch.randn(8, 1) * 0}

    def step(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return ((model(batch["x"]) - batch["y"]) ** 2).mean()

    result = unstuck.overfit(
        model, batch, step=step, optimizer=lambda items: torch.optim.Adam(items, lr=0.05), progress=False
    )
    assert result.memorised


def test_a_loop_that_is_watched_does_not_see_the_trial(digits: TensorDataset) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, labels = digits[:16]
    with unstuck.watch(model, optimizer) as watching:
        unstuck.overfit(model, (inputs, labels), nn.CrossEntropyLoss(), steps=20, progress=False)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    assert watching.recording.facts["steps"] == 3


def generator_of_batches() -> Iterator[Any]:
    yield torch.randn(2, 3), torch.randn(2, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": torch.randn(2, 3), "loss_fn": nn.MSELoss()}, "pair of inputs and target"),
        ({"data": generator_of_batches(), "loss_fn": nn.MSELoss()}, "read only once"),
        ({"data": [], "loss_fn": nn.MSELoss()}, "no batch"),
        ({"data": (torch.randn(2, 3), torch.randn(2, 1))}, "one of them"),
        ({"data": (torch.randn(2, 3), torch.randn(2, 1)), "loss_fn": nn.MSELoss(reduction="none")}, "single number"),
        ({"data": (torch.randn(2, 3), torch.randn(2, 1)), "loss_fn": nn.MSELoss(), "steps": 0}, "at least 1"),
        ({"data": 3, "loss_fn": nn.MSELoss()}, "got int"),
        ({"data": TensorDataset(torch.randn(2, 3), torch.randn(2, 1)), "loss_fn": nn.MSELoss()}, "give DataLoader"),
        ({"data": (torch.randn(0, 3), torch.randn(0, 1)), "loss_fn": nn.MSELoss()}, "batch 0 of `data` has no sample"),
        ({"loss_fn": "mse"}, "`loss_fn` must be a function, got 'mse'"),
        ({"loss_fn": nn.MSELoss}, "the class MSELoss, not an instance of it"),
        ({"step": 3}, "`step` must be a function"),
        (
            {"loss_fn": nn.MSELoss(), "optimizer": [1, 2]},
            r"a list of 2 \(int, int\); one optimizer with several groups",
        ),
        ({"loss_fn": nn.MSELoss(), "optimizer": "adam"}, "got 'adam'"),
        ({"loss_fn": nn.MSELoss(), "optimizer": list}, "it returned a list of 2"),
        ({"loss_fn": nn.MSELoss(), "device": "gpu"}, "got 'gpu'"),
        ({"loss_fn": nn.MSELoss(), "device": 3.5}, "got 3.5"),
        ({"loss_fn": nn.MSELoss(), "device": "meta"}, "no values"),
        ({"loss_fn": nn.MSELoss(), "model": 3}, "`model` must be a torch Module"),
        ({"loss_fn": nn.MSELoss(), "model": nn.Linear(3, 1).requires_grad_(False)}, "nothing can be trained"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    sound = {"model": nn.Linear(3, 1), "data": (torch.randn(2, 3), torch.randn(2, 1))}
    with pytest.raises(MisconfigurationException, match=message):
        unstuck.overfit(progress=False, **{**sound, **arguments})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match="got 'cuda'"):
        unstuck.overfit(nn.Linear(3, 1), (torch.randn(2, 3), torch.randn(2, 1)), nn.MSELoss(), device="cuda")


def test_a_step_that_trains_another_model_is_refused() -> None:
    model = nn.Linear(3, 1)
    batch = (torch.randn(4, 3), torch.randn(4, 1))
    with pytest.raises(MisconfigurationException, match="the model that `step` is called with"):
        unstuck.overfit(model, batch, step=lambda _, data: ((model(data[0]) - data[1]) ** 2).mean(), progress=False)
    assert model.weight.grad is None


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_a_scripted_model_is_trained_with_its_optimizer(digits: TensorDataset) -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    result = unstuck.overfit(model, digits[:32], nn.CrossEntropyLoss(), optimizer, progress=False)
    assert result.memorised
    assert result.findings == ()


def test_a_model_in_half_precision_is_not_called_unable() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)).bfloat16()
    inputs, target = torch.randn(32, 8).bfloat16(), (torch.randn(32, 1) * 50 + 300).bfloat16()
    result = unstuck.overfit(
        model, (inputs, target), nn.MSELoss(), lambda items: torch.optim.Adam(items, lr=0.5), progress=False
    )
    assert result.memorised, result


class Autoencoder(nn.Module):
    """A variational one, whose loss has no floor that could be told."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 4), nn.Linear(2, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        return self.decoder(mean + torch.randn_like(mean) * (log_variance / 2).exp()), mean, log_variance


def test_a_loss_whose_floor_is_unknown_is_undecided_where_it_stands_still() -> None:
    def step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        made, mean, log_variance = model(x)
        kept = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(1).mean()
        return ((made - x) ** 2).sum(1).mean() + kept

    torch.manual_seed(0)
    result = unstuck.overfit(
        Autoencoder(),
        torch.randn(32, 8),
        step=step,
        optimizer=lambda items: torch.optim.Adam(items, lr=0.02),
        steps=400,
        progress=False,
    )
    assert (result.verdict, result.memory.more_steps) == ("undecided", None)
    assert "how far it can fall isn't known" in str(result)
    assert result.best_rate is None or min(item.memory.last for item in result.rates) < result.memory.last


def test_a_rate_that_does_worse_than_the_own_is_not_the_best() -> None:
    first = judge_memory([5.0, *[3.0] * 50], 50)
    worse, better = judge_memory([5.0, *[4.0] * 50], 50), judge_memory([5.0, *[2.0] * 50], 50)
    rates = (RateTried(10.0, 0.1, (), worse),)
    assert unstuck.OverfitResult(first, (), rates, (), 1.0).best_rate is None
    rates += (RateTried(0.1, 0.001, (), better),)
    assert unstuck.OverfitResult(first, (), rates, (), 1.0).best_rate == 0.001


def test_a_single_sample_is_said_to_tell_little(digits: TensorDataset) -> None:
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    result = unstuck.overfit(model, digits[:1], nn.CrossEntropyLoss(), progress=False)
    assert result.memorised
    assert "give several samples" in str(result)


def test_equal_targets_are_told_although_the_loss_is_zero() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    result = unstuck.overfit(
        model,
        (torch.randn(32, 8), torch.zeros(32, 1)),
        nn.BCEWithLogitsLoss(),
        lambda items: torch.optim.Adam(items, lr=0.1),
        progress=False,
    )
    assert result.memory.last < 1e-6
    assert "give several samples with different targets" in str(result)


def test_a_batch_with_more_than_one_class_is_looked_for() -> None:
    seen: list[torch.Tensor] = []

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        seen.append(target)
        return nn.functional.binary_cross_entropy_with_logits(output, target)

    labels = torch.zeros(200, 1)
    labels[45] = 1.0
    loader = DataLoader(TensorDataset(torch.randn(200, 8), labels), batch_size=10)
    unstuck.overfit(nn.Linear(8, 1), loader, loss, steps=2, sweep=False, progress=False)
    assert seen[0].flatten().tolist() == labels[40:50].flatten().tolist()


@pytest.mark.parametrize("sweep", [True, False])
def test_a_rate_of_zero_is_the_cause(sweep: bool, digits: TensorDataset) -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    result = unstuck.overfit(model, digits[:32], nn.CrossEntropyLoss(), optimizer, sweep=sweep, progress=False)
    (finding,) = result.findings
    assert (result.verdict, finding.code) == ("not memorised", "optim.lr-too-low")
    if sweep:
        assert (finding.evidence["rate"], finding.evidence["rate that learns"]) == (0.0, result.best_rate)
        assert all(item.rate > 0 for item in result.rates)
        assert "no other learning rate learns" not in str(result)


class Stream(IterableDataset[Any]):
    def __init__(self, held: Any = None) -> None:
        self.position, self.held = 0, held

    def __iter__(self) -> Iterator[Any]:
        while self.position < 64:
            self.position += 1
            yield torch.randn(8), self.position % 2


def test_a_stream_that_keeps_its_position_is_not_advanced() -> None:
    stream = Stream()
    unstuck.overfit(nn.Linear(8, 2), DataLoader(stream, 16), nn.CrossEntropyLoss(), steps=2, progress=False)
    assert stream.position == 0
    other = Stream(threading.Lock())  # which can't be copied
    result = unstuck.overfit(nn.Linear(8, 2), DataLoader(other, 16), nn.CrossEntropyLoss(), steps=2, progress=False)
    assert result.memory.steps == 2


class TwoHeads(nn.Module):
    def __init__(self, blind: bool) -> None:
        super().__init__()
        self.body, self.classes, self.sums = nn.Linear(64, 64), nn.Linear(64, 10), nn.Linear(64, 1)
        self.blind = blind

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = self.body(x).relu()
        seen = made.mean(0, keepdim=True).expand_as(made) if self.blind else made
        return self.classes(seen), self.sums(made)


@pytest.mark.parametrize("blind", [True, False])
def test_a_term_that_stays_at_chance_is_not_hidden_by_a_large_one(blind: bool, digits: TensorDataset) -> None:
    def step(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        classes, sums = model(batch[0])
        wanted = batch[0].sum(1)
        return nn.functional.cross_entropy(classes, batch[1]) + nn.functional.mse_loss(sums.squeeze(-1), wanted)

    torch.manual_seed(0)
    result = unstuck.overfit(
        TwoHeads(blind),
        digits[:32],
        step=step,
        optimizer=lambda items: torch.optim.Adam(items, lr=1e-2),
        sweep=False,
        progress=False,
    )
    assert result.memory.last < 0.02 * result.memory.first
    assert result.verdict == ("undecided" if blind else "memorised"), result
    assert ("its term cross_entropy stands at" in str(result)) == blind


class LogOfAnything(nn.Module):
    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self.net, self.first, self.calls = nn.Linear(8, 3), first, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        made: torch.Tensor = self.net(x)
        return torch.log(made) if self.calls >= self.first else made


def logarithm_of_shares(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    shares = output.softmax(-1)
    return -(nn.functional.one_hot(target, 3) * torch.log(shares)).sum(1).mean()


def root_of_nothing(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output * 0).sum(1).sqrt().mean() + nn.functional.cross_entropy(output, target)


def line_with(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(index for index, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(
    ("model", "loss", "rate", "code", "line"),
    [
        (LogOfAnything(), nn.CrossEntropyLoss(), 0.01, "forward", line_with(LogOfAnything, "torch.log")),
        (LogOfAnything(10), nn.CrossEntropyLoss(), 0.01, "forward", line_with(LogOfAnything, "torch.log")),
        (nn.Linear(8, 3), logarithm_of_shares, 500.0, "forward", line_with(logarithm_of_shares, "torch.log")),
        (nn.Linear(8, 3), root_of_nothing, 0.01, "backward", line_with(root_of_nothing, "sqrt")),
    ],
)
def test_the_line_that_made_a_nan_is_named(model: nn.Module, loss: Any, rate: float, code: str, line: int) -> None:
    torch.manual_seed(0)
    batch = (torch.randn(32, 8), torch.randint(0, 3, (32,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    result = unstuck.overfit(model, batch, loss, optimizer, sweep=False, progress=False)
    assert result.verdict == "not memorised"
    found = next(item for item in result.findings if item.code.startswith("numerics"))
    if rate < 1.0:  # else steps far too large have come before it
        assert found is result.findings[0]
    assert (found.code, found.where.file, found.where.line) == (f"numerics.nonfinite-{code}", __file__, line)
    with pytest.raises(AssertionError, match=f"{Path(__file__).name}:{line}"):
        assert_finite_training(model, batch, loss, optimizer)


def test_batch_norm_over_a_single_sample_is_the_cause(digits: TensorDataset) -> None:
    result = unstuck.overfit(classifier(), digits[:1], nn.CrossEntropyLoss(), progress=False)
    assert result.verdict == "not memorised"
    (finding,) = result.findings
    assert (finding.code, finding.where.module) == ("model.norm-misuse", "1")


def test_the_trainer_that_a_module_is_attached_to_is_not_copied() -> None:
    class Module(unstuck.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(3, 1)

    class Trainer:
        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError("copied")

    module = Module()
    module.__dict__["_trainer"] = Trainer()
    batch = (torch.randn(4, 3), torch.randn(4, 1))

    def step(item: Any, data: Any) -> torch.Tensor:
        return ((item.net(data[0]) - data[1]) ** 2).mean()

    assert unstuck.overfit(module, batch, step=step, steps=2, sweep=False, progress=False).memory.steps == 2


@pytest.mark.parametrize("hidden", [False, True])
def test_a_loss_without_a_graph_is_the_cause(hidden: bool, digits: TensorDataset) -> None:
    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.tensor(nn.functional.cross_entropy(output, target).item(), requires_grad=hidden)

    result = unstuck.overfit(classifier(), digits[:16], loss, progress=False)
    assert result.verdict == "not memorised"
    (finding,) = result.findings
    assert (finding.code, finding.where.file) == ("loss.disconnected", __file__)
    assert finding.where.line == loss.__code__.co_firstlineno


def test_targets_far_beyond_the_predictions_are_told_beside_the_rate() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    batch = (torch.randn(32, 8), torch.randn(32, 1) * 1e5 + 2e5)
    result = unstuck.overfit(model, batch, nn.MSELoss(), lambda items: torch.optim.Adam(items, lr=1e-3), progress=False)
    assert [item.code for item in result.findings] == ["optim.lr-too-low"]
    assert "standardise them" in result.findings[0].remedy
    assert "standardise them" in str(result)


def test_a_variance_that_the_model_predicts_leaves_no_floor() -> None:
    class Spread(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            made = self.net(x)
            return made[:, :1], nn.functional.softplus(made[:, 1:]) + 1e-4

    torch.manual_seed(0)
    result = unstuck.overfit(
        Spread(),
        (torch.randn(32, 8), torch.randn(32, 1)),
        lambda output, target: nn.functional.gaussian_nll_loss(output[0], target, output[1]),
        lambda items: torch.optim.Adam(items, lr=1e-2),
        steps=150,
        progress=False,
    )
    assert result.memory.steps == 150
    assert result.memory.last < 0
    assert (result.verdict, result.memory.floor) == ("undecided", None)
    assert result.rates == ()  # a lower loss of another rate would say nothing


def test_a_target_that_moves_with_the_model_leaves_no_floor() -> None:
    class Follower(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.head = nn.Linear(8, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.net(x)
            return nn.functional.mse_loss(self.head(made), (made + 1).detach())

    torch.manual_seed(0)
    result = unstuck.overfit(
        Follower(), torch.randn(16, 8), step=lambda model, batch: model(batch), steps=20, sweep=False, progress=False
    )
    assert result.memory.floor is None


def test_what_a_module_logs_goes_nowhere() -> None:
    class Module(unstuck.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(3, 1)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

    batch = (torch.randn(4, 3), torch.randn(4, 1))
    result = unstuck.overfit(
        Module(), batch, step=lambda model, data: model.training_step(data, 0), steps=5, sweep=False, progress=False
    )
    assert result.memory.constant is not None


class Plain(torch.optim.Optimizer):
    """Gradient descent as it is written by hand: without a group's "lr"."""

    def __init__(self, parameters: Any, rate: float) -> None:
        super().__init__(parameters, {"rate": rate})

    def step(self, closure: Any = None) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                for item in group["params"]:
                    item -= group["rate"] * item.grad


class WithClosure(Plain):
    """Takes its closure always."""

    def step(self, closure: Any) -> Any:
        loss = closure()
        super().step()
        return loss


@pytest.mark.parametrize("kind", [Plain, WithClosure])
def test_optimizers_by_hand(kind: type[Plain], digits: TensorDataset) -> None:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    batch = digits[:16]
    assert unstuck.overfit(model, batch, nn.CrossEntropyLoss(), kind(model.parameters(), 0.5), progress=False).memorised
    slow = unstuck.overfit(model, batch, nn.CrossEntropyLoss(), lambda items: kind(items, 1e-9), progress=False)
    assert (slow.verdict, slow.rates) == ("not memorised", ())


def test_a_loss_that_refuses_broken_weights_ends_the_rate_and_not_the_test() -> None:
    def step(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        made = model(batch[0])
        if not made.isfinite().all() or made.abs().max() > 1e6:
            raise ValueError("no such scale")
        loss: torch.Tensor = ((made - batch[1]) ** 2).mean()
        return loss

    batch = (torch.randn(16, 3), torch.randn(16, 1) * 100)
    result = unstuck.overfit(
        nn.Linear(3, 1), batch, step=step, optimizer=lambda items: torch.optim.SGD(items, lr=1e-4), progress=False
    )
    assert any(item.memory.last != item.memory.last for item in result.rates)


def test_a_model_in_evaluation_mode_is_trained_in_training_mode(digits: TensorDataset) -> None:
    model = classifier().eval()
    result = unstuck.overfit(model, digits[:32], nn.CrossEntropyLoss(), progress=False)
    assert result.memorised
    assert result.findings == ()
    assert not model.training


def test_a_model_too_small_for_the_batch_is_said_to_be() -> None:
    torch.manual_seed(0)
    batch = (torch.randn(64, 8), torch.randn(64, 1))
    result = unstuck.overfit(
        nn.Linear(8, 1), batch, nn.MSELoss(), lambda items: torch.optim.Adam(items, lr=0.05), progress=False
    )
    assert (result.verdict, result.findings) == ("not memorised", ())
    assert "may be too small for these batches: 9 trained numbers, 64 in the targets" in str(result)


def test_without_a_cause_it_says_what_was_watched(digits: TensorDataset) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    result = unstuck.overfit(model, digits[:16], nn.CrossEntropyLoss(), optimizer, sweep=False, progress=False)
    assert str(result).endswith("wiring, loss, data, numbers; not tried: other learning rates")
