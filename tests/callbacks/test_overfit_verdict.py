"""``Trainer(overfit_batches=...)`` ends with a verdict that follows from data and loss."""

from __future__ import annotations

import logging
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
    trainer = unstuck.Trainer(
        overfit_batches=2,
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
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


def test_a_hand_written_loss_is_judged_by_its_course() -> None:
    data = load_diabetes()
    loader = DataLoader(
        TensorDataset(torch.tensor(data.data).float(), torch.tensor(data.target).float()), batch_size=16
    )
    verdict = fit(Broadcasting(), loader, 60)
    assert verdict.memory is not None
    assert verdict.memory.constant is None
    assert verdict.memory.verdict != "memorised"


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
