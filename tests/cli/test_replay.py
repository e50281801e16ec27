"""`unstuck replay`: the step of a saved incident again, in the program that it belongs to."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from unstuck.cli.replay import ReplayOptions, replay
from unstuck.errors import RecordError, ScriptError
from unstuck.trials.incident_folder import load_incident

PLAIN = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(100, 4)
x[57] = 0
loader = DataLoader(TensorDataset(x, torch.rand(100)), batch_size=8, shuffle=True)
mean = torch.stack([batch[0].mean() for batch in loader]).mean()
net = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Dropout(0.1))
opt = torch.optim.Adam(net.parameters(), lr=float(sys.argv[1]))
for epoch in range(2):
    for a, y in loader:
        h = net(a)
        loss = (h.pow(2).sum(1).sqrt() - y).pow(2).mean()  # HERE
        opt.zero_grad(); loss.backward(); opt.step()
"""

MODULE = """
import torch
import unstuck
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(unstuck.LightningModule):
    def __init__(self, width{default}):
        super().__init__()
        {save}
        self.net = nn.Sequential(nn.Linear(4, width, bias=False), nn.Dropout(0.1))
    def training_step(self, batch, batch_idx):
        a, y = batch
        h = self.net(a)
        loss = (h.pow(2).sum(1).sqrt() - y).pow(2).mean()  # HERE
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(100, 4)
    x[57] = 0
    loader = DataLoader(TensorDataset(x, torch.rand(100)), batch_size=8, shuffle=True)
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    unstuck.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(Net({width}), loader)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def line_of(file: Path, mark: str = "# HERE") -> int:
    return next(index for index, line in enumerate(file.read_text().splitlines(), 1) if mark in line)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plain script and its run."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "train.py").write_text(PLAIN)
    done = run(folder, "-m", "unstuck", "run", "--quiet", "--out", "out", "train.py", "0.01")
    assert done.returncode == 3, done.stderr
    return folder


def finding(folder: Path, *arguments: str) -> dict[str, Any]:
    done = run(folder, "-m", "unstuck", "replay", "--json", "again.json", *arguments)
    assert done.returncode == 3, done.stderr
    report = json.loads((folder / "again.json").read_text())
    assert any("not restored" in phrase for phrase in report["unchecked"])
    found: dict[str, Any] = report["findings"][0]
    return found


def test_a_plain_script_repeats_the_step_with_its_own_arguments(plain: Path, tmp_path: Path) -> None:
    first = json.loads((plain / "out" / "report.json").read_text())["findings"][0]
    again = finding(plain, "out/incident-0")
    assert again["code"] == "numerics.nonfinite-backward"
    for key in ("file", "line", "step", "batch", "sample", "op"):
        assert again["where"][key] == first["where"][key], key
    assert again["evidence"]["loss"] == first["evidence"]["loss"]
    assert again["where"]["line"] == line_of(plain / "train.py")
    # nothing is written beside the report that was asked for
    assert {item.name for item in plain.iterdir()} == {"train.py", "out", "again.json"}


def test_a_changed_file_is_refused_unless_told(plain: Path) -> None:
    file = plain / "train.py"
    file.write_text(PLAIN + "# changed\n")
    try:
        done = run(plain, "-m", "unstuck", "replay", "out/incident-0")
        assert done.returncode == 2
        assert "was changed" in done.stderr + done.stdout
        assert finding(plain, "--changed", "out/incident-0")["where"]["op"] == "sqrt"
    finally:
        file.write_text(PLAIN)
    (plain / "moved.py").write_text(PLAIN)


def test_damaged_and_foreign_folders_are_told_in_one_line(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no incident"):
        load_incident(tmp_path)
    whole = plain / "out" / "incident-0"
    notes, tensors = (whole / "incident.json").read_bytes(), (whole / "tensors.pt").read_bytes()
    for change, message in (
        ((notes[: len(notes) // 2], tensors), "damaged"),
        ((notes, tensors[: len(tensors) // 2]), "damaged"),
        ((notes, b""), "damaged"),
        ((b'{"format": 1}', tensors), "isn't an incident"),
        ((notes.replace(b'"rebuild"', b'"other"'), tensors), "no whole incident"),
        ((b"[]", tensors), "damaged"),
    ):
        (tmp_path / "incident.json").write_bytes(change[0])
        (tmp_path / "tensors.pt").write_bytes(change[1])
        with pytest.raises(RecordError, match=message):
            replay(ReplayOptions(tmp_path))


def test_loading_never_runs_code_of_the_incident(plain: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "exploded"),)

    (tmp_path / "incident.json").write_bytes((plain / "out" / "incident-0" / "incident.json").read_bytes())
    (tmp_path / "tensors.pt").write_bytes(pickle.dumps({"models": Bomb()}))
    with pytest.raises(RecordError):
        load_incident(tmp_path)
    torch.save({"models": Bomb()}, tmp_path / "tensors.pt")
    with pytest.raises(RecordError):
        load_incident(tmp_path)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("default", "save", "width"),
    [
        pytest.param("=8", "self.save_hyperparameters()", "width=6", id="from its hyper-parameters"),
        pytest.param("", "self.width = width", "6", id="by its program"),
    ],
)
def test_a_trainer_s_module_is_made_again(
    default: str, save: str, width: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    file = tmp_path / "train.py"
    file.write_text(MODULE.format(default=default, save=save, width=width))
    done = run(tmp_path, "-W", "always", "train.py")
    assert done.returncode == 0, done.stderr
    assert f"train.py:{line_of(file)}: UserWarning: numerics.nonfinite-backward" in done.stderr
    (folder,) = (tmp_path / "unstuck-out").glob("*/incident-0")
    monkeypatch.chdir(tmp_path)
    report = tmp_path / "again.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert replay(ReplayOptions(folder, json_file=report)) == 3
    (found,) = json.loads(report.read_text())["findings"]
    assert (found["code"], found["where"]["op"]) == ("numerics.nonfinite-backward", "sqrt")
    assert found["where"]["line"] == line_of(file)
    assert found["where"]["sample"] is not None
    assert not [phrase for phrase in json.loads(report.read_text())["unchecked"] if phrase.startswith("the loss is")]
    sys.modules.pop("unstuck_replayed", None)


COUNTED = """
import torch
from torch import nn

def train(net, opt, x, y):
    state = torch.zeros(8)
    for epoch in range(2):
        for start in range(0, 200, 8):
            rows = slice(start, start + 8)
            p = net(x[rows]).squeeze(1)
            state = 0.9 * state + p.detach()
            loss = ((p - torch.log(y[rows])) ** 2).mean() + 1e-3 * state.sum()  # HERE
            opt.zero_grad(); loss.backward(); opt.step()

torch.manual_seed(0)
x, y = torch.randn(200, 4), torch.rand(200) + 0.1
y[101] = 0
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 1))
train(net, torch.optim.Adam(net.parameters(), lr=0.01), x, y)
"""

DRAWN = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(200, 4), torch.rand(200)
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(60):
    rows = torch.randint(0, 200, (8,))
    target = y[rows]
    weight = 1.0 / (step - 40) if step > 10 else 1.0
    if step == 15:
        target[3] = -1.0
    p = net(x[rows]).squeeze(1)
    loss = (weight * (p - torch.sqrt(target)) ** 2).mean()  # HERE
    opt.zero_grad(); loss.backward(); opt.step()
"""


@pytest.mark.parametrize(("program", "op"), [(COUNTED, "log"), (DRAWN, "sqrt")], ids=["counted", "drawn"])
def test_a_program_without_a_loader_repeats_the_step(program: str, op: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(program)
    done = run(tmp_path, "-m", "unstuck", "run", "--quiet", "--out", "out", "train.py")
    assert done.returncode == 3, done.stderr
    first = json.loads((tmp_path / "out" / "report.json").read_text())["findings"][0]
    again = finding(tmp_path, "out/incident-0")
    for key in ("file", "line", "chain", "step", "batch", "op"):
        assert again["where"][key] == first["where"][key], key
    assert (again["where"]["op"], again["where"]["line"]) == (op, line_of(tmp_path / "train.py"))
    assert again["evidence"]["loss"] == first["evidence"]["loss"]
    assert again["evidence"]["inputs"] == first["evidence"]["inputs"]


@pytest.mark.parametrize("how", ["manual optimisation", "watched"])
def test_a_trainer_s_step_is_repeated_by_its_program(how: str, tmp_path: Path) -> None:
    text = MODULE.format(default="=8", save="pass", width="")
    if how == "manual optimisation":
        text = text.replace("        {save}\n".format(save="pass"), "        self.automatic_optimization = False\n")
        text = text.replace(
            "        return loss\n",
            "        opt = self.optimizers(); opt.zero_grad(); self.manual_backward(loss); opt.step()\n",
        )
    file = tmp_path / "train.py"
    file.write_text(text)
    if how == "watched":
        done = run(tmp_path, "-m", "unstuck", "run", "--quiet", "--out", "unstuck-out/watched", "train.py")
        assert done.returncode == 3, done.stderr
    else:
        done = run(tmp_path, "train.py")
        assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "unstuck-out").glob("*/incident-0")
    saved = json.loads((folder / "incident.json").read_text())["incident"]
    again = finding(tmp_path, str(folder))
    assert (again["code"], again["where"]["op"]) == ("numerics.nonfinite-backward", "sqrt")
    assert again["where"]["line"] == line_of(file)
    assert again["evidence"]["loss"] == saved["loss"], "all of the step was put back"
    assert again["evidence"]["dataset index"] == 57
    report = json.loads((tmp_path / "again.json").read_text())
    assert [phrase for phrase in report["unchecked"] if "position" not in phrase] == []


def test_a_program_that_is_gone_is_told(plain: Path) -> None:
    file = plain / "train.py"
    file.rename(plain / "away.py")
    try:
        with pytest.raises(ScriptError, match="can't be read"):
            replay(ReplayOptions(plain / "out" / "incident-0"))
    finally:
        (plain / "away.py").rename(file)
