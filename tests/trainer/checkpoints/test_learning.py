"""What was frozen and unfrozen on the way of a fit is so again in the run that goes on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unstuck
from tests.trainer.checkpoints.training_with_state import (
    QUIET,
    Regression,
    SaveAt,
    assert_same_end,
    fit,
    train_loader,
    val_loader,
)
from unstuck.callbacks import BackboneFinetuning, BaseFinetuning


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="unstuck")


class WithBackbone(Regression):
    """Its optimiser has all parameters from the beginning."""

    takes_all = True

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, affine=False), nn.Tanh())
        self.net = nn.Sequential(self.backbone, nn.Linear(8, 1))

    def configure_optimizers(self) -> Any:
        parameters = [item for item in self.parameters() if item.requires_grad or self.takes_all]
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


class OnlyLearning(WithBackbone):
    takes_all = False


class AddsGroup(BaseFinetuning):
    def freeze_before_training(self, pl_module: Any) -> None:
        self.freeze(pl_module.backbone, train_bn=False)

    def finetune_function(self, pl_module: Any, epoch: int, optimizer: Any) -> None:
        if epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.backbone, optimizer, lr=0.01)


class MakesTrainable(AddsGroup):
    def finetune_function(self, pl_module: Any, epoch: int, optimizer: Any) -> None:
        if epoch == 1:
            self.make_trainable(pl_module.backbone)


class FreezesLater(unstuck.Callback):
    """A callback of a program's own, without a state."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == 4:
            pl_module.backbone.requires_grad_(False)


@pytest.mark.parametrize(
    ("make", "callback"),
    [
        (WithBackbone, AddsGroup),
        (OnlyLearning, AddsGroup),
        (WithBackbone, MakesTrainable),
        (WithBackbone, lambda: BackboneFinetuning(1, backbone_initial_lr=0.01)),
        (OnlyLearning, lambda: BackboneFinetuning(1, backbone_initial_lr=0.01)),
        (WithBackbone, FreezesLater),
    ],
)
@pytest.mark.parametrize(
    ("hook", "at"), [("on_train_epoch_end", 1), ("on_train_batch_end", 7), ("on_train_epoch_end", 2)]
)
@pytest.mark.filterwarnings("ignore:.*are in the optimizer already")
def test_what_learns_learns_on(make: Any, callback: Any, hook: str, at: int, tmp_path: Path) -> None:
    path, again = tmp_path / "x.ckpt", tmp_path / "again.ckpt"
    through = fit(make=make, max_epochs=3, callbacks=[callback(), SaveAt(hook, at, path)])
    resumed = fit(make=make, max_epochs=3, seed=9, ckpt_path=path, callbacks=[callback(), SaveAt(hook, 1, again)])
    assert_same_end(resumed, through)
    twice = fit(make=make, max_epochs=3, seed=8, ckpt_path=again, callbacks=[callback()])
    assert_same_end(twice, through)
    for own, reference in zip(twice[1].parameters(), through[1].parameters(), strict=True):
        assert own.requires_grad == reference.requires_grad
    norms = [child.track_running_stats for child in twice[1].modules() if isinstance(child, nn.BatchNorm1d)]
    assert norms == [child.track_running_stats for child in through[1].modules() if isinstance(child, nn.BatchNorm1d)]


@pytest.mark.filterwarnings("ignore:.*are in the optimizer already")
def test_backbone_of_a_file_without_this_packages_part(tmp_path: Path) -> None:
    path, plain = tmp_path / "x.ckpt", tmp_path / "plain.ckpt"
    fit(make=WithBackbone, callbacks=[BackboneFinetuning(0), SaveAt("on_train_epoch_end", 1, path)])
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint["unstuck"]
    torch.save(checkpoint, plain)
    _, resumed = fit(make=WithBackbone, ckpt_path=plain, callbacks=[BackboneFinetuning(0)])
    assert all(parameter.requires_grad for parameter in resumed.parameters())


@pytest.mark.filterwarnings("ignore:.*are in the optimizer already")
def test_a_checkpoint_that_was_only_validated_unfreezes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    fit(make=WithBackbone, callbacks=[BackboneFinetuning(0), SaveAt("on_train_epoch_end", 1, path)])
    module, callbacks = WithBackbone(), [BackboneFinetuning(5)]
    trainer = unstuck.Trainer(**QUIET, max_epochs=1, default_root_dir=tmp_path, callbacks=callbacks)
    trainer.validate(module, val_loader(), ckpt_path=path, verbose=False)
    trainer.fit(module, train_loader(0), val_loader())
    assert not any(parameter.requires_grad for parameter in module.backbone.parameters())


def test_a_toggled_optimizer_freezes_for_the_moment_only(tmp_path: Path) -> None:
    class Toggling(WithBackbone):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
            for optimizer in self.optimizers():
                self.toggle_optimizer(optimizer)
                optimizer.zero_grad()
                self.manual_backward(Regression.training_step(self, batch, batch_idx))
                optimizer.step()
                self.untoggle_optimizer(optimizer)

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(part.parameters(), lr=0.05) for part in (self.backbone, self.net[1])]

    path = tmp_path / "x.ckpt"
    fit(make=Toggling, callbacks=[SaveAt("on_before_zero_grad", 3, path), SaveAt("on_before_optimizer_step", 3, path)])
    learning = torch.load(path, weights_only=True)["unstuck"]["learning"]
    assert learning == {"parameters": {}, "norms": {}}
