"""Runs a program that is examined: quietly, for a short while, and without a file in the working folder."""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from unstuck.callbacks.callback import Callback
from unstuck.loggers.logger import DummyLogger
from unstuck.trainer.trainer import Trainer
from unstuck.workflow.doctor.outcome import Plan
from unstuck.workflow.doctor.seeding import seeded
from unstuck.workflow.doctor.target import Patient

__all__ = ["OtherRate", "ShortTraining", "fitted", "validated"]


def fitted(patient: Patient, plan: Plan, **options: Any) -> Trainer:
    """Fit, without validation unless it is a fast dev run; returns the Trainer.

    Args:
        patient: trained in place.
        plan: how long it may take.
        options: of the Trainer.
    """
    if not options.get("fast_dev_run"):
        short = ShortTraining(short_epochs="overfit_batches" in options)
        options = {**options, "limit_val_batches": 0, "num_sanity_val_steps": 0}
        options["callbacks"] = [short, *options.get("callbacks", ())]
    with _aside(patient, plan) as settings, seeded():
        trainer = Trainer(**{**settings, **options})
        trainer.fit(patient.module, patient.train, patient.val, datamodule=patient.datamodule)
    return trainer


class ShortTraining(Callback):
    """Leaves out what would do in a short training what it doesn't do in a long one.

    That is callbacks and schedules that wait for a metric of the validation, of which there is none, and where an epoch
    is a batch or two schedules that move once an epoch: the optimiser keeps the rate that it was given.

    Args:
        short_epochs: whether an epoch is a batch or two.
    """

    def __init__(self, short_epochs: bool) -> None:
        self._short_epochs = short_epochs

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Keep the callbacks that monitor nothing."""
        trainer.callbacks = [item for item in trainer.callbacks if getattr(item, "monitor", None) is None]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Keep the other schedules, and put back the rates of the optimisers whose schedule is gone."""
        configs = trainer.strategy.lr_scheduler_configs
        left_out = [
            item for item in configs if item.reduce_on_plateau or (self._short_epochs and item.interval == "epoch")
        ]
        trainer.strategy.lr_scheduler_configs = [item for item in configs if item not in left_out]
        for config in left_out:
            optimizer = getattr(config.scheduler, "optimizer", None)
            for group in () if optimizer is None else optimizer.param_groups:
                if "initial_lr" in group:
                    group["lr"] = group["initial_lr"]


def validated(patient: Patient, plan: Plan, **options: Any) -> dict[str, float]:
    """Validate; returns the metrics of all loaders."""
    with _aside(patient, plan) as settings:
        trainer = Trainer(**{**settings, **options})
        found = trainer.validate(patient.module, patient.val, datamodule=patient.datamodule, verbose=False)
    return {name: float(value) for metrics in found or () for name, value in metrics.items()}


class OtherRate(Callback):
    """Trains with a multiple of the learning rate.

    Args:
        factor: on the rate of every group.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self.rate: float | None = None
        """The rate of the first group, known once the fit has begun."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Change the rates; schedules, which would put theirs in their place, are left out."""
        trainer.strategy.lr_scheduler_configs = []
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                if "lr" in group:
                    group["lr"] = float(group.get("initial_lr", group["lr"])) * self._factor
        rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups if "lr" in group]
        self.rate = rates[0] if rates else None


class _Nowhere(DummyLogger):
    """Takes everything that the program logs; what the program writes into the logger's folder is thrown away."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    @property
    def save_dir(self) -> str:
        return self._folder

    @property
    def log_dir(self) -> str:
        return self._folder

    @property
    def root_dir(self) -> str:
        return self._folder


@contextmanager
def _aside(patient: Patient, plan: Plan) -> Iterator[dict[str, Any]]:
    """The settings of a Trainer that tells nothing of itself and writes into a folder that is removed afterwards."""
    log = logging.getLogger("unstuck")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory(prefix="unstuck-doctor-") as folder, warnings.catch_warnings():
            # What the Trainer tells of its own settings is of no interest here; what the user's code warns of is.
            warnings.filterwarnings("ignore", module=r"unstuck\.")
            yield {
                "logger": _Nowhere(folder),
                "default_root_dir": folder,
                "enable_checkpointing": False,
                "enable_progress_bar": False,
                "enable_model_summary": False,
                "max_time": timedelta(seconds=plan.max_seconds),
                **patient.settings,
            }
    finally:
        log.setLevel(level)
