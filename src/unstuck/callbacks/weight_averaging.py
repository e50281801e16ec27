"""Averages of the weights over the steps of a training: equally weighted, or exponentially."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from unstuck.callbacks.callback import Callback
from unstuck.messages import rank_zero_info, rank_zero_warn
from unstuck.trainer.hooks import is_overridden

if TYPE_CHECKING:
    from unstuck.callbacks.callback import StepOutput
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["EMAWeightAveraging", "WeightAveraging"]

PREFIX = "module."


class WeightAveraging(Callback):
    """Keeps an average of the weights in :class:`torch.optim.swa_utils.AveragedModel`.

    Validation uses the average, and so does the model after the training. A checkpoint has the average as its
    ``state_dict`` and what is needed to go on beside it.

    Args:
        device: where the average is kept; None: where the model is.
        use_buffers: whether buffers (a batch norm's statistics) are averaged too; else the average has the buffers that
            the model had at the start, and :func:`torch.optim.swa_utils.update_bn` is up to you.
        kwargs: for :class:`~torch.optim.swa_utils.AveragedModel`: ``avg_fn`` or ``multi_avg_fn``. By default all
            updates weigh the same.
    """

    def __init__(self, device: torch.device | str | int | None = None, use_buffers: bool = True, **kwargs: Any) -> None:
        self._device = torch.device(device) if isinstance(device, str) else device
        self._use_buffers = use_buffers
        self._kwargs = kwargs
        self._average_model: AveragedModel | None = None
        self._latest_update_step = 0
        self._latest_update_epoch = -1
        self._is_swapped = False

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Tell whether the average takes in the weights now; override it for another rhythm.

        Args:
            step_idx: the optimiser step (counted from 0) that was made; None at the end of an epoch.
            epoch_idx: the epoch that has ended; None after a step.

        Returns:
            By default: after every step.
        """
        return step_idx is not None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if is_overridden("configure_model", pl_module):
            # Else layers that are made there would be missing in the average.
            pl_module.configure_model()
        device = pl_module.device if self._device is None else self._device
        self._is_swapped = False
        self._average_model = AveragedModel(pl_module, device=device, use_buffers=self._use_buffers, **self._kwargs)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: StepOutput, batch: Any, batch_idx: int
    ) -> None:
        steps = trainer.global_step
        if steps > self._latest_update_step and self.should_update(step_idx=steps - 1):
            self._average.update_parameters(pl_module)
            self._latest_update_step = steps

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        epoch = trainer.current_epoch
        if epoch > self._latest_update_epoch and self.should_update(epoch_idx=epoch):
            self._average.update_parameters(pl_module)
            self._latest_update_epoch = epoch

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for averaged, current in self._pairs(pl_module):
            current.data.copy_(averaged.data)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._swap(pl_module)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._swap(pl_module)

    def state_dict(self) -> dict[str, Any]:
        return {"latest_update_step": self._latest_update_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._latest_update_step = state_dict["latest_update_step"]

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._average_model is None:
            rank_zero_info("The weights are saved as they are: there is no average outside of a fit.")
            return
        state = self._average_model.state_dict()
        average = {name[len(PREFIX) :]: value for name, value in state.items() if name.startswith(PREFIX)}
        current = checkpoint["state_dict"]
        if self._is_swapped:
            # A validation was interrupted, for which they had changed places.
            average, current = current, average
        checkpoint["current_model_state"], checkpoint["state_dict"] = current, average
        checkpoint["averaging_state"] = {name: value for name, value in state.items() if not name.startswith(PREFIX)}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._average_model is None:
            rank_zero_info("The checkpoint's average is used as the weights; it isn't continued outside of a fit.")
        elif "current_model_state" in checkpoint and "averaging_state" in checkpoint:
            state = {f"{PREFIX}{name}": value for name, value in checkpoint["state_dict"].items()}
            self._average_model.load_state_dict({**state, **checkpoint["averaging_state"]})
            pl_module.load_state_dict(checkpoint["current_model_state"])
        else:
            rank_zero_warn("The checkpoint has no average of the weights: averaging begins with its weights.")
            self._average_model.module.load_state_dict(copy.deepcopy(checkpoint["state_dict"]), strict=False)

    @property
    def _average(self) -> AveragedModel:
        assert self._average_model is not None, "there is an average from setup on"
        return self._average_model

    def _pairs(self, module: LightningModule) -> Iterator[tuple[Tensor, Tensor]]:
        """Parameters and buffers of average and model."""
        averaged = self._average.module
        return zip(
            itertools.chain(averaged.parameters(), averaged.buffers()),
            itertools.chain(module.parameters(), module.buffers()),
            strict=True,
        )

    def _swap(self, module: LightningModule) -> None:
        if self._average_model is None:
            return
        self._is_swapped = not self._is_swapped
        for averaged, current in self._pairs(module):
            kept = averaged.data.clone()
            averaged.data.copy_(current.data)
            current.data.copy_(kept)


class EMAWeightAveraging(WeightAveraging):
    """Averages the weights exponentially: recent ones weigh more.

    Args:
        device: where the average is kept; None: where the model is.
        use_buffers: whether buffers are averaged too.
        decay: the part of the average that stays at an update.
        update_every_n_steps: optimiser steps between updates.
        update_starting_at_step: the first step (counted from 0) to be taken in; None: from the start.
        update_starting_at_epoch: from this epoch on, the end of each epoch is an update as well; None: never.
        kwargs: for :class:`~torch.optim.swa_utils.AveragedModel`.
    """

    def __init__(
        self,
        device: torch.device | str | int | None = None,
        use_buffers: bool = True,
        decay: float = 0.999,
        update_every_n_steps: int = 1,
        update_starting_at_step: int | None = None,
        update_starting_at_epoch: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(device=device, use_buffers=use_buffers, avg_fn=get_ema_avg_fn(decay), **kwargs)
        self.update_every_n_steps = update_every_n_steps
        self.update_starting_at_step = update_starting_at_step
        self.update_starting_at_epoch = update_starting_at_epoch

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        """Tell whether the average takes in the weights now."""
        if step_idx is not None:
            has_begun = self.update_starting_at_step is None or step_idx >= self.update_starting_at_step
            if has_begun and self.update_every_n_steps > 0 and step_idx % self.update_every_n_steps == 0:
                return True
        if epoch_idx is not None:
            return self.update_starting_at_epoch is not None and epoch_idx >= self.update_starting_at_epoch
        return False
