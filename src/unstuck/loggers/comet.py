"""Metrics, hyperparameters and graphs in experiments of Comet."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

from unstuck.loggers.hyperparameters import as_dictionary, plain
from unstuck.loggers.logger import Logger, rank_zero_experiment
from unstuck.loggers.optional import require
from unstuck.messages import global_rank, rank_zero_only

__all__ = ["CometLogger"]


class CometLogger(Logger):
    """Writes to an experiment of Comet.

    Args:
        api_key: of the account; None for Comet's own configuration.
        workspace: that the project belongs to.
        project: that the experiment belongs to.
        experiment_key: of an experiment to go on with.
        mode: ``"get"`` an experiment, ``"create"`` one, or ``"get_or_create"``.
        online: whether data is sent at once, or kept in a file for ``comet upload``; None for Comet's own way.
        prefix: put before every key, with ``_`` between.
        kwargs: for :class:`comet_ml.ExperimentConfig`: ``name``, ``tags``, ``offline_directory``, ...

    Raises:
        ModuleNotFoundError: the library comet_ml isn't installed.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        workspace: str | None = None,
        project: str | None = None,
        experiment_key: str | None = None,
        mode: Literal["get_or_create", "get", "create"] | None = None,
        online: bool | None = None,
        prefix: str | None = None,
        **kwargs: Any,
    ) -> None:
        require("comet_ml", "CometLogger", "comet")
        self._start_options: dict[str, Any] = {
            "api_key": api_key,
            "workspace": workspace,
            "project": project,
            "mode": mode,
            "online": online,
        }
        self._experiment_key = experiment_key
        self._project = project
        self._prefix = prefix
        self._config = kwargs
        self._experiment: Any = None
        if global_rank() == 0:
            _ = self.experiment

    @property
    def name(self) -> str | None:
        return self._project

    @property
    def version(self) -> str | None:
        return self._experiment_key

    @property
    def save_dir(self) -> str | None:
        directory: str | None = self._config.get("offline_directory")
        return directory

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """Comet's experiment; it is begun when the logger is made."""
        if self._experiment is None:
            # Comet would log by itself what it sees torch do.
            os.environ["COMET_DISABLE_AUTO_LOGGING"] = "1"
            import comet_ml

            experiment = comet_ml.start(
                **self._start_options,
                experiment_key=self._experiment_key,
                experiment_config=comet_ml.ExperimentConfig(**self._config),
            )
            self._experiment_key = experiment.get_key()
            self._project = getattr(experiment, "project_name", None) or self._project
            self._experiment = experiment
        return self._experiment

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Write hyperparameters, also nested ones."""
        self.experiment.log_parameters(plain(as_dictionary(params)))

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write numbers.

        Args:
            metrics: by key; ``"epoch"`` is Comet's epoch.
            step: at which they were measured.
        """
        numbers = {name: value.item() if isinstance(value, Tensor) else value for name, value in metrics.items()}
        epoch = numbers.pop("epoch", None)
        self.experiment.log_metrics(
            numbers, step=step, epoch=None if epoch is None else int(epoch), prefix=self._prefix
        )

    @rank_zero_only
    def log_histogram(self, name: str, values: Tensor, step: int | None = None) -> None:
        """Write a histogram of the numbers in a tensor."""
        self.experiment.log_histogram_3d(values.detach().float().cpu().numpy(), name=name, step=step)

    @rank_zero_only
    def log_graph(self, model: nn.Module, input_array: Tensor | None = None) -> None:
        """Write the model as text."""
        self.experiment.set_model_graph(str(model), overwrite=True)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """The Trainer's run has ended: send what was kept back. The experiment stays open until the program ends."""
        if self._experiment is not None:
            self._experiment.flush()

    def __getstate__(self) -> dict[str, Any]:
        # Another process goes on with the same experiment, by its key.
        return {**self.__dict__, "_experiment": None}
