"""Loggers: where metrics and hyperparameters of a run are written."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstuck.loggers.comet import CometLogger
    from unstuck.loggers.csv_logs import CSVLogger
    from unstuck.loggers.defaults import configure_loggers, default_logger
    from unstuck.loggers.logger import (
        DummyExperiment,
        DummyLogger,
        Logger,
        rank_zero_experiment,
    )
    from unstuck.loggers.mlflow import MLFlowLogger
    from unstuck.loggers.neptune import NeptuneLogger
    from unstuck.loggers.tensorboard import TensorBoardLogger
    from unstuck.loggers.wandb import WandbLogger

__all__ = [
    "CSVLogger",
    "CometLogger",
    "DummyExperiment",
    "DummyLogger",
    "Logger",
    "MLFlowLogger",
    "NeptuneLogger",
    "TensorBoardLogger",
    "WandbLogger",
    "configure_loggers",
    "default_logger",
    "rank_zero_experiment",
]

# Where a name lives. It is imported when it is asked for: most runs use few of them.
_HOMES = {
    "CSVLogger": "unstuck.loggers.csv_logs",
    "CometLogger": "unstuck.loggers.comet",
    "DummyExperiment": "unstuck.loggers.logger",
    "DummyLogger": "unstuck.loggers.logger",
    "Logger": "unstuck.loggers.logger",
    "MLFlowLogger": "unstuck.loggers.mlflow",
    "NeptuneLogger": "unstuck.loggers.neptune",
    "TensorBoardLogger": "unstuck.loggers.tensorboard",
    "WandbLogger": "unstuck.loggers.wandb",
    "configure_loggers": "unstuck.loggers.defaults",
    "default_logger": "unstuck.loggers.defaults",
    "rank_zero_experiment": "unstuck.loggers.logger",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
