"""The CSV logger: layout, columns, crash, remote paths."""

import csv
import os
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import fsspec
import lightning.pytorch.loggers as reference
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from unstuck.loggers import CSVLogger

PARAMS = {"lr": 0.1, "layers": [1, 2], "nested": {"name": "x", "none": None, "flag": True}, "n": 3}
CALLS: list[tuple[dict[str, Any], int | None]] = [
    ({"z": 1.0, "a": torch.tensor(2.0)}, 3),
    ({"b": 2}, None),
    ({"epoch": 1, "a": 0.25, 'odd,"name"\n': float("nan")}, 99),
    ({"a": 1e-30}, 100),
]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(logger: Any, save_between: bool) -> str:
    for number, (metrics, step) in enumerate(CALLS):
        # Lightning counts rows without a step from the last save on, ours from the beginning.
        logger.log_metrics(metrics, number if save_between and step is None else step)
        if save_between:
            logger.save()
    logger.log_hyperparams(PARAMS)
    logger.save()
    logger.finalize("success")
    return str(logger.log_dir)


@pytest.mark.parametrize("save_between", [False, True])
@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"name": "exp", "version": 3},
        {"name": None},
        {"name": "", "version": "mine"},
        {"prefix": "p"},
    ],
)
def test_files_are_those_of_lightning(tmp_path: Path, keywords: dict[str, Any], save_between: bool) -> None:
    ours = write(CSVLogger(tmp_path / "ours", **keywords), save_between)
    theirs = write(reference.CSVLogger(tmp_path / "theirs", **keywords), save_between)
    assert Path(ours).relative_to(tmp_path / "ours") == Path(theirs).relative_to(tmp_path / "theirs")
    assert sorted(os.listdir(ours)) == sorted(os.listdir(theirs))
    assert Path(ours, "metrics.csv").read_bytes() == Path(theirs, "metrics.csv").read_bytes()
    assert Path(ours, "hparams.yaml").read_text() == Path(theirs, "hparams.yaml").read_text()


def test_attributes_are_those_of_lightning(tmp_path: Path) -> None:
    for keywords in ({}, {"name": "exp", "version": 3}, {"name": None}, {"version": "v"}):
        ours, theirs = CSVLogger(tmp_path, **keywords), reference.CSVLogger(tmp_path, **keywords)
        for name in ("name", "version", "save_dir", "root_dir", "log_dir", "group_separator"):
            assert getattr(ours, name) == getattr(theirs, name), name


def test_the_next_version_is_a_new_one(tmp_path: Path) -> None:
    for expected in (0, 1):
        logger = CSVLogger(tmp_path)
        assert logger.version == expected
        logger.log_metrics({"a": 1.0})
        logger.save()
    (tmp_path / "lightning_logs" / "version_7").mkdir()
    (tmp_path / "lightning_logs" / "version_nine").mkdir()
    (tmp_path / "lightning_logs" / "version_9").touch()
    assert CSVLogger(tmp_path).version == 8


def test_nothing_is_made_before_something_is_logged(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    assert logger.log_dir
    logger.finalize("success")
    assert list(tmp_path.iterdir()) == []


def test_an_old_file_is_kept(tmp_path: Path) -> None:
    write(CSVLogger(tmp_path, version=0), save_between=False)
    old = (tmp_path / "lightning_logs/version_0/metrics.csv").read_bytes()
    logger = CSVLogger(tmp_path, version=0)
    with pytest.warns(UserWarning, match=r"metrics\.previous\.csv"):
        logger.log_metrics({"a": 1.0}, 0)
    logger.save()
    assert (tmp_path / "lightning_logs/version_0/metrics.previous.csv").read_bytes() == old
    assert read(tmp_path / "lightning_logs/version_0/metrics.csv") == [{"a": "1.0", "step": "0"}]


def test_rows_are_flushed_without_save(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=3)
    path = Path(logger.log_dir, "metrics.csv")
    for step in range(7):
        logger.log_metrics({"a": step}, step)
        if step < 2:
            assert not path.exists()
    assert [row["step"] for row in read(path)] == list("012345")
    logger.finalize("failed")
    assert len(read(path)) == 7


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.floats(allow_nan=False), min_size=1), max_size=20))
@settings(max_examples=30, deadline=None)
def test_saving_often_gives_the_same_file_as_saving_once(rows: list[dict[str, float]]) -> None:
    files = []
    for every in (1, 3, 100):
        logger = CSVLogger(f"memory://often/{every}", version="same")
        directory = f"often/{every}"
        memory = fsspec.filesystem("memory")
        if memory.exists(directory):
            memory.rm(directory, recursive=True)
        for step, row in enumerate(rows):
            logger.log_metrics(dict(row), step)
            if step % every == 0:
                logger.save()
        logger.save()
        path = f"{directory}/lightning_logs/same/metrics.csv"
        files.append(memory.cat_file(path) if memory.exists(path) else b"")
    assert files[0] == files[1] == files[2]
    parsed = list(csv.DictReader(files[0].decode().splitlines()))
    assert [{k: float(v) for k, v in row.items() if k != "step" and v} for row in parsed] == rows


def test_remote_paths(tmp_path: Path) -> None:
    local = write(CSVLogger(tmp_path), save_between=True)
    logger = CSVLogger("memory://bucket/runs")
    assert logger.log_dir == "memory://bucket/runs/lightning_logs/version_0"
    write(logger, save_between=True)
    memory = fsspec.filesystem("memory")
    for name in ("metrics.csv", "hparams.yaml"):
        assert memory.cat_file(f"/bucket/runs/lightning_logs/version_0/{name}") == Path(local, name).read_bytes()
    assert CSVLogger("memory://bucket/runs").version == 1


def test_hyperparameters_of_any_kind_are_plain_yaml(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    odd = {
        "module": torch.nn.ReLU(),
        "function": torch.nn.functional.relu,
        "type": torch.nn.Linear,
        "space": Namespace(a=1),
        "tuple": (1, 2),
        "tensor": torch.tensor(2.5),
        "path": tmp_path,
        "dtype": torch.float32,
        3: {"key": {1}},
    }
    logger.log_hyperparams(Namespace(**{str(key): value for key, value in odd.items()}))
    logger.save()
    loaded = yaml.safe_load(Path(logger.log_dir, "hparams.yaml").read_text())
    assert loaded == {
        "module": "ReLU()",
        "function": "torch.nn.functional.relu",
        "type": "torch.nn.modules.linear.Linear",
        "space": {"a": 1},
        "tuple": [1, 2],
        "tensor": 2.5,
        "path": str(tmp_path),
        "dtype": "torch.float32",
        "3": {"key": [1]},
    }


CRASH = """
import os, signal, sys
from unstuck.loggers import CSVLogger
logger = CSVLogger(sys.argv[1])
for step in range(40):
    logger.log_metrics({"loss": 1 / (step + 1), **({"late": step} if step > 20 else {})}, step)
    if step != 39:
        logger.save()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", CRASH, tmp_path], check=False)
    assert result.returncode == -signal.SIGKILL
    directory = tmp_path / "lightning_logs" / "version_0"
    rows = read(directory / "metrics.csv")
    assert [float(row["loss"]) for row in rows] == [1 / (step + 1) for step in range(39)]
    assert [row["late"] for row in rows] == [""] * 21 + [str(step) for step in range(21, 39)]
    assert [path.name for path in directory.iterdir()] == ["metrics.csv"]


def test_only_rank_zero_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    logger = CSVLogger(tmp_path)
    write(logger, save_between=True)
    logger.experiment["x"] = logger.experiment.anything(1)
    assert list(tmp_path.iterdir()) == []


def test_the_experiment_is_called_as_lightnings(tmp_path: Path) -> None:
    own, other = CSVLogger(tmp_path / "a").experiment, reference.CSVLogger(tmp_path / "b").experiment
    assert type(own).__name__ == type(other).__name__
    assert {name for name in dir(other) if not name.startswith("_")} <= {*dir(own), "metrics_keys"}


@pytest.mark.parametrize("logged", [True, False])
def test_without_hyperparameters_there_is_no_file_of_them(logged: bool, tmp_path: Path) -> None:
    found = []
    for logger in (CSVLogger(tmp_path / "ours"), reference.CSVLogger(tmp_path / "theirs")):
        if logged:
            logger.log_hyperparams({})
        logger.log_metrics({"loss": 1.0}, step=0)
        logger.save()
        found.append(sorted(os.listdir(logger.log_dir)))
    assert found[0] == found[1] == [*(["hparams.yaml"] if logged else []), "metrics.csv"]
