"""What a logger is, and one that does nothing."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor, nn

from unstuck.messages import global_rank

__all__ = ["DummyExperiment", "DummyLogger", "Logger", "rank_zero_experiment"]

L = TypeVar("L")


class Logger(ABC):
    """Base class of loggers.

    A subclass gives :attr:`name`, :attr:`version`, :meth:`log_metrics` and :meth:`log_hyperparams`; the rest does
    nothing unless overridden.
    """

    @property
    @abstractmethod
    def name(self) -> str | None:
        """Name of the experiment, the runs of which belong together."""

    @property
    @abstractmethod
    def version(self) -> int | str | None:
        """Version of the experiment: which run this is."""

    @property
    def root_dir(self) -> str | None:
        """Directory of all versions of the experiment, None where there is none."""
        return None

    @property
    def log_dir(self) -> str | None:
        """Directory of this version, None where there is none."""
        return None

    @property
    def save_dir(self) -> str | None:
        """Directory of all experiments, None where there is none."""
        return None

    @property
    def group_separator(self) -> str:
        """What stands between a group's name and a key, as in ``group/key``."""
        return "/"

    @abstractmethod
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Write numbers.

        Args:
            metrics: by key.
            step: at which they were measured.
        """

    @abstractmethod
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Write hyperparameters.

        Args:
            params: by name, maybe nested.
            args: what the logger takes beside.
            kwargs: what the logger takes beside.
        """

    def log_graph(self, model: nn.Module, input_array: Tensor | None = None) -> None:  # noqa: B027 - need not be overridden
        """Write the model's graph.

        Args:
            model: the module.
            input_array: an input to trace it with.
        """

    def save(self) -> None:  # noqa: B027 - need not be overridden
        """Write what was kept back."""

    def finalize(self, status: str) -> None:
        """The run has ended.

        Args:
            status: ``"success"``, ``"failed"`` or the like.
        """
        self.save()

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:  # noqa: B027 - need not be overridden
        """A checkpoint was written.

        Args:
            checkpoint_callback: the callback that wrote it.
        """


class DummyExperiment:
    """Takes every call and does nothing."""

    def nop(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.nop

    def __getitem__(self, index: Any) -> DummyExperiment:
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        """Do nothing."""


class DummyLogger(Logger):
    """Stands for a logger where nothing shall be written. It has every method of every logger, and they do nothing."""

    def __init__(self) -> None:
        self._experiment = DummyExperiment()

    @property
    def experiment(self) -> DummyExperiment:
        """Takes every call."""
        return self._experiment

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    def log_metrics(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    def __getitem__(self, index: int) -> DummyLogger:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._experiment.nop


def rank_zero_experiment(function: Callable[[L], Any]) -> Callable[[L], Any]:
    """Decorate a logger's ``experiment`` so that it is made on rank 0 only, elsewhere a :class:`DummyExperiment`."""

    @functools.wraps(function)
    def experiment(logger: L) -> Any:
        return function(logger) if global_rank() == 0 else DummyExperiment()

    return experiment
