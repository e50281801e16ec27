"""The hooks of a module: every method here does nothing, or what the loops do where nobody overrides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from unstuck.errors import MisconfigurationException
from unstuck.trainer.data.transfer import move_data_to_device

__all__ = ["CheckpointHooks", "DataHooks", "ModelHooks"]

StepOutput = Tensor | Mapping[str, Any] | None


class ModelHooks:
    """Hooks around the loops. They run after those of the callbacks, in the order of their names' events."""

    def on_fit_start(self) -> None:
        """A fit begins; the module is on its device, the optimisers exist."""

    def on_fit_end(self) -> None:
        """A fit has ended."""

    def on_train_start(self) -> None:
        """The training begins, after the sanity check."""

    def on_train_end(self) -> None:
        """The training has ended."""

    def on_validation_start(self) -> None:
        """A validation begins."""

    def on_validation_end(self) -> None:
        """A validation has ended."""

    def on_test_start(self) -> None:
        """A test begins."""

    def on_test_end(self) -> None:
        """A test has ended."""

    def on_predict_start(self) -> None:
        """A prediction begins."""

    def on_predict_end(self) -> None:
        """A prediction has ended."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Before a training batch. Returning -1 skips the rest of the epoch."""

    def on_train_batch_end(self, outputs: StepOutput, batch: Any, batch_idx: int) -> None:
        """After a training batch; ``outputs`` is what ``training_step`` returned, with the loss detached."""

    def on_validation_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before a validation batch."""

    def on_validation_batch_end(self, outputs: StepOutput, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After a validation batch."""

    def on_test_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before a test batch."""

    def on_test_batch_end(self, outputs: StepOutput, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After a test batch."""

    def on_predict_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Before a batch of a prediction."""

    def on_predict_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """After a batch of a prediction."""

    def on_validation_model_zero_grad(self) -> None:
        """Before a validation within a fit: frees the gradients."""
        _module(self).zero_grad()

    def on_validation_model_eval(self) -> None:
        """Puts the module into eval mode for a validation."""
        _module(self).eval()

    def on_validation_model_train(self) -> None:
        """After a validation. Unless overridden, each module gets back the mode that it had."""
        _module(self).train()

    def on_test_model_eval(self) -> None:
        """Puts the module into eval mode for a test."""
        _module(self).eval()

    def on_test_model_train(self) -> None:
        """After a test. Unless overridden, each module gets back the mode that it had."""
        _module(self).train()

    def on_predict_model_eval(self) -> None:
        """Puts the module into eval mode for a prediction."""
        _module(self).eval()

    def on_train_epoch_start(self) -> None:
        """A training epoch begins."""

    def on_train_epoch_end(self) -> None:
        """A training epoch has ended, its validation included."""

    def on_validation_epoch_start(self) -> None:
        """The batches of a validation begin."""

    def on_validation_epoch_end(self) -> None:
        """The batches of a validation are done."""

    def on_test_epoch_start(self) -> None:
        """The batches of a test begin."""

    def on_test_epoch_end(self) -> None:
        """The batches of a test are done."""

    def on_predict_epoch_start(self) -> None:
        """The batches of a prediction begin."""

    def on_predict_epoch_end(self) -> None:
        """The batches of a prediction are done."""

    def on_before_zero_grad(self, optimizer: Optimizer) -> None:
        """After ``training_step``, before the gradients are cleared."""

    def on_before_backward(self, loss: Tensor) -> None:
        """Before backward; the loss is divided by the number of accumulated batches and scaled by a scaler already."""

    def on_after_backward(self) -> None:
        """After every backward; gradients may still be scaled."""

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Before every optimiser step: gradients are unscaled, complete, and not clipped yet."""

    def configure_model(self) -> None:
        """Makes layers, in the format and on the device of the run.

        It is called for every run, so make them only once.
        """


class DataHooks:
    """Hooks around the data."""

    prepare_data_per_node = True
    allow_zero_length_dataloader_with_multiple_devices = False

    def prepare_data(self) -> None:
        """Downloads and the like, in one process only. Don't set attributes here."""

    def setup(self, stage: str) -> None:
        """A run begins, in every process. ``stage`` is "fit", "validate", "test" or "predict"."""

    def teardown(self, stage: str) -> None:
        """A run has ended."""

    def train_dataloader(self) -> Any:
        """The training loader, or a collection of them."""
        raise _undefined("train_dataloader")

    def val_dataloader(self) -> Any:
        """The validation loader, or a list of them."""
        raise _undefined("val_dataloader")

    def test_dataloader(self) -> Any:
        """The test loader, or a list of them."""
        raise _undefined("test_dataloader")

    def predict_dataloader(self) -> Any:
        """The loader to predict on, or a list of them."""
        raise _undefined("predict_dataloader")

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Changes a batch before it is moved to the device."""
        return batch

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Moves a batch to the device."""
        return move_data_to_device(batch, device)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Changes a batch on the device."""
        return batch


class CheckpointHooks:
    """Hooks around checkpoints."""

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """A checkpoint is loaded: takes back what :meth:`on_save_checkpoint` put in."""

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """A checkpoint is saved: puts in what shall be kept besides."""


def _module(hooks: Any) -> nn.Module:
    module: nn.Module = hooks
    return module


def _undefined(name: str) -> MisconfigurationException:
    return MisconfigurationException(f"`{name}` must be defined to be used by the Trainer.")
