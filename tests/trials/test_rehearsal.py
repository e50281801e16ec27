"""Kept steps run again after the end of a program, in any shape of loop, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.test_no_trace import watched_as_plain
from tests.session.test_program_shapes import DATA, SHAPES
from tests.session.watching import watch
from unstuck.record.trials import LearningTrials
from unstuck.session import SessionOptions, probing

UNTRIED = {"closure", "two optimisers in turn"}
HEALTHY_DATA = DATA.replace("KILL[BAD] = Y[BAD]", "")


@pytest.fixture(autouse=True)
def suspected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is tried, however it went."""
    monkeypatch.setattr(probing, "suspicions", lambda recording, index, since: ("flat",))
    monkeypatch.setattr(probing, "LENGTH", 6)


@pytest.mark.parametrize("shape", SHAPES)
def test_trials_run_in_any_shape_and_leave_no_trace(shape: str, tmp_path: Path) -> None:
    run = watched_as_plain(shape, HEALTHY_DATA, tmp_path)
    made = run.session.recording.all(LearningTrials)
    reasons = [phrase for phrase in run.verdict.unchecked if phrase.startswith("other rates and settings")]
    assert len(made) + len(reasons) == 1
    assert made or shape in UNTRIED, reasons


def test_the_first_trial_is_the_run_itself(tmp_path: Path) -> None:
    """Same weights, batches, random numbers and optimiser: as long as it trains on, not beyond, its batches in turn."""
    run = watch(
        """
        from torch.utils.data import DataLoader, TensorDataset
        model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 1))
        opt = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=0.1)
        loader = DataLoader(TensorDataset(torch.randn(128, 5), torch.randn(128, 1)), batch_size=4, shuffle=True)
        seen = []
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()
            seen.append(loss.item())
        """,
        tmp_path,
    )
    (made,) = run.session.recording.all(LearningTrials)
    own = made.trials[0]
    assert own.name == "own"
    assert len(own.training) == 6
    assert list(own.training) == pytest.approx(run.namespace["seen"][:6], rel=1e-6)
    held = run.namespace["seen"]
    assert made.batches == 24 and made.held_out == 8 and len(held) == 32


def test_a_model_in_eval_mode_at_the_end_is_tried_in_the_mode_of_its_steps(tmp_path: Path) -> None:
    run = watch(
        """
        def main():
            model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 1))
            opt = torch.optim.SGD(model.parameters(), lr=0.02)
            for step in range(30):
                model.train()
                x = torch.randn(16, 5)
                loss = model(x).pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                model.eval()
            return model
        model = main()
        mode = [item.training for item in model.modules()]
        """,
        tmp_path,
    )
    (made,) = run.session.recording.all(LearningTrials)
    seen = [loss for _, loss in run.session.recording.losses]
    assert list(made.trials[0].training) == pytest.approx(seen[:6], rel=1e-6)
    model = run.namespace["model"]
    assert [item.training for item in model.modules()] == [False] * 5


def test_several_optimizers_are_not_tried(tmp_path: Path) -> None:
    run = watch(
        """
        a, b = nn.Linear(3, 3), nn.Linear(3, 1)
        one, two = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.SGD(b.parameters(), lr=0.1)
        for step in range(30):
            loss = b(a(torch.randn(8, 3))).pow(2).mean()
            one.zero_grad(), two.zero_grad()
            loss.backward()
            one.step(), two.step()
        """,
        tmp_path,
    )
    assert not run.session.recording.all(LearningTrials)
    assert any("several optimizers" in phrase for phrase in run.verdict.unchecked)


def test_no_budget_keeps_nothing(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Linear(3, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(30):
            loss = model(torch.randn(8, 3)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
        tmp_path,
        SessionOptions(budget=0.0),
    )
    assert not run.session.recording.all(LearningTrials)


def test_trials_count_as_known_at_the_end_only(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Linear(3, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(40):
            loss = model(torch.randn(8, 3)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
        tmp_path,
    )
    recording = run.session.recording
    assert recording.all(LearningTrials) and not recording.cut(40).all(LearningTrials)


@pytest.mark.parametrize("keeps", ["lightning", "unstuck"])
def test_a_trainer_s_steps_are_run_again_after_its_end(keeps: str, tmp_path: Path) -> None:
    pytest.importorskip(keeps)
    run = watch(
        f"""
        import {keeps} as L
        from torch.utils.data import DataLoader, TensorDataset
        class Model(L.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
            def training_step(self, batch, index):
                x, y = batch
                loss = F.mse_loss(self.net(x), y)
                self.log("loss", loss)
                return loss
            def configure_optimizers(self):
                return torch.optim.Adam(self.parameters(), lr=1e-3)
        trainer = L.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(120, 4), torch.randn(120, 1)), batch_size=6))
        """,
        tmp_path,
    )
    (made,) = run.session.recording.all(LearningTrials)
    seen = [loss for _, loss in run.session.recording.losses]
    assert list(made.trials[0].training) == pytest.approx(seen[:6], rel=1e-5)
