"""What is kept of the first steps is bounded, and belongs to the training that the program still holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.watching import watch
from unstuck.instruments import kept_steps
from unstuck.record.schedules import ScheduleRecord
from unstuck.record.trials import LearningTrials
from unstuck.session import probing

FOLDS = """
import gc
for fold in range(3):
    model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.1 * (fold + 1))
    for step in range(30):
        loss = (model(torch.randn(8, 3)) - 1).pow(2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
"""


@pytest.fixture(autouse=True)
def suspected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is tried, however it went."""
    monkeypatch.setattr(probing, "suspicions", lambda recording, index, since: ("flat",))
    monkeypatch.setattr(probing, "LENGTH", 4)


def test_the_last_of_several_trainings_is_tried(tmp_path: Path) -> None:
    run = watch(FOLDS, tmp_path)
    (made,) = run.session.recording.all(LearningTrials)
    assert made.since == 60
    assert made.trials[0].rate == pytest.approx(0.3)
    assert run.session.recording.optimizers[made.optimizer].settings["lr"] == pytest.approx(0.3)


def test_large_weights_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_steps, "_WEIGHT_BYTES", 8)
    run = watch(FOLDS, tmp_path)
    assert not run.session.recording.all(LearningTrials)
    assert any("too large" in phrase for phrase in run.verdict.unchecked)


def test_large_batches_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_steps, "_BATCH_BYTES", 10 * 8 * 3 * 4)
    run = watch(FOLDS.replace("range(3)", "range(1)"), tmp_path)
    (made,) = run.session.recording.all(LearningTrials)
    assert 6 <= made.batches + made.held_out <= 12


def test_schedules_are_noted_with_their_lines(tmp_path: Path) -> None:
    run = watch(
        """
        from torch.utils.data import DataLoader
        model = nn.Linear(3, 1); opt = torch.optim.SGD(model.parameters(), lr=0.1)
        step_lr = torch.optim.lr_scheduler.StepLR(opt, step_size=5, gamma=0.2)  # MADE
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="max")  # PLATEAU
        for epoch in range(3):
            for x in DataLoader(torch.randn(40, 3), batch_size=8):
                loss = model(x).pow(2).mean()
                opt.zero_grad(); loss.backward(); opt.step()
                step_lr.step()  # MOVED
            plateau.step(loss.item())  # WATCHED
        """,
        tmp_path,
    )
    first, second = run.session.recording.all(ScheduleRecord)
    assert (first.kind, first.calls, first.steps, first.epochs, first.optimizer) == ("StepLR", 15, 15, 3, 0)
    assert first.settings["step_size"] == 5 and first.settings["gamma"] == 0.2 and first.highest == 0.1
    assert first.made_at[-1].line == run.line_of("# MADE") and first.step_at[-1].line == run.line_of("# MOVED")
    assert (second.kind, second.calls) == ("ReduceLROnPlateau", 3)
    assert second.settings["mode"] == "max"
    assert second.made_at[-1].line == run.line_of("# PLATEAU") and second.step_at[-1].line == run.line_of("# WATCHED")
