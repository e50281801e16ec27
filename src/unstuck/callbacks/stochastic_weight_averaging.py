"""Stochastic weight averaging: the mean of the weights at the ends of late epochs, at a rate of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import SWALR

from unstuck.callbacks.callback import Callback
from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_info, rank_zero_warn
from unstuck.trainer.schedulers import LRSchedulerConfig

if TYPE_CHECKING:
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["StochasticWeightAveraging"]

AverageFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
CPU = torch.device("cpu")


class StochasticWeightAveraging(Callback):
    """Trains at a constant rate from some epoch on, and averages the weights with which these epochs begin.

    After the last epoch the model has the average. Where it has batch norms, one more pass over the training data
    follows, without learning, to find the statistics that belong to the average. As in Lightning the weights that the
    very last epoch ends with take no part.

    Args:
        swa_lrs: the rate, or one for each parameter group.
        swa_epoch_start: the first epoch, counted from 1 (int), or after which part of the epochs it comes (float).
        annealing_epochs: epochs in which the rate goes over to ``swa_lrs``.
        annealing_strategy: ``"cos"`` or ``"linear"``.
        avg_fn: takes an averaged parameter, the model's and how many models are in the average, and returns the new
            average; None for the mean.
        device: where the average is kept; None: where the model is.

    Raises:
        MisconfigurationException: an argument out of its range; at the start, more than one optimiser or scheduler.
    """

    def __init__(
        self,
        swa_lrs: float | list[float],
        swa_epoch_start: int | float = 0.8,
        annealing_epochs: int = 10,
        annealing_strategy: Literal["cos", "linear"] = "cos",
        avg_fn: AverageFunction | None = None,
        device: torch.device | str | None = CPU,
    ) -> None:
        if isinstance(swa_epoch_start, float) and not 0 <= swa_epoch_start <= 1:
            raise MisconfigurationException(f"`swa_epoch_start={swa_epoch_start}` as a part should be in [0, 1].")
        if isinstance(swa_epoch_start, int) and swa_epoch_start < 1:
            raise MisconfigurationException(f"`swa_epoch_start={swa_epoch_start}` as an epoch should be at least 1.")
        rates = swa_lrs if isinstance(swa_lrs, list) else [swa_lrs]
        if not all(isinstance(rate, float) and rate > 0 for rate in rates):
            raise MisconfigurationException(f"`swa_lrs={swa_lrs!r}` should be a float above 0, or a list of them.")
        if avg_fn is not None and not callable(avg_fn):
            raise MisconfigurationException(f"`avg_fn={avg_fn!r}` should be callable.")
        if device is not None and not isinstance(device, (torch.device, str)):
            raise MisconfigurationException(f"`device={device!r}` should be a torch.device or its name.")
        self.n_averaged: Tensor | None = None
        self._swa_epoch_start = swa_epoch_start
        self._swa_lrs = swa_lrs
        self._annealing_epochs = annealing_epochs
        self._annealing_strategy: Literal["cos", "linear"] = annealing_strategy
        self._avg_fn = avg_fn or self.avg_fn
        self._device = device
        self._average_model: Any = None
        self._swa_scheduler: SWALR | None = None
        self._scheduler_state: dict[str, Any] | None = None
        self._init_n_averaged = 0
        self._latest_update_epoch = -1
        self._max_epochs = -1
        self._has_batch_norm = False
        self._accumulate_grad_batches: int | None = None
        self.momenta: dict[_BatchNorm, float | None] = {}

    @property
    def swa_start(self) -> int:
        """The first epoch, counted from 0."""
        assert isinstance(self._swa_epoch_start, int), "a part of the epochs becomes a number in on_fit_start"
        return max(self._swa_epoch_start - 1, 0)

    @property
    def swa_end(self) -> float:
        """The last epoch, counted from 0; infinite without one."""
        return float("inf") if self._max_epochs == -1 else self._max_epochs - 1

    @staticmethod
    def pl_module_contains_batch_norm(pl_module: LightningModule) -> bool:
        """Tell whether a model has batch norms."""
        return any(isinstance(module, _BatchNorm) for module in pl_module.modules())

    @staticmethod
    def avg_fn(averaged_model_parameter: Tensor, model_parameter: Tensor, num_averaged: Tensor) -> Tensor:
        """Return the mean of an averaged parameter and one more."""
        return averaged_model_parameter + (model_parameter - averaged_model_parameter) / (num_averaged + 1)

    @staticmethod
    def update_parameters(
        average_model: nn.Module, model: nn.Module, n_averaged: Tensor, avg_fn: AverageFunction
    ) -> None:
        """Take a model's parameters into an average of ``n_averaged`` models, and count it."""
        with torch.no_grad():
            for averaged, own in zip(average_model.parameters(), model.parameters(), strict=True):
                current = own.detach().to(averaged.device)
                number = n_averaged.to(averaged.device)
                averaged.copy_(current if n_averaged == 0 else avg_fn(averaged.detach(), current, number))
        n_averaged += 1

    @staticmethod
    def transfer_weights(src_pl_module: nn.Module, dst_pl_module: nn.Module) -> None:
        """Copy the parameters of one model to another one."""
        with torch.no_grad():
            for source, target in zip(src_pl_module.parameters(), dst_pl_module.parameters(), strict=True):
                target.copy_(source.to(target.device))

    def reset_batch_norm_and_save_state(self, pl_module: LightningModule) -> None:
        """Let batch norms forget their statistics and average all batches that come equally."""
        self.momenta = {}
        for module in pl_module.modules():
            if isinstance(module, _BatchNorm):
                self.momenta[module] = module.momentum
                module.reset_running_stats()
                module.momentum = None

    def reset_momenta(self) -> None:
        """Give batch norms their momentum back."""
        for module, momentum in self.momenta.items():
            module.momentum = momentum

    # Hooks.

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            self._average_model = copy.deepcopy(pl_module)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if len(trainer.optimizers) != 1:
            raise MisconfigurationException(
                f"`StochasticWeightAveraging` needs one optimizer; there are {len(trainer.optimizers)}."
            )
        if len(trainer.lr_scheduler_configs) > 1:
            raise MisconfigurationException(
                "`StochasticWeightAveraging` replaces a learning rate scheduler, but can't replace several."
            )
        if isinstance(self._swa_epoch_start, float):
            if trainer.max_epochs == -1:
                raise MisconfigurationException(
                    "With `max_epochs=-1` there is no part of all epochs: `swa_epoch_start` should be an int."
                )
            self._swa_epoch_start = int(trainer.max_epochs * self._swa_epoch_start)
        if self.pl_module_contains_batch_norm(pl_module) and not pl_module.automatic_optimization:
            raise MisconfigurationException(
                "`StochasticWeightAveraging` can't find the statistics of batch norms in manual optimization, where"
                " `training_step` learns in any case."
            )
        self._max_epochs = trainer.max_epochs
        self._has_batch_norm = self.pl_module_contains_batch_norm(pl_module)
        if self._has_batch_norm and self._max_epochs != -1:
            # One epoch more, for the statistics.
            trainer.fit_loop.max_epochs = self._max_epochs + 1
        if self._scheduler_state is not None:
            # The scheduler in the checkpoint is ours, so it fits no other one.
            trainer.lr_scheduler_configs.clear()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # A fit that goes on within an epoch has no start of that epoch.
        if self._scheduler_state is not None and self.swa_start <= trainer.current_epoch <= self.swa_end:
            self._begin(trainer, pl_module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        epoch = trainer.current_epoch
        if self.swa_start <= epoch <= self.swa_end:
            if self._swa_scheduler is None:
                self._begin(trainer, pl_module)
            if epoch > self._latest_update_epoch:
                assert self.n_averaged is not None
                self.update_parameters(self._average_model, pl_module, self.n_averaged, self._avg_fn)
                self._latest_update_epoch = epoch
        elif epoch == self.swa_end + 1:
            self.transfer_weights(self._average_model, pl_module)
            self.reset_batch_norm_and_save_state(pl_module)
            trainer.fit_loop._skip_backward = True

    def _begin(self, trainer: Trainer, module: LightningModule) -> None:
        """From here on the rate is ours."""
        self._average_model = self._average_model.to(module.device if self._device is None else self._device)
        (optimizer,) = trainer.optimizers
        groups = optimizer.param_groups
        rates = self._swa_lrs if isinstance(self._swa_lrs, list) else [self._swa_lrs] * len(groups)
        for group, rate in zip(groups, rates, strict=True):
            group["initial_lr"] = rate
        present = [group["lr"] for group in groups]
        last_epoch = trainer.max_epochs if self._annealing_strategy == "cos" else -1
        self._swa_scheduler = SWALR(
            optimizer,
            swa_lr=rates,  # type: ignore[arg-type] # torch takes one for each group
            anneal_epochs=self._annealing_epochs,
            anneal_strategy=self._annealing_strategy,
            last_epoch=last_epoch,
        )
        if self._scheduler_state is not None:
            self._swa_scheduler.load_state_dict(self._scheduler_state)
            for group, rate in zip(groups, present, strict=True):
                group["lr"] = rate  # making the scheduler has set another one
            self._scheduler_state = None
        elif trainer.current_epoch != self.swa_start:
            rank_zero_warn(
                f"Averaging begins in epoch {trainer.current_epoch} instead of {self.swa_start}: the checkpoint that"
                " the fit goes on from has no state of `StochasticWeightAveraging`."
            )
        configs = trainer.lr_scheduler_configs
        if configs:
            before = configs[0]
            if before.interval != "epoch" or before.frequency != 1:
                rank_zero_warn(
                    f"The scheduler {type(before.scheduler).__name__} was stepped by {before.interval}; `SWALR`, which"
                    " takes its place, is stepped by epoch."
                )
            rank_zero_info(f"SWALR takes the place of the scheduler {type(before.scheduler).__name__}.")
        configs[:] = [LRSchedulerConfig(self._swa_scheduler)]
        if self.n_averaged is None:
            self.n_averaged = torch.tensor(self._init_n_averaged, dtype=torch.long, device=module.device)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.fit_loop._skip_backward = False

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        last = trainer.current_epoch - 1
        if self._has_batch_norm and self._max_epochs != -1 and last == self.swa_end + 1:
            trainer.fit_loop.max_epochs = self._max_epochs
            self.reset_momenta()
        elif (last == self.swa_end or self._max_epochs == -1) and self.n_averaged is not None:
            self.transfer_weights(self._average_model, pl_module)

    def state_dict(self) -> dict[str, Any]:
        return {
            "n_averaged": 0 if self.n_averaged is None else int(self.n_averaged.item()),
            "latest_update_epoch": self._latest_update_epoch,
            "scheduler_state": None if self._swa_scheduler is None else self._swa_scheduler.state_dict(),
            "average_model_state": None if self._average_model is None else self._average_model.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._init_n_averaged = state_dict["n_averaged"]
        self._latest_update_epoch = state_dict["latest_update_epoch"]
        self._scheduler_state = state_dict["scheduler_state"]
        if self._average_model is not None and state_dict["average_model_state"] is not None:
            self._average_model.load_state_dict(state_dict["average_model_state"])
