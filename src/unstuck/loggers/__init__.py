"""Loggers: where metrics and hyperparameters of a run are written."""

from unstuck.loggers.comet import CometLogger
from unstuck.loggers.csv_logs import CSVLogger
from unstuck.loggers.defaults import configure_loggers, default_logger
from unstuck.loggers.logger import DummyExperiment, DummyLogger, Logger, rank_zero_experiment
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
