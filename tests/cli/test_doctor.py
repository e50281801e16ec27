"""``unstuck doctor``: five steps in order, an end where a cause is certain, reports, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from unstuck.cli.commands import _unstuck

PROGRAM = """
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
    import lightning.pytorch as pl

    class Real(pl.LightningModule):
        __init__ = Lit.__init__
        training_step = Lit.training_step
        validation_step = Lit.validation_step
        configure_optimizers = Lit.configure_optimizers

    return Real(), *data()


def interrupted():
    model = network()
    calls = 0

    def loss(output, target):
        nonlocal calls
        calls += 1
        if calls > 2:
            raise KeyboardInterrupt
        return nn.functional.cross_entropy(output, target)

    return model, data()[0], loss, torch.optim.Adam(model.parameters(), lr=3e-3)


def wrong():
    return 3
"""


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "prog.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def run(name: str, *options: str) -> tuple[int, dict[str, Any], str]:
        arguments = ["doctor", "--quiet", "--out", "out", "--steps", "120", *options, f"prog.py:{name}"]
        result = CliRunner().invoke(_unstuck, arguments, standalone_mode=False)
        if result.exception is not None:
            raise result.exception
        folder = tmp_path / "out"
        return (
            result.return_value,
            json.loads((folder / "report.json").read_text()),
            (folder / "report.txt").read_text(),
        )

    return run


def line_of(mark: str) -> int:
    return next(index for index, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(f"# {mark}"))


@pytest.mark.parametrize("name", ["good", "lit", "with_datamodule", "theirs"])
def test_a_sound_program_passes_every_step(name: str, doctor: Any) -> None:
    status, report, text = doctor(name)
    assert (status, report["findings"], report["skipped"]) == (0, [], [])
    assert [step["verdict"] for step in report["steps"]] == ["ok"] * 5
    assert "memorised" in report["steps"][1]["told"]
    assert report["steps"][4]["numbers"]["val_loss"] < 1.5
    assert "nothing wrong found in 5 steps" in text


@pytest.mark.parametrize(
    ("name", "code", "mark", "done"),
    [
        ("softmax", "loss.activation-mismatch", "softmax", 1),
        ("slow", "optim.lr-too-low", "slow", 2),
        ("nan", "numerics.nonfinite-forward", "nan", 1),
    ],
)
def test_it_ends_where_a_cause_is_certain(name: str, code: str, mark: str, done: int, doctor: Any) -> None:
    status, report, _ = doctor(name)
    assert status == 3
    assert len(report["steps"]) == done
    assert len(report["skipped"]) == 5 - done
    finding = report["findings"][0]
    assert (finding["code"], finding["where"]["file"], finding["where"]["line"]) == (code, "prog.py", line_of(mark))


def test_what_is_found_can_be_let_pass(doctor: Any) -> None:
    assert doctor("slow", "--fail-on", "never")[0] == 0


def test_an_exception_of_the_program_is_told_with_its_place(doctor: Any) -> None:
    status, report, text = doctor("shapes")
    assert status == 1
    assert "mat1 and mat2 shapes" in report["failure"]
    assert "the program raised RuntimeError" in text


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("prog.py:nope", "no callable 'nope'; it has: .*good"),
        ("nowhere.py:good", "can't find the file"),
        ("no.such.module:good", "can't find the module"),
        ("prog.py", "must be file.py:callable"),
        ("prog.py:wrong", "must return a LightningModule.*got int"),
    ],
)
def test_wrong_targets_are_refused(target: str, message: str, doctor: Any, tmp_path: Path) -> None:
    from unstuck.errors import MisconfigurationException

    result = CliRunner().invoke(_unstuck, ["doctor", "--quiet", target], standalone_mode=False)
    with pytest.raises(MisconfigurationException, match=message):
        raise result.exception if result.exception is not None else AssertionError


def test_ctrl_c_leaves_the_report_of_what_was_done(doctor: Any, tmp_path: Path) -> None:
    with pytest.raises(click.Abort):  # what the command line makes the end by SIGINT of
        doctor("interrupted")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [step["name"] for step in report["steps"]] == ["dry run"]
    assert report["failure"] == "it was interrupted"


def test_a_folder_that_can_not_be_written_is_told_before_the_work(doctor: Any, tmp_path: Path) -> None:
    from unstuck.errors import RecordError

    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="can't write to the output folder"):
        doctor("good", "--out", "file/below")
