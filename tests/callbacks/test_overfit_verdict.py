"""``Trainer(overfit_batches=...)`` ends with a verdict that follows from data and loss."""

from __future__ import annotations

import logging
import math
import re
from typing import Any

import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import unstuck
from unstuck.callbacks import OverfitVerdict


class Classifier(unstuck.LightningModule):
    def __init__(self, rate: float = 1e-2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rate = rate
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))
        self.called = 0

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.called += 1
        inputs, labels = batch
        loss = F.cross_entropy(self.net(inputs), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.rate)


class WithSoftmax(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        inputs, labels = batch
        return F.cross_entropy(self.net(inputs).softmax(-1), labels)


class Broadcasting(unstuck.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        inputs, target = batch
        return ((self.net(inputs) - target) ** 2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.05)


def digits() -> DataLoader[Any]:
    data = load_digits()
    return DataLoader(
        TensorDataset(torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)), batch_size=32
    )


def fit(module: unstuck.LightningModule, loader: DataLoader[Any], epochs: int, **options: Any) -> OverfitVerdict:
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = unstuck.Trainer(**{"overfit_batches": 2, "max_epochs": epochs, **quiet, **options})
    trainer.fit(module, loader)
    (verdict,) = [item for item in trainer.callbacks if isinstance(item, OverfitVerdict)]
    return verdict


def test_a_sound_module_memorises(caplog: pytest.LogCaptureFixture) -> None:
    module = Classifier()
    with caplog.at_level(logging.INFO, "unstuck"):
        verdict = fit(module, digits(), 60)
    memory = verdict.memory
    assert memory is not None
    assert (memory.verdict, memory.accuracy, memory.steps) == ("memorised", 1.0, 120)
    assert memory.constant is not None
    assert 2.0 < memory.constant < 2.31
    assert any(f"Overfit test on 2 batches: {memory.sentence}" in line for line in caplog.messages)
    assert module.called == 120  # the look at the end is at a copy


def test_what_was_found_is_told_whatever_the_verdict(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "unstuck"):
        verdict = fit(WithSoftmax(), digits(), 60)
    assert [item.code for item in verdict.findings][:1] == ["loss.activation-mismatch"]
    assert any("loss.activation-mismatch" in line for line in caplog.messages)


def test_a_hand_written_loss_is_judged_by_its_bounds() -> None:
    data = load_diabetes()
    loader = DataLoader(
        TensorDataset(torch.tensor(data.data).float(), torch.tensor(data.target).float()), batch_size=16
    )
    verdict = fit(Broadcasting(), loader, 60)
    assert verdict.memory is not None
    assert verdict.memory.constant is not None
    assert verdict.memory.verdict == "not memorised"
    assert "better than a constant" in verdict.memory.sentence


def test_the_loss_is_that_of_training_step_however_many_batches_are_accumulated() -> None:
    memory = fit(Classifier(rate=1e-6), digits(), 60, accumulate_grad_batches=2).memory
    assert memory is not None
    assert (memory.verdict, memory.steps) == ("not memorised", 60)
    assert memory.first == pytest.approx(math.log(10), rel=0.1)
    assert memory.last == pytest.approx(math.log(10), rel=0.1)


def test_the_first_loss_of_several_closures_is_that_before_the_step() -> None:
    class WithLBFGS(Classifier):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.LBFGS(self.parameters(), lr=0.5)

    memory = fit(WithLBFGS(), digits(), 12, overfit_batches=1).memory
    assert memory is not None
    assert memory.first == pytest.approx(math.log(10), rel=0.1)
    assert memory.last < 0.1


class Manual(Classifier):
    """A step as it is written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        self.called += 1
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(F.cross_entropy(self.net(batch[0]), batch[1]))
        optimizer.step()


def test_manual_optimisation_with_one_backward_pass_is_judged_by_its_course() -> None:
    module = Manual()
    verdict = fit(module, digits(), 80)
    assert verdict.memory is not None
    assert verdict.unjudged is None
    assert verdict.memory.verdict == "memorised"
    assert verdict.memory.first > 1.5
    assert "a constant prediction would score isn't known" in verdict.memory.sentence
    assert module.called == 160


def test_a_loss_that_the_manual_step_returns_counts_and_not_what_it_divides() -> None:
    class Dividing(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:  # type: ignore[override]
            optimizer = self.optimizers()
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.manual_backward(loss / 100)
            optimizer.step()
            optimizer.zero_grad()
            return loss

    memory = fit(Dividing(), digits(), 3).memory
    assert memory is not None
    assert memory.first > 1.5


class Adversaries(unstuck.LightningModule):
    def __init__(self, logs: bool) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.critic = nn.Linear(4, 64), nn.Linear(64, 1)
        self.logs = logs

    def training_step(self, batch: Any, batch_idx: int) -> None:
        images = batch[0]
        first, second = self.optimizers()
        made = self.generator(torch.randn(len(images), 4))
        fooled = F.softplus(-self.critic(made)).mean()
        first.zero_grad()
        self.manual_backward(fooled)
        first.step()
        told = F.softplus(-self.critic(images)).mean() + F.softplus(self.critic(made.detach())).mean()
        second.zero_grad()
        self.manual_backward(told)
        second.step()
        if self.logs:
            self.log_dict({"g_loss": fooled, "d_loss": told})

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.Adam(item.parameters()) for item in (self.generator, self.critic)]


@pytest.mark.parametrize(
    ("logs", "seen"), [(True, r"g_loss \S+ -> .*d_loss \S+ -> "), (False, r"loss of backward pass 1 .*pass 2 \S+ -> ")]
)
def test_optimizers_in_turn_are_not_judged_but_told(logs: bool, seen: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "unstuck"):
        verdict = fit(Adversaries(logs), digits(), 10, overfit_batches=1)
    assert verdict.memory is None
    assert verdict.unjudged is not None
    assert re.search(rf"2 optimizers take turns.*{seen}", verdict.unjudged)
    assert f"Overfit test on 1 batch: {verdict.unjudged}." in caplog.messages


def test_without_a_cause_it_says_what_was_not_tried(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "unstuck"):
        verdict = fit(Classifier(rate=1e-6), digits(), 30)
    assert verdict.findings == ()
    assert any("Not tried: other learning rates" in line for line in caplog.messages)


def test_a_batch_of_one_sample_and_batch_norm_is_a_finding() -> None:
    class Normed(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))

    images, labels = digits().dataset[:4]
    loader = DataLoader(TensorDataset(images, labels), batch_size=1)
    verdict = OverfitVerdict()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        fit(Normed(), loader, 2, callbacks=[verdict])
    (finding,) = verdict.findings
    assert (finding.code, finding.where.module) == ("model.norm-misuse", "net.1")
    assert finding.where.file == __file__


def test_too_few_steps_are_undecided() -> None:
    memory = fit(Classifier(rate=1e-4), digits(), 2).memory
    assert memory is not None
    assert memory.verdict == "undecided"
    assert memory.more_steps is not None


def test_the_run_is_the_one_without_a_verdict() -> None:
    module, bare = Classifier(), Classifier()
    state = torch.get_rng_state()
    fit(module, digits(), 3)
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    fit(bare, digits(), 3, barebones=False, callbacks=[Silent()])
    assert torch.equal(after, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), bare.parameters(), strict=True))


class Silent(OverfitVerdict):
    """Takes the verdict's place and does nothing."""

    def setup(self, *args: Any, **kwargs: Any) -> None: ...

    def on_train_batch_start(self, *args: Any) -> None: ...

    def on_train_batch_end(self, *args: Any) -> None: ...

    def on_train_end(self, *args: Any) -> None: ...


def test_no_session_is_left_behind() -> None:
    class Failing(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fit(Failing(), digits(), 1)
    with unstuck.watch():  # would be refused
        pass


def test_without_overfit_batches_there_is_none() -> None:
    trainer = unstuck.Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False)
    assert not any(isinstance(item, OverfitVerdict) for item in trainer.callbacks)


def test_batches_that_are_skipped_do_not_count(recwarn: pytest.WarningsRecorder) -> None:
    class Skipping(Classifier):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx == 1 else super().training_step(batch, batch_idx)

    memory = fit(Skipping(), digits(), 60).memory
    assert memory is not None
    assert (memory.verdict, memory.accuracy) == ("memorised", 1.0)
    assert memory.constant is not None
    assert any(item.filename == __file__ for item in recwarn)


class Negated(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return -F.cross_entropy(self.net(batch[0]), batch[1])


def test_what_another_watch_has_found_counts_as_well() -> None:
    with unstuck.watch(budget=0.0) as watching:
        verdict = fit(Negated(), digits(), 60)
    assert "loss.wrong-sign" in [item.code for item in watching.findings]
    assert verdict.memory is not None
    assert verdict.memory.verdict == "not memorised"
