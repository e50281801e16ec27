"""Models whose parameters get their shape in the first forward pass are watched like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import unstuck
from tests.session.watching import watch
from unstuck.errors import NonFiniteError
from unstuck.record.anatomy import Anatomy
from unstuck.session import SessionOptions

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.LazyLinear(1)
    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))
model = Net()
X, Y = torch.randn(32, 5), torch.randn(32, 1)
"""
PLAIN = """
opt = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(30):
    out = model(X)
    if step == BAD:
        out = torch.log(out - out)  # fault
    loss = F.mse_loss(out, Y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
CLOSURE = """
opt = torch.optim.OPTIMIZER(model.parameters(), lr=0.01)
for step in range(30):
    def closure():
        out = model(X)
        if step == BAD:
            out = torch.log(out - out)  # fault
        loss = F.mse_loss(out, Y)
        opt.zero_grad()
        loss.backward()
        return loss
    opt.step(closure)
"""
LOOPS = {
    "plain": PLAIN,
    "closure": CLOSURE.replace("OPTIMIZER", "Adam"),
    "closure run several times": CLOSURE.replace("OPTIMIZER", "LBFGS"),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_is_switched_off(loop: str, tmp_path: Path) -> None:
    run = watch(MODEL + "BAD = -1\n" + LOOPS[loop], tmp_path)
    assert run.verdict.findings == ()
    assert run.session.recording.all(Anatomy)
    (record,) = run.session.recording.optimizers
    assert record.names == [f"{part}.{name}" for part in ("first", "norm", "last") for name in ("weight", "bias")]
    assert record.sizes == [80, 16, 16, 16, 16, 1]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_later_nan_is_found(loop: str, tmp_path: Path) -> None:
    program = MODEL + "BAD = 20\n" + LOOPS[loop]
    run = watch(program, tmp_path, SessionOptions(on_nonfinite="continue"))
    finding = run.verdict.findings[0]
    assert finding.code == "numerics.nonfinite-forward"
    assert (finding.where.step, finding.where.op) == (20, "log")


class Fitted(unstuck.LightningModule):
    def __init__(self, bad: int) -> None:
        super().__init__()
        self.bad = bad
        self.net = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(1))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        out = self.net(x)
        if self.global_step == self.bad:
            out = torch.log(out - out)
        return nn.functional.mse_loss(out, y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def fit(bad: int, folder: Path) -> Fitted:
    module = Fitted(bad)
    trainer = unstuck.Trainer(
        max_epochs=5,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        detect_anomaly="replay",
    )
    trainer.fit(module, DataLoader(TensorDataset(torch.randn(32, 5), torch.randn(32, 1)), batch_size=8))
    return module


def test_the_trainer_fits_a_lazy_module(tmp_path: Path) -> None:
    module = fit(-1, tmp_path)
    assert module.net[0].weight.shape == (16, 5)
    assert module.trainer.global_step == 20


@pytest.mark.parametrize("bad", [0, 13])
def test_the_trainers_guard_watches_a_lazy_module(bad: int, tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError) as raised:
        fit(bad, tmp_path)
    finding: Any = raised.value.finding
    assert (finding.where.step, finding.where.op) == (bad, "log")
