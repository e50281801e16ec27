"""The loggers that a Trainer's ``logger`` argument stands for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from unstuck.loggers.csv_logs import CSVLogger
from unstuck.loggers.logger import Logger
from unstuck.loggers.tensorboard import TensorBoardLogger, tensorboard_is_installed
from unstuck.messages import rank_zero_info

__all__ = ["configure_loggers", "default_logger"]


def configure_loggers(logger: Logger | Iterable[Logger] | bool | None, save_dir: str) -> list[Logger]:
    """Return the loggers that are meant.

    Args:
        logger: one or several, True for the default one, False or None for none.
        save_dir: for the default one.

    Raises:
        TypeError: something among them is no logger.
    """
    if logger is None or logger is False:
        return []
    if logger is True:
        return [default_logger(save_dir)]
    loggers: list[Any] = list(logger) if isinstance(logger, Iterable) and not isinstance(logger, str) else [logger]
    for each in loggers:
        if isinstance(each, type) or not hasattr(each, "log_metrics"):
            raise TypeError(f"`Trainer(logger=...)` takes True, False, or objects with `log_metrics`; got {each!r}.")
    return loggers


def default_logger(save_dir: str) -> Logger:
    """Return a :class:`TensorBoardLogger`, or a :class:`CSVLogger` where tensorboard isn't installed.

    In a job of SLURM the version is the job's number, so that all its processes agree on it.

    Args:
        save_dir: directory of all experiments.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        job = None
    version = int(job) if job is not None and job.isdigit() else None
    if tensorboard_is_installed():
        return TensorBoardLogger(save_dir, version=version)
    rank_zero_info("Metrics are written to a CSV file, as tensorboard isn't installed.")
    return CSVLogger(save_dir, version=version)
