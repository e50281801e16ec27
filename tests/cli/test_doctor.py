"""``unstuck doctor``: five checks in order, an end where a cause is certain, reports, exit codes, no other trace."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from unstuck.cli.commands import _unstuck
from unstuck.errors import MisconfigurationException

PROGRAM = """
import sys
import lightning.pytorch as pl
import torch
from torch import nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
import unstuck


def data():
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train = DataLoader(TensorDataset(x[:1500], y[:1500]), batch_size=32, shuffle=True)
    return train, DataLoader(TensorDataset(x[1500:], y[1500:]), batch_size=64)


def network(inputs=64):
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 10))


def good():
    train, val = data()
    model = network()
    return model, train, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3), val


class Softmaxed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x):
        return self.net(x).softmax(-1)  # softmax


def softmax():
    model = Softmaxed()
    return model, data()[0], nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3)


def slow():
    model = network()
    return model, data()[0], nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=1e-6)  # slow


def nan():
    model = network()

    def loss(output, target):
        return torch.log(output.relu()).mean()  # nan

    return model, data()[0], loss, torch.optim.Adam(model.parameters(), lr=3e-3)


def shapes():
    model = network(63)
    return model, data()[0], nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=3e-3)


class Lit(unstuck.LightningModule):
    def __init__(self):
        super(type(self), self).__init__()
        self.net = network()

    def training_step(self, batch, batch_idx):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def lit():
    return Lit(), *data()


class Data(unstuck.LightningDataModule):
    def train_dataloader(self):
        return data()[0]

    def val_dataloader(self):
        return data()[1]


def with_datamodule():
    return Lit(), Data()


def theirs():
    class Real(pl.LightningModule):
        __init__ = Lit.__init__
        rate = 3e-3
        training_step = Lit.training_step
        validation_step = Lit.validation_step

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=self.rate)  # theirs
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 10)]

    return Real(), *data()


class RealData(pl.LightningDataModule):
    def setup(self, stage):
        self.train, self.val = data()

    def train_dataloader(self):
        return self.train

    def val_dataloader(self):
        return self.val


def theirs_with_datamodule():
    return theirs()[0], RealData()


def theirs_slow():
    module = theirs()[0]
    module.rate = 1e-7
    return module, RealData()


def mixed():
    return Lit(), *data(), {"precision": "bf16-mixed", "gradient_clip_val": 1.0}


def writing():
    module = Lit()
    module.configure_callbacks = lambda: [unstuck.callbacks.ModelCheckpoint(save_last=True)]
    return module, *data()


def plateau():
    module = Lit()

    def configure_optimizers():
        optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}

    module.configure_optimizers = configure_optimizers
    module.configure_callbacks = lambda: [
        unstuck.callbacks.EarlyStopping("val_loss"),
        unstuck.callbacks.ModelCheckpoint(monitor="val_loss"),
    ]
    return module, *data()


def meaningless():
    model = network()
    inputs = data()[0].dataset.tensors[0]
    labels = torch.randint(10, (len(inputs),))
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=32, shuffle=True)
    return model, loader, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=1e-2)


def interrupted():
    import pathlib
    import time

    def loss(output, target):
        pathlib.Path("begun").touch()
        time.sleep(60)

    return network(), data()[0], loss, good()[3]


def interrupted_building():
    import pathlib
    import time

    pathlib.Path("begun").touch()
    time.sleep(60)


def exits():
    sys.exit(7)


def undecided():
    model = network()
    return model, data()[0], nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=1e-4)


def wrong():
    return 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "prog.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.fixture
def doctor(folder: Path) -> Any:
    def run(name: str, *options: str) -> tuple[int, dict[str, Any], str]:
        arguments = ["doctor", "--quiet", "--out", "out", "--steps", "120", *options, f"prog.py:{name}"]
        result = CliRunner().invoke(_unstuck, arguments, standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        out = folder / "out"
        return result.return_value, json.loads((out / "report.json").read_text()), (out / "report.txt").read_text()

    return run


def line_of(mark: str) -> int:
    return next(index for index, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(f"# {mark}"))


def statuses(report: dict[str, Any]) -> list[str]:
    return [check["status"] for check in report["checks"]]


SOUND = ["good", "lit", "with_datamodule", "theirs", "theirs_with_datamodule", "mixed", "writing", "plateau"]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_program_passes_every_check_and_leaves_no_file(name: str, doctor: Any, folder: Path) -> None:
    status, report, text = doctor(name)
    assert (status, report["exit_code"], report["findings"], report["unchecked"]) == (0, 0, [], [])
    assert statuses(report) == ["ok"] * 5
    assert "memorised" in report["checks"][1]["told"]
    assert report["checks"][4]["numbers"]["val_loss"] < 1.5
    assert f"nothing wrong found in 5 checks; report in {folder / 'out'}" in text
    assert sorted(os.listdir(folder)) == ["out", "prog.py"]
    assert sorted(os.listdir(folder / "out")) == ["report.json", "report.txt"]


@pytest.mark.parametrize(
    ("name", "code", "mark", "done"),
    [
        ("softmax", "loss.activation-mismatch", "softmax", 1),
        ("slow", "optim.lr-too-low", "slow", 2),
        ("theirs_slow", "optim.lr-too-low", "theirs", 2),
        ("nan", "numerics.nonfinite-forward", "nan", 1),
    ],
)
def test_it_ends_where_a_cause_is_certain(name: str, code: str, mark: str, done: int, doctor: Any) -> None:
    status, report, text = doctor(name)
    assert status == 3
    assert statuses(report) == ["ok"] * (done - 1) + ["failed"] + ["not reached"] * (5 - done)
    finding = report["findings"][0]
    assert (finding["code"], finding["where"]["file"], finding["where"]["line"]) == (code, "prog.py", line_of(mark))
    assert {frame["file"] for frame in finding["where"]["chain"]} <= {"prog.py"}
    assert f"{done - 1} of 5 checks ok; failed: {report['checks'][done - 1]['name']}; not reached: " in text


def test_what_is_found_can_be_let_pass(doctor: Any) -> None:
    status, report, _ = doctor("slow", "--fail-on", "never")
    assert (status, report["exit_code"]) == (0, 0)


def test_what_is_not_judged_is_said_and_is_no_failure(doctor: Any) -> None:
    status, report, text = doctor("undecided", "--steps", "1")
    assert status == 0
    assert statuses(report) == ["ok", "not judged", "ok", "ok", "not judged"]
    assert "3 of 5 checks ok; not judged: overfit, real run" in text
    assert "nothing wrong" not in text
    assert [phrase.split(":")[0] for phrase in report["unchecked"]] == ["overfit", "real run"]


def test_what_is_to_be_looked_at_counts_as_a_warning(doctor: Any) -> None:
    status, report, text = doctor("meaningless", "--fail-on", "warning")
    assert statuses(report) == ["ok"] * 4 + ["look"]
    assert "look at: real run" in text
    assert status == 3


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("shapes", r"RuntimeError: mat1 and mat2 shapes cannot be multiplied .*"),
        ("exits", r"sys.exit\(7\) \(prog.py:\d+, in exits\)"),
    ],
)
def test_an_exception_of_the_program_is_told(name: str, told: str, doctor: Any) -> None:
    status, report, text = doctor(name)
    assert status == report["exit_code"] == 1
    assert re.fullmatch(told, report["failure"])
    assert statuses(report) == ["raised", *["not reached"] * 4]
    assert "0 of 5 checks ok; raised: dry run; not reached: " in text
    assert "Traceback" in report["traceback"]


@pytest.mark.parametrize("source", ["import no_such_module_at_all", "1 / 0", "def build(:", "raise SystemExit(0)"])
def test_a_file_that_can_not_be_imported_is_told(source: str, folder: Path) -> None:
    (folder / "broken.py").write_text(source + "\n")
    arguments = ["doctor", "--quiet", "--out", "out", "broken.py:build"]
    result = CliRunner().invoke(_unstuck, arguments, standalone_mode=False)
    assert (result.exception, result.return_value) == (None, 1)
    report = json.loads((folder / "out" / "report.json").read_text())
    assert statuses(report) == ["raised", *["not reached"] * 4]
    assert "broken.py:1" in report["checks"][0]["why"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prog.py:nope"], "no callable 'nope'; it has: .*good"),
        (["nowhere.py:good"], "can't find the file"),
        (["no.such.module:good"], "can't find the module"),
        (["prog.py"], "must be file.py:callable"),
        (["prog.py:wrong"], "must return a LightningModule.*got int"),
        (["prog.py:network", "--json", "no/where.json"], r"can't write .*where.json \(--json\): No such file"),
        (["prog.py:good", "--json", "full"], r"can't write .*full \(--json\): it is a folder"),
        (["prog.py:good", "--out", "prog.py/below"], r"can't write to the output folder .* \(--out\): Not a directory"),
    ],
)
def test_what_can_not_work_is_refused_before_the_work(arguments: list[str], message: str, folder: Path) -> None:
    (folder / "full").mkdir()
    result = CliRunner().invoke(_unstuck, ["doctor", "--quiet", *arguments], standalone_mode=False)
    error = result.exception
    if isinstance(error, click.UsageError):
        assert error.exit_code == 2
        return
    assert isinstance(error, MisconfigurationException)
    assert error.exit_code == 2
    assert re.search(message, str(error))
    assert sorted(os.listdir(folder)) == ["full", "prog.py"]


def run(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "unstuck", "doctor", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("name", ["interrupted", "interrupted_building"])
def test_ctrl_c_leaves_the_report_of_what_was_done(name: str, folder: Path) -> None:
    process = run("--out", "out", f"prog.py:{name}")
    deadline = time.monotonic() + 60
    while not (folder / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGINT  # a shell calls it 130
    report = json.loads((folder / "out" / "report.json").read_text())
    assert report["exit_code"] == 130
    assert statuses(report) == ["interrupted", *["not reached"] * 4]
    assert report["failure"] is None
    assert "0 of 5 checks ok; interrupted: dry run; not reached: overfit, gradients, numbers, real run" in told
    assert "raised" not in told
    assert sorted(os.listdir(folder)) == ["begun", "out", "prog.py"]


@pytest.mark.parametrize(
    ("arguments", "code"), [(["prog.py:exits"], 1), (["prog.py:nope"], 2), (["--steps", "0", "x"], 2)]
)
def test_exit_codes_reach_the_shell(arguments: list[str], code: int, folder: Path) -> None:
    process = run("--quiet", *arguments)
    process.communicate(timeout=60)
    assert process.returncode == code


def test_exit_codes_are_documented_alike() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "workflow.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| (\d+) \|", guide, re.MULTILINE)
    told = CliRunner().invoke(_unstuck, ["doctor", "--help"], standalone_mode=False).output
    assert documented == re.findall(r"^\s+(\d+)  +\S", told, re.MULTILINE) == ["0", "1", "2", "3", "4", "130"]


def test_the_guide_shows_what_is_printed(folder: Path) -> None:
    """But for the numbers, which depend on the machine."""
    guide = (Path(__file__).parents[2] / "docs" / "workflow.md").read_text(encoding="utf-8")
    block = re.findall(r"^```python\n(.*?)^```", guide, re.M | re.S)[0]
    shown = guide[guide.index("five checks are made") : guide.index("It ends where a cause is certain")]
    (folder / "train.py").write_text(block)
    arguments = ["doctor", "--quiet", "--out", "out", "train.py:build"]
    result = CliRunner().invoke(_unstuck, arguments, standalone_mode=False)
    assert (result.exception, result.return_value) == (None, 0)
    text = (folder / "out" / "report.txt").read_text()

    def words(told: str) -> list[str]:
        return re.sub(r"-?\d[\d.,e+-]*", "N", told.split("; report in")[0]).split()

    assert words(shown.split("question:", 1)[1]) == words(text)


def test_lines_of_the_command_itself_are_none_of_the_program(folder: Path) -> None:
    script = Path(sys.executable).parent / "unstuck"
    subprocess.run(
        [script, "doctor", "--quiet", "--out", "out", "--steps", "30", "prog.py:softmax"], check=False, timeout=100
    )
    (finding,) = json.loads((folder / "out" / "report.json").read_text())["findings"]
    assert finding["where"]["line"] == line_of("softmax")
    assert {frame["file"] for frame in finding["where"]["chain"]} <= {"prog.py"}


def test_a_saved_report_is_drawn_as_it_was_shown(doctor: Any, folder: Path) -> None:
    *_, text = doctor("undecided", "--steps", "1")
    process = subprocess.run(
        [sys.executable, "-m", "unstuck", "report", "out"], stderr=subprocess.PIPE, text=True, check=True
    )
    assert process.stderr.splitlines() == text.splitlines()


def test_quiet_is_quiet(folder: Path) -> None:
    process = run("--quiet", "--steps", "60", "prog.py:theirs_slow")
    assert process.communicate(timeout=100)[1] == ""
    assert process.returncode == 3


def test_a_file_called_like_a_module_in_use_does_not_replace_it(folder: Path) -> None:
    import random

    (folder / "random.py").write_text(PROGRAM)
    arguments = ["doctor", "--quiet", "--out", "out", "--steps", "30", "random.py:lit"]
    result = CliRunner().invoke(_unstuck, arguments, standalone_mode=False)
    assert (result.exception, result.return_value) == (None, 0)
    assert sys.modules["random"] is random


def test_without_options_it_says_where_the_report_is(folder: Path) -> None:
    process = run("--steps", "5", "prog.py:good", cwd=folder)
    told = process.communicate(timeout=100)[1]
    (saved,) = re.findall(r"report in (\S+)", told)
    assert Path(saved).parent == folder / "unstuck-out"
    assert sorted(os.listdir(saved)) == ["report.json", "report.txt"]
