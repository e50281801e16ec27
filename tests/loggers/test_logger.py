"""The base class, the logger that does nothing, and the default."""

import inspect
from pathlib import Path

import lightning.pytorch.loggers as reference
import pytest
from lightning.pytorch.loggers.logger import DummyLogger as ReferenceDummy

import unstuck.loggers as ours
from unstuck.loggers import CSVLogger, DummyLogger, Logger, TensorBoardLogger, configure_loggers, default_logger
from unstuck.loggers import defaults as defaults_module


@pytest.mark.parametrize("name", ["Logger", "CSVLogger", "TensorBoardLogger"])
def test_the_interface_is_lightnings(name: str) -> None:
    own, other = getattr(ours, name), getattr(reference, name)
    for member in dir(other):
        if member.startswith("_") or member == "LOGGER_JOIN_CHAR":
            continue
        assert hasattr(own, member), member
        if callable(getattr(other, member)):
            expected = list(inspect.signature(getattr(other, member)).parameters)
            assert list(inspect.signature(getattr(own, member)).parameters)[: len(expected)] == expected, member
    constructor = inspect.signature(other.__init__).parameters
    if name != "Logger":
        assert {key: value.default for key, value in inspect.signature(own.__init__).parameters.items()} == {
            key: value.default for key, value in constructor.items()
        }


class Minimal(Logger):
    name = "minimal"
    version = 1

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.last = metrics, step

    def log_hyperparams(self, params: object, *args: object, **kwargs: object) -> None:
        self.params = params


def test_a_logger_of_the_users_own_needs_four_things() -> None:
    logger = Minimal()
    assert (logger.save_dir, logger.log_dir, logger.root_dir, logger.group_separator) == (None, None, None, "/")
    logger.finalize("success")
    with pytest.raises(TypeError, match="abstract"):
        Logger()  # type: ignore[abstract]


def test_the_dummy_takes_everything() -> None:
    logger = DummyLogger()
    logger.log_metrics({"a": 1.0}, step=3)
    logger.log_hyperparams({"a": 1})
    logger.log_image("x", images=[1])
    assert logger.experiment.anything(1, b=2) is None
    assert logger.experiment[0].add(1) is None
    assert (logger[0], logger.name, logger.version) == (logger, ReferenceDummy().name, ReferenceDummy().version)


def test_which_loggers_are_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    csv = CSVLogger(tmp_path)
    assert configure_loggers(None, str(tmp_path)) == []
    assert configure_loggers(False, str(tmp_path)) == []
    assert configure_loggers(csv, str(tmp_path)) == [csv]
    assert configure_loggers((csv, csv), str(tmp_path)) == [csv, csv]
    (default,) = configure_loggers(True, str(tmp_path))
    assert isinstance(default, TensorBoardLogger)
    assert default.save_dir == str(tmp_path)
    monkeypatch.setattr(defaults_module, "tensorboard_is_installed", lambda: False)
    assert isinstance(default_logger(str(tmp_path)), CSVLogger)


def test_a_slurm_job_gives_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1234")
    assert default_logger(str(tmp_path)).version == 1234
    monkeypatch.setenv("SLURM_JOB_NAME", "interactive")
    assert default_logger(str(tmp_path)).version == 0
