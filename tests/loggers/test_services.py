"""Loggers that write to services' clients, each against the real client without a network."""

import json
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.trainer.side_by_side import OURS, base_module, run
from unstuck.callbacks import GradientMonitor
from unstuck.errors import MisconfigurationException
from unstuck.loggers import CometLogger, CSVLogger, MLFlowLogger, NeptuneLogger, TensorBoardLogger, WandbLogger
from unstuck.loggers import optional as optional_libraries
from unstuck.loggers.checkpoint_files import describe, new_checkpoint_files

pytestmark = [
    pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning"),
    # What the clients do inside is their own affair.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def with_hparams(library: Any) -> Any:
    class Configured(base_module(library)):  # type: ignore[misc]
        def __init__(self, width: int = 16, optimizer: dict[str, Any] | None = None) -> None:
            super().__init__()
            self.save_hyperparameters()

    return Configured(optimizer={"lr": 0.1, "betas": (0.9, 0.99)})


LOGGERS: dict[str, tuple[type[Any], dict[str, Any], str, str]] = {
    "WandbLogger": (WandbLogger, {}, "wandb", "wandb"),
    "MLFlowLogger": (MLFlowLogger, {}, "mlflow", "mlflow"),
    "CometLogger": (CometLogger, {"online": False}, "comet_ml", "comet"),
    "NeptuneLogger": (NeptuneLogger, {"mode": "offline"}, "neptune_scale", "neptune"),
}


@pytest.mark.parametrize("name", LOGGERS)
def test_missing_library_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls, options, library, extra = LOGGERS[name]
    monkeypatch.setattr(optional_libraries.importlib.util, "find_spec", lambda library: None)
    with pytest.raises(ModuleNotFoundError, match=rf"{name}.*{library}.*unstuck\[{extra}\]"):
        cls(**options)


def test_extras_are_in_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    for _, _, library, extra in LOGGERS.values():
        requirement = re.search(rf"^{extra} = \[\"([a-z_-]+)", text, re.MULTILINE)
        assert requirement is not None and library.replace("_", "-").split("-")[0] in requirement.group(1)


def test_importing_the_loggers_imports_no_client() -> None:
    code = "import sys, unstuck.loggers; print([n for n in ('wandb', 'mlflow', 'comet_ml') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# MLflow.


@pytest.fixture
def files_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


@pytest.mark.usefixtures("files_allowed")
def test_mlflow_has_everything(tmp_path: Path) -> None:
    logger = MLFlowLogger("tests", run_name="one", save_dir=str(tmp_path), tags={"a": "b"}, prefix="p")
    assert logger.save_dir == str(tmp_path)
    run(OURS, with_hparams, max_epochs=2, logger=logger, log_every_n_steps=2)
    client = logger.experiment
    found = client.get_run(logger.version)
    assert found.data.params == {"width": "16", "optimizer/lr": "0.1", "optimizer/betas": "[0.9, 0.99]"}
    assert (found.data.tags["a"], found.info.run_name, found.info.status) == ("b", "one", "FINISHED")
    history = client.get_metric_history(logger.run_id, "p-loss_step")
    assert [metric.step for metric in history] == [1, 3, 5, 7, 9, 11]
    assert client.get_experiment(logger.name).name == "tests"
    following = MLFlowLogger(tracking_uri=f"file:{tmp_path}", run_id=logger.run_id)
    following.log_metrics({"more": torch.tensor(2.0)}, 5)
    assert following.experiment_id == logger.experiment_id
    assert client.get_run(logger.run_id).data.metrics["more"] == 2.0
    assert pickle.loads(pickle.dumps(logger)).run_id == logger.run_id


@pytest.mark.usefixtures("files_allowed")
def test_mlflow_takes_odd_values(tmp_path: Path) -> None:
    logger = MLFlowLogger(save_dir=str(tmp_path))
    with pytest.warns(UserWarning, match=r"becomes lossa"):
        logger.log_metrics({"loss[a]": 1.0})
    with pytest.warns(UserWarning, match="no text"):
        logger.log_metrics({"name": "x"})  # type: ignore[dict-item]
    logger.log_hyperparams({f"p{index}": "x" * 1000 for index in range(150)})
    params = logger.experiment.get_run(logger.run_id).data.params
    assert len(params) == 150 and len(params["p0"]) == 500
    logger.finalize("failed")
    assert logger.experiment.get_run(logger.run_id).info.status == "FAILED"


@pytest.mark.usefixtures("files_allowed")
@pytest.mark.parametrize("log_model", [True, "all", False])
def test_mlflow_keeps_checkpoints(log_model: Any, tmp_path: Path) -> None:
    logger = MLFlowLogger(save_dir=str(tmp_path / "runs"), log_model=log_model)
    callback = checkpoints(tmp_path)
    logger.after_save_checkpoint(callback)
    kept = [item.path for item in logger.experiment.list_artifacts(logger.run_id)]
    assert kept == (["best", "last"] if log_model == "all" else [])
    logger.finalize("success")
    kept = [item.path for item in logger.experiment.list_artifacts(logger.run_id)]
    assert kept == (["best", "last"] if log_model else [])
    if log_model:
        folder = logger.experiment.download_artifacts(logger.run_id, "best", str(tmp_path))
        assert Path(folder, "aliases.txt").read_text(encoding="utf-8") == "['latest', 'best']"
        assert "score: 0.5" in Path(folder, "metadata.yaml").read_text(encoding="utf-8")


def test_mlflow_takes_a_database_where_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    from mlflow import tracking
    from mlflow.exceptions import MlflowException

    asked: list[str] = []

    def client(uri: str) -> Any:
        asked.append(uri)
        if uri.startswith("file:"):
            raise MlflowException("no files")
        return SimpleNamespace()

    monkeypatch.setattr(tracking, "MlflowClient", client)
    logger = MLFlowLogger(save_dir=str(tmp_path))
    logger._open_store()
    assert asked == [f"file:{tmp_path}", f"sqlite:///{tmp_path}/mlflow.db"]
    assert logger._artifact_location == str(tmp_path / "artifacts")


@pytest.mark.usefixtures("files_allowed")
def test_mlflow_loggers_dont_disturb_each_other(tmp_path: Path) -> None:
    # MLflow notes its store in the environment, where the next logger would find it.
    first, second = MLFlowLogger(save_dir=str(tmp_path / "a")), MLFlowLogger(save_dir=str(tmp_path / "b"))
    assert first.run_id and second.run_id
    third = MLFlowLogger(save_dir=str(tmp_path / "c"))
    assert third.run_id and (tmp_path / "c").is_dir()
    assert MLFlowLogger(tracking_uri="http://somewhere").save_dir is None


# Checkpoints, for all of them.


BLOCK = 32768
ENVIRONMENT = dict(os.environ)  # as it was before MLflow put something there


def checkpoints(folder: Path) -> Any:
    for name in ("best", "last"):
        (folder / f"{name}.ckpt").write_bytes(name.encode())
    os.utime(folder / "best.ckpt", (1, 1))
    best, last = str(folder / "best.ckpt"), str(folder / "last.ckpt")
    return SimpleNamespace(
        best_model_path=best,
        last_model_path=last,
        best_model_score=torch.tensor(0.5),
        current_score=torch.tensor(0.7),
        best_k_models={best: torch.tensor(0.5), str(folder / "gone.ckpt"): torch.tensor(1.0)},
        save_top_k=2,
        monitor="loss",
    )


def test_files_are_reported_once_and_again_when_they_change(tmp_path: Path) -> None:
    callback, seen = checkpoints(tmp_path), {}
    files = new_checkpoint_files(callback, seen)
    assert [(Path(file.path).name, file.score, file.aliases) for file in files] == [
        ("best.ckpt", 0.5, ("latest", "best")),
        ("last.ckpt", pytest.approx(0.7), ("latest",)),
    ]
    assert describe(files[0], callback)["SimpleNamespace"] == {"monitor": "loss", "save_top_k": 2}
    assert new_checkpoint_files(callback, seen) == []
    os.utime(tmp_path / "best.ckpt", (2, 2))
    assert [Path(file.path).name for file in new_checkpoint_files(callback, seen)] == ["best.ckpt"]


def test_real_checkpoints_are_found(tmp_path: Path) -> None:
    from unstuck.callbacks import ModelCheckpoint

    callback = ModelCheckpoint(tmp_path, monitor="loss", save_last=True)
    run(OURS, max_epochs=2, enable_checkpointing=True, callbacks=[callback])
    files = new_checkpoint_files(callback, {})
    assert {Path(file.path).name for file in files} == {Path(callback.best_model_path).name, "last.ckpt"}


# W&B.


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CONSOLE", "off")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))
    yield wandb
    wandb.finish()


def records(folder: Path) -> list[Any]:
    """What a run of W&B has on disk: a log of records in blocks, after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.rglob("*.wandb")
    content, position, whole, found = path.read_bytes(), 7, b"", []
    while position + 7 <= len(content):
        left = BLOCK - position % BLOCK
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", content[position : position + 7])
        whole += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            found.append(record)
            whole = b""
    return found


def complete(folder: Path) -> list[Any]:
    """The same of a run that was finished; W&B's own process still writes for a moment."""
    for _ in range(100):
        found = records(folder)
        if found and found[-1].WhichOneof("record_type") == "exit":
            return found
        time.sleep(0.1)
    raise AssertionError("the run isn't complete")


def history(found: list[Any]) -> list[dict[str, Any]]:
    """The rows of metrics among records."""
    rows = [record.history for record in found if record.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in rows]


def test_wandb_has_everything(tmp_path: Path, wandb: Any) -> None:
    logger = WandbLogger("run", tmp_path, offline=True, project="tests", prefix="p", tags=["a"])
    assert (logger.name, logger.version, logger.save_dir) == ("tests", None, str(tmp_path))
    run(
        OURS,
        with_hparams,
        max_epochs=2,
        logger=logger,
        log_every_n_steps=2,
        callbacks=[GradientMonitor(histogram=6)],
    )
    config = dict(logger.experiment.config)
    assert config == {"width": 16, "optimizer": {"lr": 0.1, "betas": [0.9, 0.99]}}
    version = logger.version
    assert version == logger.experiment.id
    logger.log_table("table", ["a"], [[1]], step=12)
    logger.log_text("text", ["a"], [["b"]])
    logger.log_image("image", [torch.zeros(3, 4, 4).numpy()], caption=["black"])
    with pytest.raises(ValueError, match="caption"):
        logger.log_image("image", [torch.zeros(3, 4, 4).numpy()], caption=[])
    with pytest.raises(TypeError, match="list"):
        logger.log_image("image", torch.zeros(3, 4, 4))  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(logger)).version == version
    wandb.finish()
    rows = history(complete(tmp_path))
    steps = [row["trainer/global_step"] for row in rows if "p-loss_step" in row]
    assert steps == [1, 3, 5, 7, 9, 11]
    assert sum("p-grad/net.0.weight/bins" in row for row in rows) == 2
    assert all(any(name.startswith(f"p-{kind}/") for row in rows for name in row) for kind in ("table", "image"))


def test_wandb_run_that_is_there_is_used(tmp_path: Path, wandb: Any) -> None:
    mine = wandb.init(mode="offline", dir=tmp_path, project="tests")
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    with pytest.warns(UserWarning, match="writes to it"):
        assert logger.experiment is mine
    assert WandbLogger(experiment=mine).experiment is mine


def test_wandb_uploads_nothing_offline() -> None:
    pytest.importorskip("wandb")
    with pytest.raises(MisconfigurationException, match="offline"):
        WandbLogger(offline=True, log_model=True)


@pytest.mark.parametrize("log_model", [True, "all"])
def test_wandb_makes_artifacts(log_model: Any, tmp_path: Path, wandb: Any) -> None:
    # A run of one's own may be offline; then the artifacts wait on disk to be synced.
    mine = wandb.init(mode="offline", dir=tmp_path / "runs", project="tests")
    logger = WandbLogger(experiment=mine, log_model=log_model)
    logger.after_save_checkpoint(checkpoints(tmp_path))
    logger.finalize("success")
    wandb.finish()
    requested = [
        record.artifact.name
        for record in complete(tmp_path / "runs")
        if record.WhichOneof("record_type") == "artifact" and record.artifact.type == "model"
    ]
    assert requested == [f"model-{mine.id}"] * 2


# Comet and Neptune.


def test_comet_has_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("comet_ml")
    code = f"""
        from tests.loggers.test_services import *
        logger = CometLogger(online=False, project="tests", prefix="p", offline_directory={str(tmp_path)!r})
        run(OURS, with_hparams, max_epochs=2, logger=logger, log_every_n_steps=2)
        assert logger.version == logger.experiment.get_key()
        assert pickle.loads(pickle.dumps(logger)).version == logger.version
        assert logger.save_dir == {str(tmp_path)!r}
    """
    in_another_process(code)
    import zipfile

    (archive,) = tmp_path.glob("*.zip")
    with zipfile.ZipFile(archive) as opened:
        messages = opened.read("messages.json").decode()
    steps = re.findall(r'"metricName":"p_loss_step".*?"step":(\d+)', messages)
    assert steps == ["1", "3", "5", "7", "9", "11"]
    assert "optimizer|lr" in messages


def test_neptune_has_everything(tmp_path: Path) -> None:
    pytest.importorskip("neptune_scale")
    code = f"""
        from tests.loggers.test_services import *
        logger = NeptuneLogger(mode="offline", project="a/b", log_directory={str(tmp_path)!r}, run_id="one")
        run(OURS, with_hparams, max_epochs=2, logger=logger, log_every_n_steps=2)
        assert logger.version == "one"
        logger.experiment.close()
    """
    in_another_process(code)
    assert any(path.stat().st_size for path in tmp_path.rglob("*.sqlite*"))


def in_another_process(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**ENVIRONMENT, "WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"},
        **options,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done


# Several at once, and a crash.


@pytest.mark.usefixtures("files_allowed")
def test_several_at_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loggers = [
        CSVLogger(tmp_path / "csv"),
        TensorBoardLogger(tmp_path / "tb"),
        MLFlowLogger(save_dir=str(tmp_path / "ml")),
    ]
    run(OURS, with_hparams, max_epochs=2, logger=loggers, log_every_n_steps=2)
    rows = (Path(loggers[0].log_dir) / "metrics.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + 6 + 2
    events = EventAccumulator(loggers[1].log_dir).Reload()
    assert [event.step for event in events.Scalars("loss_step")] == [1, 3, 5, 7, 9, 11]
    client, run_id = loggers[2].experiment, loggers[2].run_id
    assert len(client.get_metric_history(run_id, "loss_step")) == 6
    assert client.get_run(run_id).data.params["width"] == "16"


@pytest.mark.usefixtures("files_allowed")
def test_nothing_is_lost_at_a_crash(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from mlflow.tracking import MlflowClient
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    code = f"""
        import os, signal
        from tests.loggers.test_services import *

        class Killed(base_module(OURS)):
            def on_train_batch_start(self, batch, batch_idx):
                if self.trainer.global_step == 9:
                    os.kill(os.getpid(), signal.SIGKILL)

        loggers = [
            CSVLogger({str(tmp_path / "csv")!r}, version=0),
            TensorBoardLogger({str(tmp_path / "tb")!r}, version=0),
            MLFlowLogger(save_dir={str(tmp_path / "ml")!r}),
            WandbLogger(save_dir={str(tmp_path / "wandb")!r}, offline=True),
        ]
        run(OURS, lambda library: Killed(), max_epochs=2, logger=loggers, log_every_n_steps=1)
    """
    assert in_another_process(code).returncode == -signal.SIGKILL
    rows = (tmp_path / "csv" / "lightning_logs" / "version_0" / "metrics.csv").read_text(encoding="utf-8").splitlines()
    assert sum(bool(re.search(r"\d", row)) for row in rows[1:]) == 9 + 1  # nine steps and an epoch
    events = EventAccumulator(str(tmp_path / "tb" / "lightning_logs" / "version_0")).Reload()
    assert [event.step for event in events.Scalars("loss_step")] == list(range(9))
    client = MlflowClient(f"file:{tmp_path / 'ml'}")
    experiment = client.get_experiment_by_name("lightning_logs")
    (found,) = client.search_runs([experiment.experiment_id])
    assert len(client.get_metric_history(found.info.run_id, "loss_step")) == 9
    assert [row["trainer/global_step"] for row in history(records(tmp_path / "wandb")) if "loss_step" in row] == list(
        range(9)
    )
