"""A training that uses every kind of state a checkpoint has to hold, and ways to interrupt it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import unstuck
from unstuck.callbacks import ModelCheckpoint

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}
EPOCHS = 2
BATCHES = 5


class NoisyDigits(Dataset[Any]):
    """Samples that differ each time they are read, by the random numbers of torch, numpy and Python."""

    def __len__(self) -> int:
        return 4 * BATCHES

    def __getitem__(self, index: int) -> Any:
        noise = 0.1 * torch.randn(4) + 0.1 * float(np.random.rand()) + 0.1 * random.random()
        x = torch.sin(torch.arange(4) * (index + 1.0)) + noise
        return x, x.sum(0, keepdim=True)


class Regression(unstuck.LightningModule):
    """Dropout, batch norm, Adam, a scheduler per step and one that watches the epoch's loss, all logged."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1))
        self.seen: list[tuple[int, int, float]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        self.seen.append((self.current_epoch, batch_idx, float(x.sum())))
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss, on_step=True, on_epoch=True)
        self.log_dict({"a": loss * 2, "b": loss * 3}, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        noise = torch.randn(1) * 0.01  # a validation that takes part in the random numbers
        self.log("val_loss", nn.functional.mse_loss(self.net(x), y) + noise[0])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.02)
        step = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.7, threshold=0.5)
        return [optimizer], [
            {"scheduler": step, "interval": "step"},
            {"scheduler": plateau, "interval": "epoch", "monitor": "loss_epoch"},
        ]


def train_loader(workers: int, shuffle: bool = True) -> DataLoader[Any]:
    return DataLoader(NoisyDigits(), batch_size=4, shuffle=shuffle, num_workers=workers)


def val_loader() -> DataLoader[Any]:
    return DataLoader(NoisyDigits(), batch_size=10)


class SaveAt(unstuck.Callback):
    """Saves a checkpoint in one hook, the ``at``-th time that it is called, and may end the run there."""

    def __init__(self, hook: str, at: int, path: Path, error: BaseException | None = None) -> None:
        self.calls = 0
        self.saved = False

        def act(trainer: Any, pl_module: Any, *args: Any) -> None:
            self.calls += 1
            if self.calls == at:
                self.saved = True
                trainer.save_checkpoint(path)
                if error is not None:
                    raise error

        setattr(self, hook, act)


class Stop(Exception):
    """Ends a run from inside."""


def fit(
    workers: int = 0,
    callbacks: list[Any] | None = None,
    ckpt_path: Any = None,
    validates: bool = True,
    loader: Any = None,
    seed: int = 3,
    make: Any = Regression,
    **keywords: Any,
) -> tuple[Any, Any]:
    """Seeds everything and trains; returns trainer and module."""
    unstuck.seed_everything(seed, verbose=False)
    module = make()
    trainer = unstuck.Trainer(
        **{**QUIET, "max_epochs": EPOCHS, "enable_checkpointing": bool(_saving(callbacks)), **keywords},
        callbacks=callbacks,
    )
    train = train_loader(workers) if loader is None else loader()
    trainer.fit(module, train, val_loader() if validates else None, ckpt_path=ckpt_path)
    return trainer, module


def _saving(callbacks: list[Any] | None) -> list[Any]:
    return [callback for callback in callbacks or [] if isinstance(callback, ModelCheckpoint)]


def assert_same_end(resumed: tuple[Any, Any], through: tuple[Any, Any]) -> None:
    """Weights, optimiser, schedulers, metrics, counters and random numbers are the same, bit for bit."""
    (trainer, module), (reference, expected) = resumed, through
    for name, weight in expected.state_dict().items():
        assert torch.equal(module.state_dict()[name], weight), f"{name} differs"
    assert _plain(trainer.optimizers[0].state_dict()) == _plain(reference.optimizers[0].state_dict())
    for own, other in zip(trainer.lr_scheduler_configs, reference.lr_scheduler_configs, strict=True):
        assert _plain(own.scheduler.state_dict()) == _plain(other.scheduler.state_dict())
    assert (trainer.global_step, trainer.current_epoch) == (reference.global_step, reference.current_epoch)
    ours = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert ours == {name: float(value) for name, value in reference.callback_metrics.items()}
    assert trainer.precision_plugin.state_dict() == reference.precision_plugin.state_dict()


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
