"""A step that is interrupted after it has changed weights: its checkpoint says so."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
from torch import nn

from tests.trainer.checkpoints.test_resume import Fails
from tests.trainer.checkpoints.training_with_state import Regression, SaveAt, Stop, assert_same_end, fit, train_loader
from unstuck.callbacks import EMAWeightAveraging, ModelCheckpoint


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="unstuck")


class Closures(Regression):
    """LBFGS evaluates the loss several times for a step, and moves in between."""

    fails_at = 0

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 1))
        self.calls = 0

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.calls += 1
        if self.calls == self.fails_at:
            raise Stop
        return super().training_step(batch, batch_idx)

    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=4)


class TwoOptimizers(Closures):
    """The second one fails after the first has stepped."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(4, 1)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        for optimizer, layer in zip(self.optimizers(), (self.net, self.other), strict=True):
            self.calls += 1
            if self.calls == self.fails_at:
                raise Stop
            loss = nn.functional.mse_loss(layer(x), y)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (self.net, self.other)]


def keeper(folder: Path) -> ModelCheckpoint:
    return ModelCheckpoint(dirpath=folder, save_on_exception=True, every_n_epochs=0)


def interrupted(base: type[Closures], fails_at: int, folder: Path) -> Path:
    class Failing(base):  # type: ignore[misc, valid-type]
        pass

    Failing.fails_at = fails_at
    with pytest.raises(Stop):
        fit(make=Failing, callbacks=[keeper(folder)])
    (path,) = folder.glob("*.ckpt")
    return path


@pytest.mark.parametrize(("base", "fails_at"), [(Closures, 7), (TwoOptimizers, 6)])
def test_half_a_step_is_told_of(base: type[Closures], fails_at: int, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="had changed weights already"):
        path = interrupted(base, fails_at, tmp_path)
    assert torch.load(path, weights_only=True)["unstuck"]["within_step"]
    with pytest.warns(UserWarning, match="between two steps"):
        fit(make=base, ckpt_path=path, callbacks=[keeper(tmp_path)])


@pytest.mark.parametrize(("base", "fails_at"), [(Closures, 5), (TwoOptimizers, 7)])
def test_a_step_that_has_changed_nothing_is_done_again(base: type[Closures], fails_at: int, tmp_path: Path) -> None:
    through = fit(make=base)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = interrupted(base, fails_at, tmp_path)
        resumed = fit(make=base, ckpt_path=path, seed=99, callbacks=[keeper(tmp_path)])
    assert_same_end(resumed, through)


def test_end_of_a_fit_that_made_more_steps_than_were_asked_for(tmp_path: Path) -> None:
    """With several steps for one batch; what is left to do is the end of the epoch."""
    path, keywords = tmp_path / "x.ckpt", {"make": TwoOptimizers, "max_steps": 3}
    through = fit(**keywords)
    with pytest.raises(Stop):
        fit(callbacks=[SaveAt("on_train_batch_end", 2, path, Stop())], **keywords)
    resumed = fit(ckpt_path=path, seed=99, **keywords)
    assert resumed[0].global_step == 4
    assert_same_end(resumed, through)


class Measured(Regression):
    """Logs a metric object."""

    def __init__(self) -> None:
        super().__init__()
        self.error = torchmetrics.MeanAbsoluteError()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.error(self.net(batch[0]).detach(), batch[1])
        self.log("error", self.error, on_step=True, on_epoch=True)
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("at", [2, 5, 7])
def test_metric_objects_forget_the_step_that_failed(at: int, tmp_path: Path) -> None:
    through = fit(make=Measured)
    with pytest.raises(Stop):
        fit(make=Measured, callbacks=[Fails("on_after_backward", at), keeper(tmp_path)])
    (path,) = tmp_path.glob("*.ckpt")
    assert_same_end(fit(make=Measured, ckpt_path=path, seed=99, callbacks=[keeper(tmp_path)]), through)


@pytest.mark.parametrize("at", [4, 5, 10])
def test_metric_objects_are_whole_also_after_the_last_batch(at: int, tmp_path: Path) -> None:
    through = fit(make=Measured)
    with pytest.raises(Stop):
        fit(make=Measured, callbacks=[SaveAt("on_train_batch_end", at, tmp_path / "x.ckpt", Stop())])
    assert_same_end(fit(make=Measured, ckpt_path=tmp_path / "x.ckpt", seed=99), through)


@pytest.mark.parametrize("hook", ["on_validation_batch_start", "on_train_batch_start", "on_validation_start"])
def test_average_of_the_weights_keeps_its_place(hook: str, tmp_path: Path) -> None:
    """Average and weights change places for a validation, and one that fails leaves them so."""

    def callbacks(*others: Any) -> list[Any]:
        return [EMAWeightAveraging(decay=0.9), *others]

    through = fit(callbacks=callbacks())
    with pytest.raises(Stop):
        fit(callbacks=callbacks(Fails(hook, 2), keeper(tmp_path)))
    (path,) = tmp_path.glob("*.ckpt")
    assert_same_end(fit(callbacks=callbacks(keeper(tmp_path)), ckpt_path=path, seed=99), through)


def test_loaders_are_asked_for_anew_where_the_epoch_begins_anew(tmp_path: Path) -> None:
    """They may draw random numbers where they are made."""

    class Loading(Regression):
        def train_dataloader(self) -> Any:
            torch.rand(1)
            return train_loader(0)

    keywords: dict[str, Any] = {"make": Loading, "loader": lambda: None, "reload_dataloaders_every_n_epochs": 1}
    through = fit(**keywords)
    for hook, at in (("on_train_epoch_start", 2), ("on_train_batch_start", 6)):
        folder = tmp_path / hook
        with pytest.raises(Stop):
            fit(callbacks=[Fails(hook, at), keeper(folder)], **keywords)
        (path,) = folder.glob("*.ckpt")
        assert_same_end(fit(ckpt_path=path, seed=99, callbacks=[keeper(folder)], **keywords), through)
