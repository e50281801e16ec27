"""Errors about checkpoints can be caught by the types that Lightning raises, too."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch.callbacks as reference_callbacks
import pytest
import torch

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, THEIRS, Library, base_module, loader
from unstuck.callbacks import EarlyStopping
from unstuck.errors import CheckpointError, IncompleteCheckpointError, MissingHyperparametersError, NameClashError

LIBRARIES = pytest.mark.parametrize("library", [OURS, THEIRS], ids=lambda library: library.name)


def trainer(library: Library, **keywords: Any) -> Any:
    return library.Trainer(**{**QUIET, "max_epochs": 1, **keywords})


def fit(library: Library, module: Any = None, ckpt_path: Any = None, **keywords: Any) -> Any:
    made = trainer(library, **keywords)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.fit(base_module(library)() if module is None else module, loader(), ckpt_path=ckpt_path)
    return made


@LIBRARIES
def test_weights_alone_do_not_resume(library: Library, tmp_path: Path) -> None:
    fit(library).save_checkpoint(tmp_path / "x.ckpt", weights_only=True)
    with pytest.raises(KeyError) as caught:
        fit(library, ckpt_path=tmp_path / "x.ckpt", max_epochs=2)
    if library is OURS:
        assert isinstance(caught.value, IncompleteCheckpointError)
        assert "holds only the model" in str(caught.value) and not str(caught.value).startswith('"')


@LIBRARIES
def test_weights_of_another_module(library: Library, tmp_path: Path) -> None:
    class Other(base_module(library)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(8, 1)

    fit(library).save_checkpoint(tmp_path / "x.ckpt")
    with pytest.raises(RuntimeError) as caught:
        fit(library, Other(), ckpt_path=tmp_path / "x.ckpt", max_epochs=2)
    assert library is THEIRS or isinstance(caught.value, CheckpointError)


@LIBRARIES
def test_callbacks_with_one_key_are_refused_before_anything_runs(library: Library) -> None:
    kind: Any = EarlyStopping if library is OURS else reference_callbacks.EarlyStopping
    with pytest.raises(RuntimeError, match="state_key") as caught:
        trainer(library, callbacks=[kind("loss"), kind("loss")])
    assert library is THEIRS or isinstance(caught.value, NameClashError)
    trainer(library, callbacks=[kind("loss"), kind("loss", mode="max")])

    class Own(base_module(library)):  # type: ignore[misc]
        def configure_callbacks(self) -> Any:
            return [kind("loss"), kind("loss")]

    if library is OURS:
        with pytest.raises(NameClashError, match="state_key"):
            fit(library, Own())


@LIBRARIES
def test_hyperparameters_of_one_name(library: Library, tmp_path: Path) -> None:
    class Module(base_module(library)):  # type: ignore[misc]
        def __init__(self, width: int = 1) -> None:
            super().__init__()
            self.save_hyperparameters()

    class Data(library.LightningDataModule):  # type: ignore[name-defined, misc]
        def __init__(self, width: int = 2) -> None:
            super().__init__()
            self.save_hyperparameters()

        def train_dataloader(self) -> Any:
            return loader()

    made = trainer(library, logger=True, default_root_dir=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="width"):
            made.fit(Module(), datamodule=Data())


@LIBRARIES
def test_arguments_that_nobody_saved(library: Library, tmp_path: Path) -> None:
    class Needs(base_module(library)):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__()

    fit(library, Needs(3)).save_checkpoint(tmp_path / "x.ckpt")
    with pytest.raises(TypeError, match="width") as caught:
        Needs.load_from_checkpoint(tmp_path / "x.ckpt")
    assert library is THEIRS or isinstance(caught.value, MissingHyperparametersError)


@LIBRARIES
@pytest.mark.parametrize("keywords", [{}, {"fast_dev_run": True}], ids=str)
def test_best_before_anything_was_saved(library: Library, keywords: dict[str, Any]) -> None:
    made = trainer(library, enable_checkpointing=True, **keywords)
    with pytest.raises(ValueError, match="best"):
        made.validate(base_module(library)(), loader(), ckpt_path="best")


def test_text_is_told_from_a_checkpoint(tmp_path: Path) -> None:
    for name, content in {
        "words": b"epoch 3\nloss 0.1\n",
        "numbers": b"0.25 0.5",
        "umlauts": "für dich".encode(),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError, match="a text file"):
            unstuck.LightningModule.load_from_checkpoint(tmp_path / name)
    # A byte at which the reader stumbles says nothing to anybody.
    for content in (b"h\x00\x01", b"e\x00\x01", b"q\x00\x01"):
        (tmp_path / "bytes").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"isn't a file that torch has written \(3 bytes\): \D+$"):
            unstuck.LightningModule.load_from_checkpoint(tmp_path / "bytes")
