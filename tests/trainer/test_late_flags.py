"""Flags that stay on the device and are read late: the same findings, on the CPU through the code that a GPU uses."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.test_nonfinite import BAD_BATCH, Faulty, finding, fit, line_of
from unstuck.trainer.nonfinite.late_flags import LateFlags
from unstuck.trainer.nonfinite.watcher import NonfiniteWatcher


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NonfiniteWatcher, "lag", 4)


@pytest.mark.parametrize("more", [{}, {"accumulate_grad_batches": 2, "gradient_clip_val": 0.1}], ids=str)
@pytest.mark.parametrize("fault", ["log", "sqrt"])
def test_the_first_bad_step_is_found_from_the_last_clean_state(
    fault: str, more: dict[str, Any], tmp_path: Path
) -> None:
    found = finding(Faulty(fault), tmp_path, **more)
    assert found.where.op == fault
    assert found.where.line == line_of(fault.upper())
    assert found.where.batch == BAD_BATCH
    assert found.where.step == BAD_BATCH // more.get("accumulate_grad_batches", 1)
    assert found.confirmed


def test_a_bad_step_after_the_last_look_is_found_at_the_end(tmp_path: Path) -> None:
    found = finding(Faulty("log", bad=11), tmp_path)
    assert (found.where.step, found.where.batch) == (11, 11)


def test_the_way_back_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for watches in (True, False):
        if not watches:
            monkeypatch.setattr("unstuck.trainer.entry.watched", contextlib.nullcontext)
        torch.manual_seed(7)
        module = Faulty("sqrt")
        assert len(fit(module, tmp_path, max_epochs=2)) == watches
        runs.append((module, torch.rand(1)))
    (watched, left), (bare, right) = runs
    assert torch.equal(left, right)
    assert torch.tensor(watched.losses).nan_to_num().tolist() == torch.tensor(bare.losses).nan_to_num().tolist()
    for one, two in zip(watched.state_dict().values(), bare.state_dict().values(), strict=True):
        assert torch.equal(one.nan_to_num(), two.nan_to_num())


def test_a_healthy_run_is_silent(tmp_path: Path) -> None:
    assert fit(Faulty(), tmp_path, max_epochs=3) == []


def test_without_room_for_a_snapshot_it_is_told_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unstuck.trainer.nonfinite.late_flags._has_room", lambda tensors, needed: False)
    (text,) = fit(Faulty("sqrt"), tmp_path)
    assert "late" in text


def test_the_cost_of_a_snapshot_decides_how_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[LateFlags] = []
    original = LateFlags.read

    def read(flags: LateFlags) -> Any:
        kept.append(flags)
        return original(flags)

    monkeypatch.setattr(LateFlags, "read", read)
    monkeypatch.setattr(LateFlags, "_take_snapshot", lambda flags: 1.0)  # dear beside these short steps
    monkeypatch.setattr(NonfiniteWatcher, "lag", None)
    monkeypatch.setattr(NonfiniteWatcher, "__init__", _always_late(NonfiniteWatcher.__init__))
    assert fit(Faulty(), tmp_path, max_epochs=2) == []
    assert kept[0]._every == 128


def _always_late(original: Any) -> Any:
    def initialise(watcher: NonfiniteWatcher, run: Any, desk: Any) -> None:
        original(watcher, run, desk)
        watcher._late = LateFlags(run)

    return initialise
