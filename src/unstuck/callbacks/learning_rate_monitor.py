"""Writes learning rates, momenta and weight decays to the loggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.optim import Optimizer

from unstuck.callbacks.callback import Callback
from unstuck.callbacks.writing import logs_are_due, write_metrics
from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_warn

if TYPE_CHECKING:
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["LearningRateMonitor"]


class LearningRateMonitor(Callback):
    """Writes the learning rate of every parameter group, as ``lr-<optimizer>`` or by the scheduler's ``name``.

    Several groups of an optimiser get ``/pg1``, ``/pg2`` or ``/`` and their own ``"name"``; several optimisers of one
    class get ``-1`` from the second one on.

    Args:
        logging_interval: ``"step"`` (as often as ``log_every_n_steps`` says), ``"epoch"``, or None: as each scheduler
            steps, and of optimisers without one in both.
        log_momentum: write momenta (or the first beta) too, as ``<name>-momentum``.
        log_weight_decay: write weight decays too, as ``<name>-weight_decay``.

    Attributes:
        lrs: every rate that was written, by name.
        last_momentum_values: the last momentum, by name.
        last_weight_decay_values: the last weight decay, by name.

    Raises:
        MisconfigurationException: an unknown interval; at the start, a Trainer without logger, or parameter groups of
            the same name.
    """

    def __init__(
        self,
        logging_interval: Literal["step", "epoch"] | None = None,
        log_momentum: bool = False,
        log_weight_decay: bool = False,
    ) -> None:
        if logging_interval not in (None, "step", "epoch"):
            raise MisconfigurationException(
                f"`LearningRateMonitor(logging_interval={logging_interval!r})` should be 'step', 'epoch' or None."
            )
        self.logging_interval = logging_interval
        self.log_momentum = log_momentum
        self.log_weight_decay = log_weight_decay
        self.lrs: dict[str, list[float]] = {}
        self.last_momentum_values: dict[str, float | None] = {}
        self.last_weight_decay_values: dict[str, float | None] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.loggers:
            raise MisconfigurationException("`LearningRateMonitor` needs a logger; the Trainer has none.")
        if self.log_momentum and any(
            "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults
            for optimizer, _, _ in _named_optimizers(trainer)
        ):
            rank_zero_warn("Some optimizer has no momentum; 0 is logged for it.", RuntimeWarning)
        names = [name for _, names, _ in _named_optimizers(trainer) for name in names]
        self.lrs = {name: [] for name in names}
        self.last_momentum_values = {f"{name}-momentum": None for name in names}
        self.last_weight_decay_values = {f"{name}-weight_decay": None for name in names}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.logging_interval != "epoch" and logs_are_due(trainer):
            self._write(trainer, "step" if self.logging_interval is None else None)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.logging_interval != "step":
            self._write(trainer, "epoch" if self.logging_interval is None else None)

    def _write(self, trainer: Trainer, interval: str | None) -> None:
        """Write the values of the schedulers of an interval (None: of all), and of the optimisers without one."""
        found: dict[str, float] = {}
        for optimizer, names, own_interval in _named_optimizers(trainer):
            self._rename_first_group(names)
            if interval is None or own_interval in (None, interval):
                for group, name in zip(optimizer.param_groups, names, strict=True):
                    found.update(self._read(optimizer, group, name))
        device = trainer.strategy.root_device
        trainer.callback_metrics.update({name: torch.tensor(value, device=device) for name, value in found.items()})
        write_metrics(trainer, found)

    def _read(self, optimizer: Optimizer, group: dict[str, Any], name: str) -> dict[str, float]:
        found = {name: group["lr"]}
        self.lrs.setdefault(name, []).append(group["lr"])
        if self.log_momentum:
            momentum = group["betas"][0] if "betas" in optimizer.defaults else group.get("momentum", 0)
            found[f"{name}-momentum"] = self.last_momentum_values[f"{name}-momentum"] = momentum
        if self.log_weight_decay:
            decay = group["weight_decay"]
            found[f"{name}-weight_decay"] = self.last_weight_decay_values[f"{name}-weight_decay"] = decay
        return found

    def _rename_first_group(self, names: list[str]) -> None:
        # An optimiser that gets a second group meanwhile gets numbers for both.
        for name in names:
            if name.endswith("/pg1") and name[: -len("/pg1")] in self.lrs:
                self.lrs[name] = self.lrs.pop(name[: -len("/pg1")])


def _named_optimizers(trainer: Trainer) -> Iterator[tuple[Optimizer, list[str], str | None]]:
    """Each optimiser with the names of its groups and the interval of its scheduler, those with a scheduler first."""
    counts: Counter[type] = Counter()
    with_scheduler: list[Optimizer] = []
    for config in trainer.lr_scheduler_configs:
        optimizer = config.scheduler.optimizer
        with_scheduler.append(optimizer)
        yield optimizer, _names_of_groups(optimizer, config.name, counts), config.interval
    for optimizer in trainer.optimizers:
        if not any(optimizer is other for other in with_scheduler):
            yield optimizer, _names_of_groups(optimizer, None, counts), None


def _names_of_groups(optimizer: Optimizer, given: str | None, counts: Counter[type]) -> list[str]:
    kind = type(optimizer)
    counts[kind] += given is None
    name = f"lr-{kind.__name__}" if given is None else given
    if counts[kind] > 1:
        name += f"-{counts[kind] - 1}"
    groups = optimizer.param_groups
    own = [group.get("name", f"pg{index}") for index, group in enumerate(groups, start=1)]
    twice = sorted({item for item in own if own.count(item) > 1})
    if twice:
        raise MisconfigurationException(
            f"Parameter groups of {name} have the same 'name', so their rates can't be told apart: {twice}."
        )
    if len(groups) > 1:
        return [f"{name}/{item}" for item in own]
    return [f"{name}/{groups[0]['name']}" if groups[0].get("name") else name]
