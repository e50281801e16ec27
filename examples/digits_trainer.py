"""Train on handwritten digits with the Trainer: first memorise ten batches, then train on all of them.

The first run shows that model, loss and data fit together: a network that can't learn 320 samples by heart has a fault
somewhere. Only then is the second run worth its time. It needs scikit-learn, for the digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from unstuck import LightningDataModule, LightningModule, Trainer, seed_everything
from unstuck.utilities import grad_norm


class Digits(LightningDataModule):
    """1797 images of 8 by 8 pixels, a fifth of them for validation."""

    def __init__(self, batch_size: int = 32) -> None:
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str) -> None:
        images, labels = load_digits(return_X_y=True)
        data = TensorDataset(torch.from_numpy((images / 16).astype(np.float32)), torch.from_numpy(labels))
        self.train, self.val = random_split(data, [0.8, 0.2], generator=torch.Generator().manual_seed(0))

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train, batch_size=self.hparams.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.val, batch_size=256)


class Classifier(LightningModule):
    """A small network with one hidden layer."""

    def __init__(self, width: int = 128, rate: float = 3e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        scores = self(images)
        loss = nn.functional.cross_entropy(scores, labels)
        self.log("loss", loss, prog_bar=True)
        self.log("accuracy", (scores.argmax(1) == labels).float().mean(), on_step=False, on_epoch=True)
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.log_dict(grad_norm(self, norm_type=2))

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        scores = self(images)
        self.log("val_loss", nn.functional.cross_entropy(scores, labels))
        self.log("val_accuracy", (scores.argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)
        total = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.rate, total_steps=total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train(progress: bool = True, **keywords: Any) -> dict[str, float]:
    """Trains from scratch and returns the last metrics.

    Args:
        progress: whether to show a progress bar.
        keywords: the Trainer's.
    """
    seed_everything(0, verbose=False)
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=progress,
        gradient_clip_val=1.0,
        **keywords,
    )
    trainer.fit(Classifier(), datamodule=Digits())
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def main(progress: bool = True) -> tuple[float, float]:
    """Runs both trainings and returns the accuracy on the memorised samples and on the validation samples."""
    memorised = train(progress, max_epochs=60, overfit_batches=10, limit_val_batches=0)["accuracy"]
    print(f"ten batches, learnt by heart: {memorised:.2%} right")
    validated = train(progress, max_epochs=20)["val_accuracy"]
    print(f"all batches: {validated:.2%} of the validation samples right")
    return memorised, validated


if __name__ == "__main__":
    main()
