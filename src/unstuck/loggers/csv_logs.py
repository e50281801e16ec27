"""Metrics as rows of a CSV file."""

from __future__ import annotations

import csv
import io
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from torch import Tensor

from unstuck.loggers.files import append_text, filesystem_of, join, next_version, read_text, replace_text
from unstuck.loggers.hyperparameters import as_dictionary, write_yaml
from unstuck.loggers.logger import Logger, rank_zero_experiment
from unstuck.messages import rank_zero_only, rank_zero_warn

__all__ = ["CSVLogger", "ExperimentWriter"]


class ExperimentWriter:
    """Writes ``metrics.csv`` and ``hparams.yaml`` of one run.

    Rows are appended, so what was saved is never at risk again. Columns are sorted by name; the first row with a new
    key has the file written anew with one column more.

    Args:
        log_dir: directory of the run. A ``metrics.csv`` that is there already is kept as ``metrics.previous.csv``.

    Attributes:
        metrics: rows that aren't saved yet.
        hparams: hyperparameters, by name.
    """

    NAME_METRICS_FILE = "metrics.csv"
    NAME_HPARAMS_FILE = "hparams.yaml"
    NAME_PREVIOUS_FILE = "metrics.previous.csv"

    def __init__(self, log_dir: str) -> None:
        self.log_dir = log_dir
        self.metrics: list[dict[str, Any]] = []
        self.hparams: dict[str, Any] = {}
        self.metrics_file_path = join(log_dir, self.NAME_METRICS_FILE)
        self._columns: list[str] = []
        self._rows = 0
        self._hparams_are_saved = True  # there are none yet
        filesystem, directory = filesystem_of(log_dir)
        filesystem.makedirs(directory, exist_ok=True)
        previous = filesystem_of(self.metrics_file_path)[1]
        if filesystem.exists(previous):
            filesystem.mv(previous, filesystem_of(join(log_dir, self.NAME_PREVIOUS_FILE))[1])
            rank_zero_warn(
                f"{log_dir} has metrics of another run, which are kept as {self.NAME_PREVIOUS_FILE}."
                " Give the logger another version to keep runs apart."
            )

    def log_hparams(self, params: dict[str, Any]) -> None:
        """Add hyperparameters."""
        self.hparams.update(params)
        self._hparams_are_saved = False

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Add a row.

        Args:
            metrics: by column.
            step: value of the column ``step``; None for the number of rows so far.
        """
        row: dict[str, Any] = {
            name: value.item() if isinstance(value, Tensor) else value for name, value in metrics.items()
        }
        row["step"] = self._rows if step is None else step
        self.metrics.append(row)
        self._rows += 1

    def save(self) -> None:
        """Write the hyperparameters and all rows that aren't written yet."""
        if not self._hparams_are_saved:
            write_yaml(join(self.log_dir, self.NAME_HPARAMS_FILE), self.hparams)
            self._hparams_are_saved = True
        if not self.metrics:
            return
        columns = sorted({*self._columns, *(name for row in self.metrics for name in row)})
        if columns == self._columns:
            append_text(self.metrics_file_path, _format_rows(columns, self.metrics))
        else:
            saved = csv.DictReader(io.StringIO(read_text(self.metrics_file_path), newline=""))
            replace_text(self.metrics_file_path, _format_rows(columns, [*saved, *self.metrics], header=True))
            self._columns = columns
        self.metrics = []


class CSVLogger(Logger):
    """Writes metrics to ``<save_dir>/<name>/version_<n>/metrics.csv`` and hyperparameters to ``hparams.yaml`` there.

    Args:
        save_dir: directory, or URL that fsspec understands.
        name: of the experiment; ``""`` or None to leave that level out.
        version: number of the run, or the name of its directory; None for the next free number.
        prefix: put before every key, with ``-`` between.
        flush_logs_every_n_steps: how many rows at most are kept back when nobody calls :meth:`save`. The Trainer calls
            it after each row.
    """

    LOGGER_JOIN_CHAR = "-"

    def __init__(
        self,
        save_dir: str | Path,
        name: str | None = "lightning_logs",
        version: int | str | None = None,
        prefix: str = "",
        flush_logs_every_n_steps: int = 100,
    ) -> None:
        self._save_dir = os.fspath(save_dir)
        self._name = name or ""
        self._version = version
        self._prefix = prefix
        self._flush_logs_every_n_steps = flush_logs_every_n_steps
        self._experiment: ExperimentWriter | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> int | str:
        if self._version is None:
            self._version = next_version(self.root_dir)
        return self._version

    @property
    def save_dir(self) -> str:
        return self._save_dir

    @property
    def root_dir(self) -> str:
        return join(self.save_dir, self.name)

    @property
    def log_dir(self) -> str:
        version = self.version if isinstance(self.version, str) else f"version_{self.version}"
        return join(self.root_dir, version)

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        """What writes the files. The first access makes the directory."""
        if self._experiment is None:
            self._experiment = ExperimentWriter(self.log_dir)
        return self._experiment

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace | None = None) -> None:
        """Add hyperparameters, which the next :meth:`save` writes."""
        self.experiment.log_hparams(as_dictionary(params))

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Add a row.

        Args:
            metrics: numbers or tensors with one element, by key.
            step: at which they were measured; None for the number of rows so far.
        """
        if self._prefix:
            metrics = {f"{self._prefix}{self.LOGGER_JOIN_CHAR}{name}": value for name, value in metrics.items()}
        writer: ExperimentWriter = self.experiment
        writer.log_metrics(metrics, step)
        if len(writer.metrics) >= self._flush_logs_every_n_steps:
            writer.save()

    @rank_zero_only
    def save(self) -> None:
        """Write all rows that aren't written yet."""
        self.experiment.save()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write what is left, if anything was logged."""
        if self._experiment is not None:
            self.save()


def _format_rows(columns: list[str], rows: list[dict[str, Any]], header: bool = False) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=columns)
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
