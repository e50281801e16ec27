"""ModelCheckpoint where it is more careful than Lightning's, and what surrounds it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, base_module, loader
from unstuck.callbacks import Checkpoint, ModelCheckpoint
from unstuck.errors import CheckpointError, MisconfigurationException
from unstuck.loggers import CSVLogger
from unstuck.strategies.single_device import SingleDeviceStrategy
from unstuck.trainer.checkpoints.files import load_file

Module: Any = base_module(OURS)


def train(*callbacks: Any, module: Any = None, ckpt_path: Any = None, val: bool = True, **keywords: Any) -> Any:
    torch.manual_seed(2)
    trainer = unstuck.Trainer(
        **{**QUIET, "enable_checkpointing": True, "max_epochs": 3, **keywords}, callbacks=list(callbacks)
    )
    made = (module or Module)()
    trainer.fit(made, loader(), loader(8, shuffle=False) if val else None, ckpt_path=ckpt_path)
    return trainer


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.ckpt"))


# Weights that aren't finite.


class Diverges(Module):  # type: ignore[misc]
    """Its weights turn NaN in the second epoch."""

    def on_train_batch_end(self, *_: Any) -> None:
        if self.current_epoch == 1:
            with torch.no_grad():
                self.net[0].weight[0, 0] = float("nan")


@pytest.mark.parametrize(
    "arguments",
    [
        {"save_last": True},
        {"save_top_k": 1, "monitor": "step", "mode": "max", "save_last": "link"},
        {"save_top_k": -1, "save_last": True},
        {"filename": "model", "enable_version_counter": False, "save_last": True},
        {"every_n_train_steps": 3, "save_last": True},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:numerics")
def test_weights_that_arent_finite_replace_no_checkpoint(
    arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = ModelCheckpoint(dirpath=tmp_path, **arguments)
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match=r"aren't finite \(net\.0\.weight\)"):
        train(saver, module=Diverges)
    assert names(tmp_path)
    for path in tmp_path.glob("*.ckpt"):
        weights = load_file(path)["state_dict"]
        assert all(bool(weight.isfinite().all()) for weight in weights.values())
        assert load_file(path)["global_step"] <= 6
    assert Path(saver.best_model_path).exists() and Path(saver.last_model_path).exists()


def test_save_checkpoint_writes_beside_a_file_rather_than_over_it(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    trainer = train(max_epochs=1, enable_checkpointing=False)
    trainer.save_checkpoint(path)
    with torch.no_grad():
        trainer.lightning_module.net[0].bias[0] = float("inf")
    with pytest.warns(UserWarning, match=r"isn't replaced.*a-nonfinite\.ckpt"):
        trainer.save_checkpoint(path)
    assert names(tmp_path) == ["a-nonfinite.ckpt", "a.ckpt"]
    assert bool(load_file(path)["state_dict"]["net.0.bias"].isfinite().all())
    with pytest.warns(UserWarning, match="saved with weights that aren't finite"):
        trainer.save_checkpoint(tmp_path / "new.ckpt")


def test_masks_with_infinity_are_no_divergence(tmp_path: Path) -> None:
    class Masked(Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.full((3,), -float("inf")))
            self.frozen = nn.Parameter(torch.full((3,), -float("inf")), requires_grad=False)

    train(ModelCheckpoint(dirpath=tmp_path), module=Masked, max_epochs=1)
    assert names(tmp_path) == ["epoch=0-step=6.ckpt"]


def test_first_metric_that_is_nan_doesnt_stop_the_saving(tmp_path: Path) -> None:
    class Scores(Module):  # type: ignore[misc]
        def on_validation_epoch_end(self) -> None:
            self.log("score", [float("nan"), 2.0, 1.0][self.current_epoch])

    for mode, best in (("min", 1.0), ("max", 2.0)):
        saver = ModelCheckpoint(dirpath=tmp_path / mode, monitor="score", mode=mode)
        train(saver, module=Scores)
        assert float(saver.best_model_score) == best and Path(saver.best_model_path).exists()
        assert len(names(tmp_path / mode)) == 1


# How a fit ends.


def test_exception_is_the_one_that_is_raised_though_saving_fails(tmp_path: Path) -> None:
    class Fails(Module):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.global_step == 8:
                raise ValueError("the real one")
            return super().training_step(batch, batch_idx)

        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            if self.global_step == 8:
                raise CheckpointError("the second one")

    with pytest.raises(ValueError, match="the real one") as caught:
        train(ModelCheckpoint(dirpath=tmp_path, save_on_exception=True), module=Fails)
    assert any("the second one" in note for note in getattr(caught.value, "__notes__", ["the second one"]))
    assert names(tmp_path) == ["epoch=0-step=6.ckpt"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["training_step", "validation_step"])
def test_signal_ends_after_the_batch_with_hooks_and_a_checkpoint(
    number: signal.Signals, where: str, tmp_path: Path
) -> None:
    """The checkpoint is one of a complete step, and the run that goes on from it ends as one that ran through."""
    hooks: list[str] = []

    class Signalled(Module):  # type: ignore[misc]
        sends = True

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.sends and where == "training_step" and self.global_step == 8:
                os.kill(os.getpid(), number)
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            if self.sends and where == "validation_step" and self.current_epoch == 1 and batch_idx == 0:
                os.kill(os.getpid(), number)
            super().validation_step(batch, batch_idx)

    class Listens(unstuck.Callback):
        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            hooks.append(type(exception).__name__)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            hooks.append("on_train_end")

    def saver() -> Any:
        return ModelCheckpoint(dirpath=tmp_path, save_on_exception=True, every_n_epochs=0)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    class Resting(Signalled):
        sends = False

    with pytest.raises(SystemExit) as caught:
        train(saver(), Listens(), module=Signalled)
    assert caught.value.code == (1 if number == signal.SIGINT else 128 + number)
    assert hooks == ["KeyboardInterrupt" if number == signal.SIGINT else "TerminationRequested"]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    step = 9 if where == "training_step" else 12
    assert names(tmp_path) == [f"epoch=1-step={step}.ckpt"]
    resumed = train(saver(), module=Resting, ckpt_path=tmp_path / f"epoch=1-step={step}.ckpt")
    through = train(enable_checkpointing=False)
    for name, weight in through.lightning_module.state_dict().items():
        assert torch.equal(resumed.lightning_module.state_dict()[name], weight)


def test_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    class Hangs(Module):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.global_step == 3:
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(30)
            return super().training_step(batch, batch_idx)

    start = time.monotonic()
    with pytest.raises(SystemExit):
        train(ModelCheckpoint(dirpath=tmp_path, save_on_exception=True), module=Hangs)
    assert time.monotonic() - start < 20
    assert names(tmp_path) == ["epoch=0-step=3.ckpt"]


def test_interrupt_is_immediate_where_no_checkpoint_is_asked_for(tmp_path: Path) -> None:
    reached: list[int] = []

    class Interrupted(Module):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            reached.append(batch_idx)
            return super().training_step(batch, batch_idx)

    with pytest.raises(SystemExit):
        train(ModelCheckpoint(dirpath=tmp_path), module=Interrupted)
    assert reached == [] and names(tmp_path) == []


# Best, last, and what comes later.


def test_best_and_last_can_be_asked_for(tmp_path: Path) -> None:
    saver = ModelCheckpoint(dirpath=tmp_path, monitor="val_loss", save_top_k=2, save_last=True)
    trainer = train(saver)
    best = float(load_file(saver.best_model_path)["callbacks"][saver.state_key]["current_score"])
    (scores,) = trainer.validate(trainer.lightning_module, loader(8, shuffle=False), ckpt_path="best", verbose=False)
    assert scores["val_loss"] == pytest.approx(best) == pytest.approx(float(saver.best_model_score))
    assert trainer.ckpt_path == saver.best_model_path
    trainer.test(Module(), loader(8, shuffle=False), ckpt_path="last", verbose=False)
    assert trainer.ckpt_path == str(tmp_path / "last.ckpt")
    trainer.predict(dataloaders=loader(8, shuffle=False))
    assert trainer.ckpt_path == saver.best_model_path, "without a module the best weights are used"
    again = train(ModelCheckpoint(dirpath=tmp_path, monitor="val_loss", save_last=True), ckpt_path="last", max_epochs=4)
    assert again.global_step == 24


def test_what_cant_be_found(tmp_path: Path) -> None:
    module, batches = Module(), loader(8, shuffle=False)
    with pytest.raises(ValueError, match="no `ModelCheckpoint`"):
        unstuck.Trainer(**QUIET, max_epochs=1).test(module, batches, ckpt_path="best")
    saving = {**QUIET, "enable_checkpointing": True, "default_root_dir": tmp_path}
    with pytest.raises(ValueError, match="nothing was saved yet"):
        unstuck.Trainer(**saving, max_epochs=1).test(module, batches, ckpt_path="best")
    with pytest.raises(ValueError, match="fast_dev_run"):
        unstuck.Trainer(**saving, fast_dev_run=True).test(module, batches, ckpt_path="best")
    with pytest.raises(ValueError, match=r"scheduler.*save_on_exception"):
        unstuck.Trainer(**saving, max_epochs=1).fit(module, batches, batches, ckpt_path="hpc")
    with pytest.raises(ValueError, match="registries"):
        unstuck.Trainer(**saving, max_epochs=1).fit(module, batches, batches, ckpt_path="registry")
    with pytest.raises(TypeError, match="got 3"):
        unstuck.Trainer(**saving, max_epochs=1).fit(module, batches, batches, ckpt_path=3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=r"nothing\.ckpt"):
        unstuck.Trainer(**saving, max_epochs=1).fit(module, batches, batches, ckpt_path=tmp_path / "nothing.ckpt")
    trainer = unstuck.Trainer(**saving, max_epochs=1)
    with pytest.warns(UserWarning, match="no last checkpoint"):
        trainer.fit(module, batches, batches, ckpt_path="last")
    assert trainer.global_step == 2


def test_resuming_goes_on_with_the_best_and_keeps_the_file_it_came_from(tmp_path: Path) -> None:
    first = ModelCheckpoint(dirpath=tmp_path, monitor="loss_epoch", save_top_k=2)
    train(first, max_epochs=2)
    start = first.kth_best_model_path
    second = ModelCheckpoint(dirpath=tmp_path, monitor="loss_epoch", save_top_k=2)
    train(second, ckpt_path=start, max_epochs=6)
    assert Path(start).exists()
    assert len(second.best_k_models) == 2 and float(second.best_model_score) <= float(first.best_model_score)
    elsewhere = ModelCheckpoint(dirpath=tmp_path / "new", monitor="loss_epoch", save_top_k=2)
    with pytest.warns(UserWarning, match="only `best_model_path`"):
        train(elsewhere, ckpt_path=second.best_model_path, max_epochs=7)
    assert len(elsewhere.best_k_models) <= 2 and all("new" in path for path in elsewhere.best_k_models)


def test_a_new_run_in_the_same_folder_overwrites_nothing(tmp_path: Path) -> None:
    for _ in range(3):
        train(ModelCheckpoint(dirpath=tmp_path, save_last=True), max_epochs=1)
    assert names(tmp_path) == [
        "epoch=0-step=6-v1.ckpt",
        "epoch=0-step=6-v2.ckpt",
        "epoch=0-step=6.ckpt",
        "last-v1.ckpt",
        "last-v2.ckpt",
        "last.ckpt",
    ]


def test_dry_run_saves_nothing(tmp_path: Path) -> None:
    saver = ModelCheckpoint(dirpath=tmp_path, save_last=True)
    train(saver, fast_dev_run=True)
    assert saver.best_model_path == "" and names(tmp_path) == []


def test_yaml_of_the_best(tmp_path: Path) -> None:
    saver = ModelCheckpoint(dirpath=tmp_path, monitor="val_loss", save_top_k=2)
    train(saver)
    saver.to_yaml()
    saver.to_yaml(tmp_path / "other.yaml")
    for name in ("best_k_models.yaml", "other.yaml"):
        written = yaml.safe_load((tmp_path / name).read_text())
        assert written == {path: float(value) for path, value in saver.best_k_models.items()}


def test_address_of_another_filesystem() -> None:
    folder = "memory://runs/a"
    saver = ModelCheckpoint(dirpath=folder, monitor="val_loss", save_top_k=1, save_last=True)
    trainer = train(saver)
    assert saver.best_model_path.startswith(folder)
    trainer.validate(Module(), loader(8, shuffle=False), ckpt_path="best", verbose=False)
    again = train(ModelCheckpoint(dirpath=folder, save_last=True, monitor="val_loss"), ckpt_path="last", max_epochs=4)
    assert again.ckpt_path.startswith(folder) and again.global_step == 24


# The Trainer's own, and folders.


def test_one_is_there_by_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keywords = {**QUIET, "default_root_dir": tmp_path}
    keywords.pop("enable_checkpointing")
    trainer = train(**keywords, enable_checkpointing=None)
    assert trainer.checkpoint_callback.best_model_path == str(tmp_path / "checkpoints" / "epoch=2-step=18.ckpt")
    assert trainer.callbacks[-1] is trainer.checkpoint_callback, "it comes last"
    with caplog.at_level(logging.INFO, logger="unstuck"):
        train(**keywords, enable_checkpointing=None)
    assert any("is not empty" in message for message in caplog.messages), "told, without a warning"
    assert unstuck.Trainer(**keywords, enable_checkpointing=False).checkpoint_callbacks == []
    assert unstuck.Trainer(barebones=True, accelerator="cpu").checkpoint_callbacks == []
    with pytest.raises(MisconfigurationException, match="contradicts the ModelCheckpoint"):
        unstuck.Trainer(**keywords, enable_checkpointing=False, callbacks=ModelCheckpoint())


def test_folder_of_the_logger(tmp_path: Path) -> None:
    told: list[str] = []

    class Logger(CSVLogger):
        def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
            told.append(checkpoint_callback.best_model_path)

    logger = Logger(tmp_path, name="name", version=3)
    trainer = train(ModelCheckpoint(), logger=logger, log_every_n_steps=1)
    expected = tmp_path / "name" / "version_3" / "checkpoints" / "epoch=2-step=18.ckpt"
    assert trainer.checkpoint_callback.best_model_path == str(expected) == told[-1] and len(told) == 3


def test_callbacks_that_save_come_last_and_in_a_subclass_too(tmp_path: Path) -> None:
    class Own(Checkpoint):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.save_checkpoint(tmp_path / f"{trainer.current_epoch}.ckpt", weights_only=True)

    other = unstuck.Callback()
    trainer = train(Own(), other, max_epochs=2)
    assert trainer.callbacks == [other, trainer.checkpoint_callback]
    assert names(tmp_path) == ["0.ckpt", "1.ckpt"]
    assert "optimizer_states" not in load_file(tmp_path / "1.ckpt")
    with pytest.raises(CheckpointError, match="only the model"):
        train(Own(), ckpt_path=tmp_path / "1.ckpt")


def test_a_batch_end_that_needs_nothing_isnt_told() -> None:
    assert ModelCheckpoint().idle_between_batches
    assert not ModelCheckpoint(every_n_train_steps=3).idle_between_batches

    class Own(ModelCheckpoint):
        def on_train_batch_end(self, *_: Any) -> None:
            """Does something."""

    assert not Own().idle_between_batches


# Links to the newest checkpoint, and addresses of local files.


@pytest.mark.parametrize(
    "arguments",
    [
        {"every_n_train_steps": 1},
        {"every_n_train_steps": 1, "monitor": "step", "mode": "max", "save_top_k": 2},
        {"every_n_epochs": 1},
    ],
)
def test_the_link_leads_to_a_file_at_every_moment(
    arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also just after a checkpoint was removed, where the process may be killed."""
    removed: list[str] = []
    remove = SingleDeviceStrategy.remove_checkpoint

    def watched(self: Any, filepath: Any) -> None:
        remove(self, filepath)
        removed.append(str(filepath))
        assert (tmp_path / "last.ckpt").exists()

    monkeypatch.setattr(SingleDeviceStrategy, "remove_checkpoint", watched)
    train(ModelCheckpoint(dirpath=tmp_path, save_last="link", **arguments))
    assert removed
    assert len(names(tmp_path)) == 1 + arguments.get("save_top_k", 1)


def test_a_link_that_leads_nowhere_isnt_no_checkpoint(tmp_path: Path) -> None:
    def saver() -> ModelCheckpoint:
        return ModelCheckpoint(dirpath=tmp_path, monitor="step", mode="max", save_top_k=2, save_last="link")

    train(saver())
    (tmp_path / "epoch=2-step=18.ckpt").unlink()
    (tmp_path / "half.ckpt").write_bytes((tmp_path / "epoch=1-step=12.ckpt").read_bytes()[:-100])
    with pytest.warns(UserWarning, match=r"epoch=2-step=18\.ckpt', which is gone.*epoch=1-step=12\.ckpt"):
        resumed = train(saver(), ckpt_path="last", max_epochs=2)
    assert resumed.ckpt_path == str(tmp_path / "epoch=1-step=12.ckpt")
    for path in tmp_path.glob("*.ckpt"):
        if not path.is_symlink():
            path.unlink()
    with pytest.raises(CheckpointError, match="which is gone, and there is no other checkpoint"):
        train(saver(), ckpt_path="last")


def test_address_of_a_local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saver = ModelCheckpoint(dirpath=f"file://{tmp_path}/a", save_last=True)
    train(saver)
    assert names(tmp_path / "a") == ["epoch=2-step=18.ckpt", "last.ckpt"]
    assert saver.best_model_path == str(tmp_path / "a" / "epoch=2-step=18.ckpt")
    resumed = f"file://{saver.best_model_path}"
    train(ModelCheckpoint(dirpath=tmp_path / "a"), ckpt_path=resumed, max_epochs=4)
    assert "epoch=2-step=18.ckpt" in names(tmp_path / "a"), "the run was resumed from it"
    train(default_root_dir=f"file://{tmp_path}/b", max_epochs=1)
    assert names(tmp_path / "b" / "checkpoints") == ["epoch=0-step=6.ckpt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
