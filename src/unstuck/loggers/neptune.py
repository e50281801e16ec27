"""Metrics and hyperparameters in runs of Neptune, by its client neptune-scale."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from unstuck.loggers.hyperparameters import as_dictionary, flatten
from unstuck.loggers.logger import Logger, rank_zero_experiment
from unstuck.loggers.optional import require
from unstuck.messages import rank_zero_only

__all__ = ["NeptuneLogger"]


class NeptuneLogger(Logger):
    """Writes to a run of Neptune, whose steps have to grow.

    Args:
        api_key: of the account; None for the variable ``NEPTUNE_API_TOKEN``.
        project: ``workspace/name``; None for the variable ``NEPTUNE_PROJECT``.
        name: of the experiment that the run belongs to.
        run: a run of Neptune to use instead of a new one.
        log_directory: where data is kept until it is sent; None for ``.neptune``.
        mode: ``"async"`` to send at once, ``"offline"`` to keep everything here, ``"disabled"``; None for the variable
            ``NEPTUNE_MODE``.
        prefix: put before every key, with ``/`` between.
        kwargs: for :class:`neptune_scale.Run`: ``run_id``, ``creation_time``, ...

    Raises:
        ModuleNotFoundError: the library neptune-scale isn't installed.
    """

    LOGGER_JOIN_CHAR = "/"

    def __init__(
        self,
        *,
        api_key: str | None = None,
        project: str | None = None,
        name: str | None = None,
        run: Any = None,
        log_directory: str | Path | None = None,
        mode: Literal["async", "offline", "disabled"] | None = None,
        prefix: str = "training",
        **kwargs: Any,
    ) -> None:
        require("neptune_scale", "NeptuneLogger", "neptune")
        self._options: dict[str, Any] = {
            "api_token": api_key,
            "project": project,
            "experiment_name": name,
            "log_directory": log_directory,
            "mode": mode,
            **kwargs,
        }
        self._prefix = prefix
        self._run = run

    @property
    def name(self) -> str | None:
        name: str | None = self._options["experiment_name"]
        return name

    @property
    def version(self) -> str | None:
        found = self._options.get("run_id") if self._run is None else getattr(self._run, "_run_id", None)
        return None if found is None else str(found)

    @property
    def save_dir(self) -> str | None:
        directory = self._options["log_directory"]
        return None if directory is None else str(directory)

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """Neptune's run. The first access begins it."""
        if self._run is None:
            import neptune_scale

            self._run = neptune_scale.Run(**self._options)
        return self._run

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Write hyperparameters under ``hyperparams``."""
        flat = flatten(as_dictionary(params))
        self.experiment.log_configs({self._key(f"hyperparams/{name}"): value for name, value in flat.items()})

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write numbers. Neptune takes no NaN and no infinity, so these are left out.

        Args:
            metrics: by key.
            step: at which they were measured; None for 0.
        """
        numbers = {name: float(value) for name, value in metrics.items()}
        finite = {self._key(name): value for name, value in numbers.items() if math.isfinite(value)}
        if finite:
            self.experiment.log_metrics(finite, step=step or 0)

    @rank_zero_only
    def log_histogram(self, name: str, values: Tensor, step: int | None = None) -> None:
        """Write a histogram of the numbers in a tensor."""
        import neptune_scale.types
        import numpy as np

        counts, edges = np.histogram(values.detach().float().cpu().numpy(), bins=64)
        histogram = neptune_scale.types.Histogram(bin_edges=edges.tolist(), counts=counts.tolist())
        self.experiment.log_histograms({self._key(name): histogram}, step=step or 0)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """The Trainer's run has ended: note how, and wait until everything is on disk or sent."""
        if self._run is not None:
            self._run.log_configs({self._key("status"): status})
            self._run.wait_for_submission()

    def _key(self, name: str) -> str:
        return f"{self._prefix}{self.LOGGER_JOIN_CHAR}{name}" if self._prefix else name

    def __getstate__(self) -> dict[str, Any]:
        # Another process goes on with the same run, by its id.
        return {**self.__dict__, "_run": None, "_options": {**self._options, "run_id": self.version}}
