"""The TensorBoard logger: what a reader of the event files finds."""

import copy
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch.loggers as reference
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from unstuck.loggers import TensorBoardLogger
from unstuck.loggers import tensorboard as module_under_test

PARAMS = {"lr": 0.1, "nested": {"name": "x", "layers": [1, 2]}, "none": None, "n": 3, "flag": True}


def events(directory: str | Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    return accumulator


def scalars(directory: str | Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = events(directory)
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def hyperparameters(directory: str | Path) -> dict[str, Any]:
    metadata = events(directory).summary_metadata["_hparams_/session_start_info"]
    content = plugin_data_pb2.HParamsPluginData.FromString(metadata.plugin_data.content)
    return {
        name: getattr(value, value.WhichOneof("kind")) for name, value in content.session_start_info.hparams.items()
    }


def write(logger: Any) -> Path:
    logger.log_hyperparams(PARAMS)
    logger.log_metrics({"a": torch.tensor(1.5), "b": 2}, 4)
    logger.log_metrics({"several": {"x": 1.0, "y": 2.0}}, 5)
    logger.log_metrics({"a": 2.5}, 9)
    logger.save()
    logger.finalize("success")
    return Path(logger.log_dir)


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"name": "exp", "version": 3, "sub_dir": "sub"},
        {"name": None, "version": "mine", "prefix": "p"},
        {"default_hp_metric": False},
    ],
)
def test_files_hold_what_those_of_lightning_hold(tmp_path: Path, keywords: dict[str, Any]) -> None:
    ours = write(TensorBoardLogger(tmp_path / "ours", **keywords))
    theirs = write(reference.TensorBoardLogger(tmp_path / "theirs", **keywords))
    assert ours.relative_to(tmp_path / "ours") == theirs.relative_to(tmp_path / "theirs")
    assert scalars(ours) == scalars(theirs)
    assert (ours / "hparams.yaml").read_text() == (theirs / "hparams.yaml").read_text()
    key = "_hparams_/session_start_info"
    assert (key in events(ours).summary_metadata) == (key in events(theirs).summary_metadata)
    if key in events(ours).summary_metadata:
        assert hyperparameters(ours) == hyperparameters(theirs)
    assert sorted(path.name for path in ours.iterdir() if path.is_dir()) == sorted(
        path.name for path in theirs.iterdir() if path.is_dir()
    )


def test_attributes_are_those_of_lightning(tmp_path: Path) -> None:
    for keywords in ({}, {"name": "exp", "version": 3, "sub_dir": "s"}, {"name": None}, {"version": "v"}):
        ours, theirs = TensorBoardLogger(tmp_path, **keywords), reference.TensorBoardLogger(tmp_path, **keywords)
        for name in ("name", "version", "save_dir", "root_dir", "log_dir", "sub_dir"):
            assert getattr(ours, name) == getattr(theirs, name), name


def test_hyperparameters_come_with_the_metrics_that_are_given(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    logger.log_hyperparams({"lr": 1}, {"best": 0.5}, step=7)
    logger.finalize("success")
    assert scalars(logger.log_dir) == {"best": [(7, 0.5)]}
    assert hyperparameters(logger.log_dir) == {"lr": 1}


def test_variables_in_the_directory_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_NAME", "seven")
    logger = TensorBoardLogger(tmp_path, sub_dir="$RUN_NAME")
    assert logger.log_dir == str(tmp_path / "lightning_logs" / "version_0" / "seven")


def test_what_is_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'text' is a str"):
        TensorBoardLogger(tmp_path).log_metrics({"text": "hello"}, 0)


class Net(torch.nn.Module):
    example_input_array: Any = torch.zeros(1, 3)

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.mark.parametrize("wanted", [False, True])
def test_the_graph_is_written_if_wanted(tmp_path: Path, wanted: bool) -> None:
    logger = TensorBoardLogger(tmp_path, log_graph=wanted)
    logger.log_graph(Net())
    logger.log_metrics({"a": 1}, 0)
    logger.finalize("success")
    assert events(logger.log_dir).Tags()["graph"] is wanted


def test_a_graph_without_an_example_is_told(tmp_path: Path) -> None:
    net = Net()
    net.example_input_array = None
    with pytest.warns(UserWarning, match="example_input_array.*NoneType"):
        TensorBoardLogger(tmp_path, log_graph=True).log_graph(net)


class Untraceable(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no tracing here")


def test_a_graph_that_cannot_be_traced_stops_nothing(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="no tracing here"):
        TensorBoardLogger(tmp_path, log_graph=True).log_graph(Untraceable())


def test_a_copy_opens_its_own_file(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="n")
    logger.log_metrics({"a": 1.0}, 0)
    for other in (copy.deepcopy(logger), pickle.loads(pickle.dumps(logger))):
        assert (other.version, other.name, other._experiment) == (0, "n", None)
    logger.finalize("success")


def test_a_missing_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_under_test, "tensorboard_is_installed", lambda: False)
    with pytest.raises(ModuleNotFoundError, match="pip install tensorboard"):
        TensorBoardLogger(tmp_path)


CRASH = """
import os, signal, sys
from unstuck.loggers import TensorBoardLogger
logger = TensorBoardLogger(sys.argv[1])
logger.log_hyperparams({"lr": 0.5})
for step in range(20):
    logger.log_metrics({"loss": float(step)}, step)
    logger.save()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", CRASH, tmp_path], check=False)
    assert result.returncode == -signal.SIGKILL
    directory = tmp_path / "lightning_logs" / "version_0"
    assert scalars(directory)["loss"] == [(step, float(step)) for step in range(20)]
    assert yaml.safe_load((directory / "hparams.yaml").read_text()) == {"lr": 0.5}


def test_only_rank_zero_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    logger = TensorBoardLogger(tmp_path)
    write(logger)
    logger.experiment.add_scalar("a", 1, 2)
    assert list(tmp_path.iterdir()) == []
