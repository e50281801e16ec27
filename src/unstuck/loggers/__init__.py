"""Loggers: where metrics and hyperparameters of a run are written."""

from unstuck.loggers.csv_logs import CSVLogger
from unstuck.loggers.defaults import configure_loggers, default_logger
from unstuck.loggers.logger import DummyExperiment, DummyLogger, Logger, rank_zero_experiment
from unstuck.loggers.tensorboard import TensorBoardLogger

__all__ = [
    "CSVLogger",
    "DummyExperiment",
    "DummyLogger",
    "Logger",
    "TensorBoardLogger",
    "configure_loggers",
    "default_logger",
    "rank_zero_experiment",
]
