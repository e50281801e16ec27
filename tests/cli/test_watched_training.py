"""Trainings of every shape that concerns the launcher: workers, threads, killed, stopped, never imported torch here."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import PLAIN, PROGRAMS, WATCHED, run, run_and_signal

TRAINING = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(batches):
    for batch in batches:
        loss = model(batch[0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item().hex(), flush=True)
"""

PROGRAMS_AND_STATUS = {
    "workers": (
        TRAINING
        + """
import os
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, index):
        assert not [name for name in os.environ if "UNSTUCK" in name]
        return (torch.randn(4),)
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        train(DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context=method))
""",
        0,
    ),
    "in a thread that outlives the main program": (
        TRAINING + "import threading\nthreading.Thread(target=train, args=([[torch.ones(2, 4)]] * 5,)).start()\n",
        0,
    ),
    "ends by sys.exit": (TRAINING + "train([[torch.ones(2, 4)]] * 5)\nimport sys; sys.exit(7)\n", 7),
    "ends by an exception": (TRAINING + "train([[torch.ones(2, 4)]] * 5)\n1 / 0\n", 1),
    "deletes its model": (TRAINING + "train([[torch.ones(2, 4)]] * 5)\ndel model, optimizer\n", 0),
}


@pytest.mark.parametrize("name", PROGRAMS_AND_STATUS)
def test_training_is_watched_and_ends_as_it_would(name: str, tmp_path: Path) -> None:
    source, status = PROGRAMS_AND_STATUS[name]
    (tmp_path / "train.py").write_text(source)
    plain = run([*PLAIN, "train.py"], tmp_path)
    watched = run([*WATCHED, "--json", "report.json", "train.py"], tmp_path)
    assert plain.status == status
    assert (watched.stdout, watched.status) == (plain.stdout, status)
    assert watched.own_stderr == plain.stderr
    assert len(watched.our_lines) == 1
    assert "step" in watched.our_lines[0]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["findings"] == []
    assert report["failure"] is None


UNWATCHED = {
    "only in a forked worker": (
        "import multiprocessing\n"
        "def work():\n    exec(open('body.py').read(), {})\n"
        "if __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('fork').Process(target=work)\n"
        "    process.start(); process.join(); print(process.exitcode)\n"
    ),
    "only in a subprocess": (
        "import subprocess, sys\nprint(subprocess.run([sys.executable, 'body.py'], capture_output=True).stdout)\n"
    ),
    "torch is imported and nothing trained": "import torch\nprint(torch.ones(1))\n",
}


@pytest.mark.parametrize("name", UNWATCHED)
def test_training_elsewhere_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "body.py").write_text(TRAINING + "train([[torch.ones(2, 4)]] * 3)\n")
    (tmp_path / "train.py").write_text(UNWATCHED[name])
    plain = run([*PLAIN, "train.py"], tmp_path)
    watched = run([*WATCHED, "train.py"], tmp_path)
    assert plain.status == 0
    assert (watched.stdout, watched.status) == (plain.stdout, 0)
    assert watched.our_lines == ["unstuck: nothing was trained in this process, so there is nothing to report"]


def test_users_modules_win_in_a_training_too(tmp_path: Path) -> None:
    names = ["rich", "click", "statistics", "utils", "report", "session"]
    for name in names:
        (tmp_path / f"{name}.py").write_text("WHOSE = 'user'\n")
    (tmp_path / "train.py").write_text(
        TRAINING
        + "train([[torch.ones(2, 4)]] * 3)\n"
        + "".join(f"import {name}; print({name}.WHOSE)\n" for name in names)
    )
    watched = run([*WATCHED, "train.py"], tmp_path)
    assert watched.stdout.splitlines()[1:] == [b"user"] * len(names)
    assert (watched.status, len(watched.our_lines)) == (0, 1)


def findings_of(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())["findings"]
    return found


def test_stop_after_steps_is_a_clean_end(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        TRAINING
        + "import atexit\natexit.register(print, 'atexit')\n"
        + "try:\n    train([[torch.ones(2, 4)]] * 50)\nfinally:\n    print('finally')\n"
    )
    watched = run([*WATCHED, "--steps", "3", "--json", "report.json", "train.py"], tmp_path)
    assert (watched.stdout, watched.status) == (b"finally\natexit\n", 0)
    assert json.loads((tmp_path / "report.json").read_text())["stopped"] == "steps"


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ((), 3),
        (("--on-nonfinite", "continue"), 0),
        (("--on-nonfinite", "continue", "--fail-on", "warning"), 3),
    ],
    ids=str,
)
def test_incident_decides_the_exit_code(options: tuple[str, ...], status: int, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "late_log.py", tmp_path)
    done = run([*WATCHED, *options, "--json", "report.json", "late_log.py"], tmp_path)
    assert [finding["code"] for finding in findings_of(tmp_path)] == ["numerics.nonfinite-forward"]
    assert done.status == status
    assert done.stdout == b"visible to whoever started the program\n"


def test_killed_run_leaves_a_recording_that_can_be_judged(tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "endless.py", tmp_path)
    killed = run_and_signal([*WATCHED, "--out", "out", "endless.py"], tmp_path, signal.SIGTERM)
    assert (killed.status, killed.stdout, killed.stderr) == (-signal.SIGTERM, b"ready\n", b"")
    report = subprocess.run(
        [sys.executable, "-m", "unstuck", "report", "out"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "nothing wrong found in the recording of a run that ended before it could report" in report.stderr
