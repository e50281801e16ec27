"""ModelCheckpoint saves, keeps, removes and names what Lightning's does, at the same moments."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch

from tests.trainer.side_by_side import OURS, QUIET, THEIRS, Library, base_module, loader
from unstuck.callbacks import ModelCheckpoint

CALLBACKS: dict[str, Any] = {"ours": ModelCheckpoint, "theirs": pl.callbacks.ModelCheckpoint}


def outcome(
    library: Library, folder: Path, callbacks: list[dict[str, Any]], scores: Any = None, **keywords: Any
) -> dict[str, Any]:
    """Trains with checkpoint callbacks and tells what they did.

    Args:
        library: which of the two.
        folder: where the callbacks save.
        callbacks: arguments of each.
        scores: the values of the metric "score", one per validation (or training step, where nothing is validated).
        keywords: the Trainer's.
    """
    calls: list[Any] = []

    class Module(base_module(library)):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            if scores is not None:
                self.log("step_score", float(scores[self.global_step % len(scores)]))
            return loss

        def on_validation_epoch_end(self) -> None:
            if scores is not None and not self.trainer.sanity_checking:
                self.log("score", torch.tensor(float(scores[self.times % len(scores)])))
                self.times += 1

        times = 0

    torch.manual_seed(11)
    module = Module()
    made = [CALLBACKS[library.name](**{"dirpath": folder, **arguments}) for arguments in callbacks]
    trainer = library.Trainer(
        **{**QUIET, "enable_checkpointing": True, "max_epochs": 3, "default_root_dir": folder, **keywords},
        callbacks=made,
    )
    save = trainer.save_checkpoint

    def record(path: Any, *args: Any, **kwargs: Any) -> None:
        stage = trainer.state.stage
        calls.append(
            (relative(path, folder), trainer.global_step, trainer.current_epoch, getattr(stage, "value", stage))
        )
        save(path, *args, **kwargs)

    trainer.save_checkpoint = record
    error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            trainer.fit(module, loader(), loader(8, shuffle=False))
        except Exception as raised:
            error = type(raised).__name__
    return {
        "calls": calls,
        "files": sorted(relative(path, folder) for path in folder.rglob("*.ckpt")),
        "links": sorted(os.readlink(path) for path in folder.rglob("*.ckpt") if path.is_symlink()),
        "error": error,
        "states": [state(callback, folder) for callback in made],
        "keys": [callback.state_key for callback in made],
    }


def relative(path: Any, folder: Path) -> str:
    return os.path.relpath(path, os.path.realpath(folder)) if path else ""


def state(callback: Any, folder: Path) -> dict[str, Any]:
    values = callback.state_dict()
    for name in ("best_model_path", "kth_best_model_path", "last_model_path", "dirpath"):
        values[name] = relative(values[name], folder)
    values["best_k_models"] = {relative(path, folder): float(value) for path, value in values["best_k_models"].items()}
    return {name: float(value) if isinstance(value, torch.Tensor) else value for name, value in values.items()}


SCORES = [3.0, 1.0, float("nan"), 2.0, 0.5, 4.0, 0.7]
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "default": ([{}], {}),
    "all": ([{"save_top_k": -1}], {}),
    "none": ([{"save_top_k": 0}], {}),
    "none but last": ([{"save_top_k": 0, "save_last": True}], {}),
    "last": ([{"save_last": True}], {}),
    "link": ([{"save_last": "link"}], {}),
    "link of all": ([{"save_last": "link", "save_top_k": -1}], {}),
    "link without top k": ([{"save_last": "link", "save_top_k": 0}], {}),
    "monitored": ([{"monitor": "score"}], {}),
    "top 2": ([{"monitor": "score", "save_top_k": 2}], {"max_epochs": 6}),
    "top 2 highest": ([{"monitor": "score", "save_top_k": 2, "mode": "max", "save_last": True}], {"max_epochs": 6}),
    "all monitored": ([{"monitor": "score", "save_top_k": -1}], {}),
    "steps": ([{"every_n_train_steps": 4, "save_top_k": -1}], {}),
    "steps and last": ([{"every_n_train_steps": 4, "save_last": True}], {}),
    "steps, monitored": ([{"every_n_train_steps": 4, "monitor": "step_score", "save_top_k": 2}], {}),
    "steps, accumulated": ([{"every_n_train_steps": 2, "save_top_k": -1}], {"accumulate_grad_batches": 2}),
    "steps, value of the validation": (
        [{"every_n_train_steps": 4, "monitor": "score", "save_top_k": -1}],
        {"val_check_interval": 2},
    ),
    "steps at the epoch's end": ([{"every_n_train_steps": 6, "monitor": "val_loss", "save_top_k": -1}], {}),
    "every 2 epochs": ([{"every_n_epochs": 2, "save_top_k": -1}], {"max_epochs": 5}),
    "every 2 epochs and last": ([{"every_n_epochs": 2, "save_last": True}], {"max_epochs": 5}),
    "no epochs but last": ([{"every_n_epochs": 0, "save_last": True}], {}),
    "validation twice": ([{"save_top_k": -1}], {"val_check_interval": 0.5}),
    "validation twice, monitored": ([{"monitor": "score", "save_top_k": 2}], {"val_check_interval": 0.5}),
    "validation every 2 epochs": ([{"save_top_k": -1}], {"check_val_every_n_epoch": 2, "max_epochs": 5}),
    "validation every 2 epochs, epoch's end": (
        [{"save_top_k": -1, "save_on_train_epoch_end": True}],
        {"check_val_every_n_epoch": 2, "max_epochs": 5},
    ),
    "after validation": ([{"save_top_k": -1, "save_on_train_epoch_end": False}], {}),
    "no validation": ([{"save_top_k": -1}], {"limit_val_batches": 0}),
    "time": ([{"train_time_interval": timedelta(0), "save_top_k": -1}], {"max_epochs": 1}),
    "template": ([{"filename": "{epoch:02d}-{val_loss:.2f}-{missing}", "save_top_k": -1}], {}),
    "template without names": (
        [{"filename": "e{epoch}-l{val_loss:.2f}", "auto_insert_metric_name": False, "save_top_k": -1}],
        {},
    ),
    "same name": ([{"filename": "model", "save_top_k": -1}], {}),
    "same name, top 2": ([{"filename": "model", "save_top_k": 2, "monitor": "score"}], {"max_epochs": 6}),
    "same name, no versions": ([{"filename": "model", "save_top_k": 1, "enable_version_counter": False}], {}),
    "weights only": ([{"save_weights_only": True, "save_last": True}], {}),
    "several": (
        [
            {"monitor": "score", "filename": "best-{score:.1f}"},
            {"every_n_train_steps": 5, "filename": "step-{step}", "save_top_k": -1, "save_last": True},
        ],
        {},
    ),
    "unknown monitor": ([{"monitor": "nothing"}], {}),
    "unknown monitor, steps": ([{"monitor": "nothing", "every_n_train_steps": 4}], {}),
    "max steps": ([{"save_top_k": -1}], {"max_steps": 8}),
    "dry run": ([{"save_top_k": -1}], {"fast_dev_run": 2}),
    "sanity check": ([{"save_top_k": -1, "save_on_train_epoch_end": False}], {"num_sanity_val_steps": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_same_files_at_the_same_moments(case: str, tmp_path: Path) -> None:
    callbacks, keywords = CASES[case]
    ours = outcome(OURS, tmp_path / "ours", callbacks, SCORES, **keywords)
    theirs = outcome(THEIRS, tmp_path / "theirs", callbacks, SCORES, **keywords)
    for key, value in theirs.items():
        assert repr(ours[key]) == repr(value), key
