"""Checkpoints of Lightning go on here, and those of here in Lightning."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, WeightedRandomSampler

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, THEIRS, Library, data, loader
from unstuck.callbacks import ModelCheckpoint

MODEL_CHECKPOINT: dict[str, Any] = {"ours": ModelCheckpoint, "theirs": pl.callbacks.ModelCheckpoint}
HOOKS = [
    "on_fit_start",
    "on_train_start",
    "on_train_epoch_start",
    "on_train_batch_end",
    "on_validation_start",
    "on_validation_end",
    "on_train_epoch_end",
    "on_train_end",
    "on_fit_end",
]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="unstuck")


def make_module(library: Library) -> Any:
    class Module(library.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self, width: int = 16, name: str = "net") -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 1))
            self.steps: list[tuple[int, int]] = []

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.steps.append((self.current_epoch, batch_idx))
            loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
            self.log("loss", loss, logger=False)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", nn.functional.mse_loss(self.net(batch[0]), batch[1]), logger=False)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.Adam(self.parameters(), lr=0.02)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    return Module()


def train(
    library: Library,
    epochs: int,
    ckpt_path: Any = None,
    save: tuple[str, int, Path] | None = None,
    callbacks: Any = (),
    **keywords: Any,
) -> Any:
    """Trains in the order of the data; ``save`` writes a checkpoint in a hook, the n-th time that it is called."""
    torch.manual_seed(5)
    module = make_module(library)

    class Save(library.Callback):  # type: ignore[misc, name-defined]
        calls = 0

    if save is not None:
        hook, at, path = save

        def act(self: Any, trainer: Any, *_: Any) -> None:
            self.calls += 1
            if self.calls == at:
                trainer.save_checkpoint(path)

        setattr(Save, hook, act)
    trainer = library.Trainer(**{**QUIET, **keywords}, max_epochs=epochs, callbacks=[Save(), *callbacks])
    with warnings.catch_warnings():
        if library is THEIRS:
            warnings.simplefilter("ignore")
        trainer.fit(module, loader(shuffle=False), loader(8, shuffle=False), ckpt_path=ckpt_path)
    return module


def assert_same(module: Any, other: Any) -> None:
    for name, weight in other.state_dict().items():
        assert torch.equal(module.state_dict()[name], weight), name


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("keywords", [{}, {"accumulate_grad_batches": 2}, {"val_check_interval": 3}], ids=str)
def test_the_same_counters_in_every_hook(hook: str, keywords: dict[str, Any], tmp_path: Path) -> None:
    for at in (1, 2, 8):
        files = []
        for library in (OURS, THEIRS):
            path = tmp_path / f"{library.name}{at}.ckpt"
            train(library, 2, save=(hook, at, path), **keywords)
            files.append(torch.load(path) if path.exists() else None)
        ours, theirs = files
        if theirs is None:
            assert ours is None
            continue
        own = ours.pop("unstuck")
        assert own["version"] == 1
        assert ours.keys() == theirs.keys()
        for key in ("epoch", "global_step", "loops", "hyper_parameters", "hparams_name", "callbacks", "lr_schedulers"):
            assert ours[key] == theirs[key], key
        assert repr(ours["optimizer_states"]) == repr(theirs["optimizer_states"])
        assert_equal_weights(ours["state_dict"], theirs["state_dict"])


def assert_equal_weights(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("at", [1, 2, 8])
def test_ours_goes_on_in_lightning_as_lightnings_own(hook: str, at: int, tmp_path: Path) -> None:
    ended = []
    for library in (OURS, THEIRS):
        path = tmp_path / f"{library.name}.ckpt"
        train(library, 2, save=(hook, at, path))
        if not path.exists():
            pytest.skip("the hook isn't called so often")
        ended.append(train(THEIRS, 3, ckpt_path=path))
    assert_same(*ended)
    assert ended[0].steps == ended[1].steps


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("at", [1, 2, 8])
def test_lightnings_goes_on_here_as_if_it_had_run_through(hook: str, at: int, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    train(THEIRS, 2, save=(hook, at, path))
    if not path.exists():
        pytest.skip("the hook isn't called so often")
    through, resumed = train(THEIRS, 3), train(OURS, 3, ckpt_path=path)
    assert_same(resumed, through)
    assert resumed.steps == through.steps[len(through.steps) - len(resumed.steps) :]


@pytest.mark.parametrize("shuffled", [{"shuffle": True}, {"sampler": WeightedRandomSampler(torch.ones(24), 24)}])
def test_shuffled_order_of_lightning_is_told_with_numbers(shuffled: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    train(THEIRS, 2, save=("on_train_batch_end", 8, path))
    trainer = unstuck.Trainer(**QUIET, max_epochs=2)
    module = make_module(OURS)
    with pytest.warns(UserWarning, match="after 2 batches of epoch 1") as caught:
        trainer.fit(module, DataLoader(data(), batch_size=4, **shuffled), loader(8, shuffle=False), ckpt_path=path)
    message = str(caught[0].message)
    assert "remaining 4 of 6 batches" in message and "up to 8 samples" in message
    assert module.steps == [(1, index) for index in range(2, 6)]


@pytest.mark.parametrize("first", [OURS, THEIRS], ids=lambda library: library.name)
def test_model_checkpoint_goes_on_in_the_other(first: Library, tmp_path: Path) -> None:
    second = THEIRS if first is OURS else OURS

    def saver(library: Library) -> Any:
        return MODEL_CHECKPOINT[library.name](dirpath=tmp_path, monitor="val_loss", save_top_k=2, save_last=True)

    before = saver(first)
    train(first, 2, callbacks=[before], enable_checkpointing=True)
    after = saver(second)
    train(second, 4, callbacks=[after], ckpt_path=tmp_path / "last.ckpt", enable_checkpointing=True)
    assert set(before.best_k_models) & set(after.best_k_models) or after.best_model_score < before.best_model_score
    assert after.last_model_path == before.last_model_path == str(tmp_path / "last.ckpt")
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == sorted(
        [*(Path(path).name for path in after.best_k_models), "last.ckpt"]
    )


@pytest.mark.parametrize("first", [OURS, THEIRS], ids=lambda library: library.name)
def test_module_is_made_from_the_others_file(first: Library, tmp_path: Path) -> None:
    second = THEIRS if first is OURS else OURS
    path = tmp_path / "a.ckpt"
    trained = train(first, 1, save=("on_fit_end", 1, path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = type(make_module(second)).load_from_checkpoint(path, name="other")
    assert_same(loaded, trained)
    assert dict(loaded.hparams) == {"width": 16, "name": "other"}


def test_lightnings_module_runs_here_and_goes_on(tmp_path: Path) -> None:
    """A module of the real Lightning under this Trainer: saved, resumed, evaluated."""
    through = _run_mixed(3)
    _run_mixed(1, save=tmp_path / "a.ckpt")
    assert_same(_run_mixed(3, ckpt_path=tmp_path / "a.ckpt"), through)


def _run_mixed(epochs: int, ckpt_path: Any = None, save: Path | None = None) -> Any:
    torch.manual_seed(5)
    module = make_module(THEIRS)
    trainer = unstuck.Trainer(**QUIET, max_epochs=epochs)
    trainer.fit(module, loader(shuffle=False), loader(8, shuffle=False), ckpt_path=ckpt_path)
    if save is not None:
        trainer.save_checkpoint(save)
        (scores,) = unstuck.Trainer(**QUIET).validate(make_module(THEIRS), loader(8, shuffle=False), ckpt_path=save)
        assert scores == pytest.approx(trainer.validate(module, loader(8, shuffle=False))[0])
    return module
