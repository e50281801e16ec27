"""Metrics, hyperparameters and graphs as event files of TensorBoard."""

from __future__ import annotations

import importlib.util
import os
import warnings
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from unstuck.loggers.files import filesystem_of, join, next_version
from unstuck.loggers.hyperparameters import as_dictionary, flatten, write_yaml
from unstuck.loggers.logger import Logger, rank_zero_experiment
from unstuck.messages import rank_zero_only, rank_zero_warn

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["TensorBoardLogger", "tensorboard_is_installed"]


def tensorboard_is_installed() -> bool:
    """Tell whether the library tensorboard can be imported, without importing it."""
    return importlib.util.find_spec("tensorboard") is not None


class TensorBoardLogger(Logger):
    """Writes event files of TensorBoard to ``<save_dir>/<name>/version_<n>/<sub_dir>`` and hyperparameters beside them.

    Args:
        save_dir: directory, or URL that tensorboard understands.
        name: of the experiment; ``""`` or None to leave that level out.
        version: number of the run, or the name of its directory; None for the next free number.
        log_graph: whether the model's graph is written when training begins. The model must have an
            ``example_input_array``.
        default_hp_metric: whether hyperparameters that come without metrics are written with a ``hp_metric`` of -1, as
            TensorBoard shows no run without a metric among them.
        prefix: put before every key, with ``-`` between.
        sub_dir: directory below the version's, for the event files.
        kwargs: for :class:`torch.utils.tensorboard.SummaryWriter`: ``comment``, ``filename_suffix``, ``max_queue``,
            ``flush_secs``.

    Raises:
        ModuleNotFoundError: when the library tensorboard isn't installed.
    """

    LOGGER_JOIN_CHAR = "-"
    NAME_HPARAMS_FILE = "hparams.yaml"

    def __init__(
        self,
        save_dir: str | Path,
        name: str | None = "lightning_logs",
        version: int | str | None = None,
        log_graph: bool = False,
        default_hp_metric: bool = True,
        prefix: str = "",
        sub_dir: str | Path | None = None,
        **kwargs: Any,
    ) -> None:
        if not tensorboard_is_installed():
            raise ModuleNotFoundError(
                "TensorBoardLogger needs the library tensorboard, which isn't installed: `pip install tensorboard`."
                " CSVLogger needs nothing."
            )
        self._save_dir = os.fspath(save_dir)
        self._name = name or ""
        self._version = version
        self._log_graph = log_graph
        self._default_hp_metric = default_hp_metric
        self._prefix = prefix
        self._sub_dir = None if sub_dir is None else os.fspath(sub_dir)
        self._kwargs = kwargs
        self._experiment: SummaryWriter | None = None
        self.hparams: dict[str, Any] = {}

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
    def sub_dir(self) -> str | None:
        """Directory below the version's, None for none."""
        return self._sub_dir

    @property
    def log_dir(self) -> str:
        version = self.version if isinstance(self.version, str) else f"version_{self.version}"
        log_dir = join(self.root_dir, version, *([self.sub_dir] if self.sub_dir is not None else []))
        return os.path.expanduser(os.path.expandvars(log_dir))

    @property
    @rank_zero_experiment
    def experiment(self) -> SummaryWriter:
        """The :class:`torch.utils.tensorboard.SummaryWriter`. The first access makes the directory."""
        if self._experiment is None:
            from torch.utils.tensorboard import SummaryWriter

            filesystem, directory = filesystem_of(self.log_dir)
            filesystem.makedirs(directory, exist_ok=True)
            self._experiment = SummaryWriter(log_dir=self.log_dir, **self._kwargs)
        return self._experiment

    @rank_zero_only
    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, metrics: dict[str, Any] | None = None, step: int | None = None
    ) -> None:
        """Write hyperparameters to the event file, and keep them for ``hparams.yaml``.

        Args:
            params: by name, maybe nested.
            metrics: by name, to compare the runs by; None for ``hp_metric`` = -1, unless ``default_hp_metric`` is off.
            step: of these metrics.
        """
        own = as_dictionary(params)
        self.hparams.update(own)
        if metrics is None:
            metrics = {"hp_metric": -1} if self._default_hp_metric else {}
        elif not isinstance(metrics, dict):
            metrics = {"hp_metric": metrics}
        if not metrics:
            return
        from torch.utils.tensorboard.summary import hparams

        self.log_metrics(metrics, 0 if step is None else step)
        writer: SummaryWriter = self.experiment
        for summary in hparams(flatten(own), metrics):
            writer._get_file_writer().add_summary(summary)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write numbers.

        Args:
            metrics: by key. A dictionary of numbers is drawn as one diagram with several curves.
            step: at which they were measured.

        Raises:
            ValueError: when a value is neither.
        """
        writer: SummaryWriter = self.experiment
        for name, value in metrics.items():
            key = f"{self._prefix}{self.LOGGER_JOIN_CHAR}{name}" if self._prefix else name
            if isinstance(value, dict):
                writer.add_scalars(key, value, step)
                continue
            number = value.item() if isinstance(value, Tensor) else value
            try:
                writer.add_scalar(key, number, step)
            except Exception as error:
                raise ValueError(f"The metric {key!r} is a {type(value).__name__}, which is no number.") from error

    @rank_zero_only
    def log_histogram(self, name: str, values: Tensor, step: int | None = None) -> None:
        """Write a histogram.

        Args:
            name: its key.
            values: the numbers, in a tensor of any shape.
            step: at which they were there.
        """
        key = f"{self._prefix}{self.LOGGER_JOIN_CHAR}{name}" if self._prefix else name
        self.experiment.add_histogram(key, values.detach().float().cpu(), step)

    @rank_zero_only
    def log_graph(self, model: nn.Module, input_array: Tensor | None = None) -> None:
        """Write the model's graph, if the logger was told so.

        Args:
            model: the module.
            input_array: an input to trace it with; None for the model's ``example_input_array``.
        """
        if not self._log_graph:
            return
        example = getattr(model, "example_input_array", None) if input_array is None else input_array
        if not isinstance(example, (Tensor, tuple)):
            rank_zero_warn(
                "The model's graph isn't written to TensorBoard: it needs an `example_input_array` that is a tensor or"
                f" a tuple, but it is a {type(example).__name__}."
            )
            return
        from unstuck.trainer.data.transfer import move_data_to_device

        device = next((parameter.device for parameter in model.parameters()), None)
        if device is not None:
            example = move_data_to_device(example, device)
        try:
            with warnings.catch_warnings():
                # torch warns that its tracer is deprecated, but TensorBoard knows no other form of a graph.
                warnings.simplefilter("ignore", DeprecationWarning)
                self.experiment.add_graph(model, example)
        except Exception as error:  # noqa: BLE001 - a drawing must not stop a training
            rank_zero_warn(f"The model's graph isn't written to TensorBoard, as it can't be traced: {error}")

    @rank_zero_only
    def save(self) -> None:
        """Write everything to the event file, and the hyperparameters to ``hparams.yaml`` if it isn't there yet."""
        if self._experiment is not None:
            self._experiment.flush()
        path = join(self.log_dir, self.NAME_HPARAMS_FILE)
        filesystem, inner = filesystem_of(path)
        if not filesystem.isfile(inner) and filesystem.isdir(filesystem_of(self.log_dir)[1]):
            write_yaml(path, self.hparams)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write and close the event file."""
        if self._experiment is not None:
            self._experiment.flush()
            self._experiment.close()
            if status == "success":
                self.save()

    def __getstate__(self) -> dict[str, Any]:
        # The writer owns a thread; a copy opens its own.
        return {**self.__dict__, "_experiment": None}
