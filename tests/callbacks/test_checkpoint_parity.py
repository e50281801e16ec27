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
from unstuck.errors import UnstuckError

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
        except (ValueError, RuntimeError, pl.utilities.exceptions.MisconfigurationException, UnstuckError) as raised:
            error = type(raised).__name__
    return {
        "calls": calls,
        "files": sorted(relative(path, folder) for path in folder.rglob("*.ckpt")),
        "links": sorted(os.readlink(path) for path in folder.rglob("*.ckpt") if path.is_symlink()),
        "error": error,
        "states": [state(callback, folder) for callback in made],
        "keys": [callback.state_key for callback in made],
        "saved": {relative(path, folder): saved_states(path, folder) for path in sorted(folder.rglob("*.ckpt"))},
    }


def saved_states(path: Path, folder: Path) -> dict[str, Any]:
    states = torch.load(path).get("callbacks", {})
    return {key: plain(values, folder) for key, values in states.items()}


def relative(path: Any, folder: Path) -> str:
    return os.path.relpath(path, os.path.realpath(folder)) if path else ""


def state(callback: Any, folder: Path) -> dict[str, Any]:
    return plain(callback.state_dict(), folder)


def plain(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A callback's state with paths from the folder on, and numbers."""
    for name in ("best_model_path", "kth_best_model_path", "last_model_path", "dirpath"):
        values[name] = relative(values[name], folder)
    values["best_k_models"] = {relative(path, folder): float(value) for path, value in values["best_k_models"].items()}
    return {name: float(value) if isinstance(value, torch.Tensor) else value for name, value in values.items()}


SCORES = [3.0, 1.0, float("nan"), 2.0, 0.5, 4.0, 0.7]
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "default": ([{}], {}),
    "all": ([{"save_top_k": -1}], {}),
    "none": ([{"save_top_k": 0}], {}),
    "last": ([{"save_last": True}], {}),
    "link": ([{"save_last": "link"}], {}),
    "link of all": ([{"save_last": "link", "save_top_k": -1}], {}),
    "monitored": ([{"monitor": "score"}], {}),
    "top 2": ([{"monitor": "score", "save_top_k": 2}], {"max_epochs": 6}),
    "top 2 highest": ([{"monitor": "score", "save_top_k": 2, "mode": "max", "save_last": True}], {"max_epochs": 6}),
    "all monitored": ([{"monitor": "score", "save_top_k": -1}], {}),
    "steps": ([{"every_n_train_steps": 4, "save_top_k": -1}], {}),
    "steps and last": ([{"every_n_train_steps": 4, "save_last": True}], {}),
    "steps, monitored": ([{"every_n_train_steps": 4, "monitor": "step_score", "save_top_k": 2}], {}),
    "steps, accumulated": ([{"every_n_train_steps": 2, "save_top_k": -1}], {"accumulate_grad_batches": 2}),
    "steps, the best and the last": (
        [{"every_n_train_steps": 2, "monitor": "step_score", "save_last": True, "mode": "max"}],
        {},
    ),
    "steps before the first validation": (
        [{"every_n_train_steps": 2, "monitor": "score", "save_top_k": -1, "save_last": True}],
        {"val_check_interval": 0.5, "max_epochs": 1},
    ),
    "more steps than the fit has, and last": ([{"every_n_train_steps": 50, "save_last": True}], {}),
    "more steps than the fit has, and link": ([{"every_n_train_steps": 50, "save_last": "link"}], {}),
    "every 2 epochs": ([{"every_n_epochs": 2, "save_top_k": -1}], {"max_epochs": 5}),
    "every 2 epochs and last": ([{"every_n_epochs": 2, "save_last": True}], {"max_epochs": 5}),
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


def calls(tmp_path: Path, arguments: dict[str, Any], **keywords: Any) -> list[Any]:
    calls: list[Any] = outcome(OURS, tmp_path, [arguments], SCORES, **keywords)["calls"]
    return calls


@pytest.mark.parametrize(
    "arguments", [{"save_top_k": 0}, {"every_n_epochs": 0}, {"save_top_k": 0, "save_last": "link"}]
)
def test_where_only_the_last_is_kept_it_is_saved_in_every_epoch(arguments: dict[str, Any], tmp_path: Path) -> None:
    """Lightning saves it at the end of the training only, when it is too late for a run that was killed."""
    saved = calls(tmp_path, {"save_last": True, **arguments})
    assert saved == [("last.ckpt", 6, 0, "train"), ("last.ckpt", 12, 1, "train"), ("last.ckpt", 18, 2, "train")]


def test_value_of_a_validation_belongs_to_the_weights_that_had_it(tmp_path: Path) -> None:
    """Where a validation follows the step that is saved, Lightning mostly takes the value of the one before."""
    arguments = {"every_n_train_steps": 4, "monitor": "score", "save_top_k": -1}
    result = outcome(OURS, tmp_path, [arguments], SCORES, val_check_interval=2)
    assert [(step, stage) for _, step, _, stage in result["calls"]] == [
        (4, "validate"),
        (8, "validate"),
        (12, "validate"),
        (16, "validate"),
    ]
    # Validations come after the steps 2, 4, 6, ...; the third score is NaN, the 8th is the first again.
    assert list(result["states"][0]["best_k_models"].values()) == pytest.approx([1.0, 2.0, 4.0, 3.0])


def test_monitor_that_no_validation_logs_is_an_error(tmp_path: Path) -> None:
    result = outcome(OURS, tmp_path, [{"monitor": "nothing", "every_n_train_steps": 6}], SCORES)
    assert result["error"] == "MisconfigurationException" and result["calls"] == []


TEMPLATES = [
    None,
    "{epoch}",
    "{epoch:02d}-{val_loss:.2f}",
    "{missing:.3f}",
    "{val/acc:.1f}",
    "{a}{ab}",
    "plain",
    "{epoch:>5}-{val_loss:.3e}",
    "last-{step:05d}",
]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("insert", [True, False])
def test_names_are_lightnings(template: str | None, insert: bool) -> None:
    metrics = {"epoch": torch.tensor(3), "step": 7, "val_loss": torch.tensor(0.1256), "val/acc": 0.5, "a": 1, "ab": 2.5}
    for folder in (None, "/x/y", "memory://bucket/y"):
        ours, theirs = (
            library(dirpath=folder, filename=template, auto_insert_metric_name=insert) for library in CALLBACKS.values()
        )
        for options in ({}, {"ver": 2}, {"filename": "{epoch}"}, {"prefix": "pre"}):
            expected = theirs.format_checkpoint_name(metrics, **options)
            assert ours.format_checkpoint_name(metrics, **options) == expected
        assert (ours.dirpath, ours.state_key) == (theirs.dirpath, theirs.state_key)


@pytest.mark.parametrize(
    "arguments",
    [
        {"save_top_k": -2},
        {"save_top_k": 2},
        {"mode": "best"},
        {"every_n_train_steps": -1},
        {"every_n_epochs": -1},
        {"every_n_train_steps": 1, "every_n_epochs": 1},
        {"every_n_train_steps": 2, "train_time_interval": timedelta(1)},
    ],
    ids=str,
)
def test_same_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(pl.utilities.exceptions.MisconfigurationException):
        CALLBACKS["theirs"](**arguments)
    with pytest.raises(UnstuckError, match=next(iter(arguments))):
        ModelCheckpoint(**arguments)
