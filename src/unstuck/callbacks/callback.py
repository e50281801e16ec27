"""The base class of callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

    StepOutput: TypeAlias = Tensor | Mapping[str, Any] | None

__all__ = ["Callback"]


class Callback:
    """Runs code at the Trainer's hooks: override the methods that you need and give an instance to the Trainer.

    A hook that isn't overridden costs nothing. Callbacks run in the order in which they were given, before the hook of
    the same name of the module.
    """

    @property
    def state_key(self) -> str:
        """Under which a checkpoint keeps this callback's state: the class's qualified name, unless overridden.

        Override it where more than one instance of a class is used, with what tells them apart.
        """
        return type(self).__qualname__

    def _generate_state_key(self, **kwargs: Any) -> str:
        """Return a state key made of the class's name and what tells instances apart, for :attr:`state_key`."""
        return f"{type(self).__qualname__}{kwargs!r}"

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of this callback; empty for nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned when the checkpoint was written."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """A run begins. ``stage`` is ``"fit"``, ``"validate"``, ``"test"`` or ``"predict"``."""

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """A run ends. ``stage`` is the one that :meth:`setup` got."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit begins, before the sanity check."""

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit has ended."""

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The validation steps before training begin."""

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The validation steps before training have ended."""

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """A training batch is on the device, its step comes."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: StepOutput, batch: Any, batch_idx: int
    ) -> None:
        """A training batch is done with.

        ``outputs`` is what ``training_step`` returned; ``outputs["loss"]`` is divided by ``accumulate_grad_batches``.
        """

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A training epoch begins."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A training epoch has ended; its values can be read in ``trainer.callback_metrics`` one hook later."""

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A validation epoch begins."""

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A validation epoch has ended."""

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A test epoch begins."""

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A test epoch has ended."""

    def on_predict_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A prediction epoch begins."""

    def on_predict_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A prediction epoch has ended."""

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A validation batch is on the device, its step comes."""

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: StepOutput,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """A validation batch is done with."""

    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A test batch is on the device, its step comes."""

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: StepOutput,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """A test batch is done with."""

    def on_predict_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A prediction batch is on the device, its step comes."""

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """A prediction batch is done with."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Training begins, after the sanity check."""

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Training has ended."""

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validation begins."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Validation has ended."""

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Testing begins."""

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Testing has ended."""

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prediction begins."""

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prediction has ended."""

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Any exception, ``KeyboardInterrupt`` too, ends the run."""

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """A checkpoint is about to be written; it may be changed in place."""

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """A checkpoint was read; runs before the states are restored."""

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Before ``loss.backward()``."""

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """After ``loss.backward()``, before the optimizer steps."""

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """The gradients are complete and unscaled, but not clipped yet."""

    def on_before_zero_grad(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """The gradients are about to be cleared."""
