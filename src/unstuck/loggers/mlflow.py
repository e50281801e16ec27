"""Metrics, hyperparameters and checkpoints in runs of MLflow."""

from __future__ import annotations

import os
import re
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from unstuck.loggers.checkpoint_files import describe, new_checkpoint_files
from unstuck.loggers.hyperparameters import as_dictionary, flatten, write_yaml
from unstuck.loggers.logger import Logger, rank_zero_experiment
from unstuck.loggers.optional import require
from unstuck.messages import rank_zero_only, rank_zero_warn

__all__ = ["MLFlowLogger"]

FILE = "file:"
# MLflow's own limits.
LONGEST_VALUE = 500
PARAMETERS_AT_ONCE = 100
METRICS_AT_ONCE = 1000
STATUSES = {"success": "FINISHED", "finished": "FINISHED", "failed": "FAILED"}


_OURS: set[str] = set()
"""URIs that loggers have put into the environment."""


class MLFlowLogger(Logger):
    """Writes to a run of MLflow.

    Args:
        experiment_name: of the experiment; it is made if there is none of that name.
        run_name: of the run, to be shown.
        tracking_uri: of the store; None for the variable ``MLFLOW_TRACKING_URI``, else for files in ``save_dir`` or,
            where MLflow doesn't take files any more, for the database ``mlflow.db`` there.
        tags: of the run.
        save_dir: see there.
        log_model: whether checkpoints are kept as artifacts: True for those that are left at the end, ``"all"`` for
            each as it is written.
        prefix: put before every key, with ``-`` between.
        artifact_location: where the experiment keeps artifacts; None for the store's own place.
        run_id: of a run to go on with.
        synchronous: whether MLflow writes before a call returns; None for its own way.

    Raises:
        ModuleNotFoundError: the library mlflow isn't installed.
    """

    LOGGER_JOIN_CHAR = "-"

    def __init__(
        self,
        experiment_name: str = "lightning_logs",
        run_name: str | None = None,
        tracking_uri: str | None = None,
        tags: dict[str, Any] | None = None,
        save_dir: str | None = "./mlruns",
        log_model: Literal["all"] | bool = False,
        prefix: str = "",
        artifact_location: str | None = None,
        run_id: str | None = None,
        synchronous: bool | None = None,
    ) -> None:
        require("mlflow", "MLFlowLogger", "mlflow")
        self._experiment_name = experiment_name
        self._run_name = run_name
        self._save_dir = None if save_dir is None else os.fspath(save_dir)
        self._tracking_uri = tracking_uri or _uri_of_environment()
        self.tags = dict(tags or {})
        self._log_model = log_model
        self._prefix = prefix
        self._artifact_location = artifact_location
        self._run_id = run_id
        self._batch_options = {} if synchronous is None else {"synchronous": synchronous}
        self._experiment_id: str | None = None
        self._client: Any = None
        self._seen_checkpoints: dict[str, float] = {}
        self._checkpoint_callback: Any = None

    @property
    def name(self) -> str | None:
        return self.experiment_id

    @property
    def version(self) -> str | None:
        return self.run_id

    @property
    def save_dir(self) -> str | None:
        uri = self._tracking_uri
        if uri is None:
            return self._save_dir
        return uri[len(FILE) :] if uri.startswith(FILE) else None

    @property
    def run_id(self) -> str | None:
        """Id of the run; asking for it begins it."""
        _ = self.experiment
        return self._run_id

    @property
    def experiment_id(self) -> str | None:
        """Id of the experiment; asking for it makes it."""
        _ = self.experiment
        return self._experiment_id

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """MLflow's client. The first access begins the run."""
        if self._client is None:
            import mlflow

            client = self._open_store()
            # For what the user calls of MLflow. It puts the URI into the environment, too.
            _OURS.add(str(self._tracking_uri))
            mlflow.set_tracking_uri(self._tracking_uri)
            if self._run_id is not None:
                self._experiment_id = client.get_run(self._run_id).info.experiment_id
            else:
                found = client.get_experiment_by_name(self._experiment_name)
                if found is not None and found.lifecycle_stage != "deleted":
                    self._experiment_id = found.experiment_id
                else:
                    location = self._artifact_location
                    self._experiment_id = client.create_experiment(self._experiment_name, artifact_location=location)
                self._run_id = self._begin_run(client)
            self._client = client
        return self._client

    def _open_store(self) -> Any:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        if self._tracking_uri is not None:
            return MlflowClient(self._tracking_uri)
        directory = self._save_dir or "./mlruns"
        try:
            client = MlflowClient(f"{FILE}{directory}")
            self._tracking_uri = f"{FILE}{directory}"
        except MlflowException:
            # Newer ones write files only where that is asked for.
            os.makedirs(directory, exist_ok=True)
            self._tracking_uri = f"sqlite:///{os.path.join(directory, 'mlflow.db')}"
            self._artifact_location = self._artifact_location or os.path.abspath(os.path.join(directory, "artifacts"))
            client = MlflowClient(self._tracking_uri)
        return client

    def _begin_run(self, client: Any) -> str:
        from mlflow.tracking.context.registry import resolve_tags

        tags = {**self.tags, **({"mlflow.runName": self._run_name} if self._run_name is not None else {})}
        run = client.create_run(experiment_id=self._experiment_id, tags=resolve_tags(tags))
        return str(run.info.run_id)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Write hyperparameters; MLflow keeps the first 500 characters of a value."""
        from mlflow.entities import Param

        made = [Param(key, str(value)[:LONGEST_VALUE]) for key, value in flatten(as_dictionary(params)).items()]
        client, run_id = self.experiment, self.run_id
        for begin in range(0, len(made), PARAMETERS_AT_ONCE):
            client.log_batch(run_id, params=made[begin : begin + PARAMETERS_AT_ONCE], **self._batch_options)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write numbers. Characters of a key that MLflow doesn't take are left out; texts are, too.

        Args:
            metrics: by key.
            step: at which they were measured; None for 0.
        """
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        made = []
        for name, value in metrics.items():
            if isinstance(value, str):
                rank_zero_warn(f"MLflow takes no text as a metric: {name}={value!r} is left out.")
                continue
            key = f"{self._prefix}{self.LOGGER_JOIN_CHAR}{name}" if self._prefix else name
            taken = re.sub(r"[^a-zA-Z0-9_/. -]+", "", key)
            if taken != key:
                rank_zero_warn(f"MLflow takes only letters, digits and '_/. -' in a key: {key} becomes {taken}.")
            made.append(Metric(taken, float(value), now, step or 0))
        client, run_id = self.experiment, self.run_id
        for begin in range(0, len(made), METRICS_AT_ONCE):
            client.log_batch(run_id, metrics=made[begin : begin + METRICS_AT_ONCE], **self._batch_options)

    # Checkpoints and the end.

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """A checkpoint was written: keep it now or at the end."""
        if self._log_model == "all" or (self._log_model is True and checkpoint_callback.save_top_k == -1):
            self._keep(checkpoint_callback)
        elif self._log_model:
            self._checkpoint_callback = checkpoint_callback

    @rank_zero_only
    def finalize(self, status: str = "success") -> None:
        """The run has ended."""
        if self._client is None:
            return
        if self._checkpoint_callback is not None:
            self._keep(self._checkpoint_callback)
        self._client.set_terminated(self._run_id, STATUSES.get(status, status))

    def _keep(self, callback: Any) -> None:
        client, run_id = self.experiment, self.run_id
        for file in new_checkpoint_files(callback, self._seen_checkpoints):
            folder = Path(file.path).stem
            client.log_artifact(run_id, file.path, folder)
            with tempfile.TemporaryDirectory() as directory:
                write_yaml(os.path.join(directory, "metadata.yaml"), describe(file, callback))
                Path(directory, "aliases.txt").write_text(str(list(file.aliases)), encoding="utf-8")
                client.log_artifacts(run_id, directory, folder)

    def __getstate__(self) -> dict[str, Any]:
        # Another process goes on with the same run, by its id.
        return {**self.__dict__, "_client": None, "_checkpoint_callback": None}


def _uri_of_environment() -> str | None:
    """The store that the user has named in the environment."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    return None if uri in _OURS else uri
