"""Metrics, hyperparameters and checkpoints in runs of Weights & Biases."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from unstuck.errors import MisconfigurationException
from unstuck.loggers.checkpoint_files import describe, new_checkpoint_files
from unstuck.loggers.hyperparameters import as_dictionary, plain
from unstuck.loggers.logger import Logger, rank_zero_experiment
from unstuck.loggers.optional import require
from unstuck.messages import rank_zero_only, rank_zero_warn

__all__ = ["WandbLogger"]

STEP = "trainer/global_step"
# W&B's own process keeps back for 15 seconds what it is given, and loses that when the program is killed.
FLUSH_SETTING, FLUSH_SECONDS = "x_transaction_log_flush_interval", 0.1


class WandbLogger(Logger):
    """Writes to a run of W&B. The x axis is ``trainer/global_step``.

    Args:
        name: of the run, to be shown.
        save_dir: where W&B puts its files; None for ``dir``.
        version: id of the run; one that is there already is gone on with.
        offline: whether everything stays on this machine, until ``wandb sync``.
        dir: as ``save_dir``.
        id: as ``version``.
        anonymous: whether a run without an account is allowed.
        project: that the run belongs to; None for the variable ``WANDB_PROJECT``, else ``"lightning_logs"``.
        log_model: whether checkpoints are uploaded: True for those that are left at the end, ``"all"`` for each as it
            is written.
        experiment: a run of W&B to use instead of a new one.
        prefix: put before every key, with ``-`` between.
        checkpoint_name: of the artifacts with checkpoints; None for ``model-<id>``.
        add_file_policy: of W&B, for checkpoints.
        kwargs: for :func:`wandb.init`: ``entity``, ``tags``, ``group``, ...

    Raises:
        ModuleNotFoundError: the library wandb isn't installed.
        MisconfigurationException: ``log_model`` together with ``offline``.
    """

    LOGGER_JOIN_CHAR = "-"

    def __init__(
        self,
        name: str | None = None,
        save_dir: str | Path = ".",
        version: str | None = None,
        offline: bool = False,
        dir: str | Path | None = None,  # noqa: A002 - the name is interface
        id: str | None = None,  # noqa: A002 - the name is interface
        anonymous: bool | None = None,
        project: str | None = None,
        log_model: Literal["all"] | bool = False,
        experiment: Any = None,
        prefix: str = "",
        checkpoint_name: str | None = None,
        add_file_policy: Literal["mutable", "immutable"] = "mutable",
        **kwargs: Any,
    ) -> None:
        require("wandb", "WandbLogger", "wandb")
        if offline and log_model:
            raise MisconfigurationException(
                f"`WandbLogger(offline=True, log_model={log_model!r})`: checkpoints are uploaded, which an offline run"
                " can't do."
            )
        directory = save_dir if save_dir is not None else dir
        self._save_dir = None if directory is None else os.fspath(directory)
        self._project = project or os.environ.get("WANDB_PROJECT", "lightning_logs")
        self._id = version or id
        self._log_model = log_model
        self._experiment = experiment
        self._prefix = prefix
        self._checkpoint_name = checkpoint_name
        self._seen_checkpoints: dict[str, float] = {}
        self._checkpoint_callbacks: list[Any] = []
        self.add_file_policy = add_file_policy
        self._wandb_init: dict[str, Any] = {
            "name": name,
            "project": self._project,
            "dir": self._save_dir,
            "id": self._id,
            "resume": "allow",
            **({"anonymous": "allow"} if anonymous else {}),
            **({"mode": "offline"} if offline else {}),
            **kwargs,
        }

    @property
    def name(self) -> str | None:
        return self._project

    @property
    def version(self) -> str | None:
        return self._id if self._experiment is None else self._experiment.id

    @property
    def save_dir(self) -> str | None:
        return self._save_dir

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """The run of W&B. The first access begins it, unless one is running already."""
        if self._experiment is None:
            import wandb

            if wandb.run is not None:
                rank_zero_warn(
                    "A run of W&B is going on in this process, and `WandbLogger` writes to it. Call `wandb.finish()`"
                    " first to have a run of its own."
                )
                self._experiment = wandb.run
                return self._experiment
            if self._save_dir is not None:
                os.makedirs(self._save_dir, exist_ok=True)  # else W&B takes another place
            options = dict(self._wandb_init)
            if "settings" not in options and FLUSH_SETTING in getattr(wandb.Settings, "model_fields", ()):
                options["settings"] = wandb.Settings(**{FLUSH_SETTING: FLUSH_SECONDS})
            self._experiment = wandb.init(**options)
            if self._wandb_init.get("sync_tensorboard"):
                self._experiment.define_metric("*", step_metric="global_step")
            else:
                self._experiment.define_metric(STEP)
                self._experiment.define_metric("*", step_metric=STEP, step_sync=True)
        return self._experiment

    def watch(
        self, model: nn.Module, log: str | None = "gradients", log_freq: int = 100, log_graph: bool = True
    ) -> None:
        """Let W&B look at gradients and weights of a model itself; see ``wandb.Run.watch``."""
        self.experiment.watch(model, log=log, log_freq=log_freq, log_graph=log_graph)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Write hyperparameters to the run's config."""
        self.experiment.config.update(plain(as_dictionary(params)), allow_val_change=True)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write numbers, or objects of W&B.

        Args:
            metrics: by key.
            step: at which they were measured.
        """
        row = {self._key(name): value for name, value in metrics.items()}
        if step is not None and not self._wandb_init.get("sync_tensorboard"):
            row[STEP] = step
        self.experiment.log(row)

    @rank_zero_only
    def log_histogram(self, name: str, values: Tensor, step: int | None = None) -> None:
        """Write a histogram of the numbers in a tensor."""
        import wandb

        self.log_metrics({name: wandb.Histogram(values.detach().float().cpu().numpy())}, step)

    @rank_zero_only
    def log_table(
        self,
        key: str,
        columns: list[str] | None = None,
        data: list[list[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Write a table, of any objects of W&B.

        Args:
            key: its key.
            columns: names of its columns.
            data: its rows.
            dataframe: a dataframe instead of columns and rows.
            step: at which it was made.
        """
        import wandb

        self.log_metrics({key: wandb.Table(columns=columns, data=data, dataframe=dataframe)}, step)

    @rank_zero_only
    def log_text(
        self,
        key: str,
        columns: list[str] | None = None,
        data: list[list[str]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Write texts as a table; see :meth:`log_table`."""
        self.log_table(key, columns, data, dataframe, step)

    @rank_zero_only
    def log_image(self, key: str, images: list[Any], step: int | None = None, **kwargs: Any) -> None:
        """Write images.

        Args:
            key: their key.
            images: tensors, arrays, images of PIL, or paths.
            step: at which they were made.
            kwargs: lists of what each image gets: ``caption``, ``masks``, ``boxes``, ...
        """
        self._log_media("Image", key, images, step, kwargs)

    @rank_zero_only
    def log_audio(self, key: str, audios: list[Any], step: int | None = None, **kwargs: Any) -> None:
        """Write sounds; ``kwargs`` are lists of what each gets: ``caption``, ``sample_rate``, ..."""
        self._log_media("Audio", key, audios, step, kwargs)

    @rank_zero_only
    def log_video(self, key: str, videos: list[Any], step: int | None = None, **kwargs: Any) -> None:
        """Write videos; ``kwargs`` are lists of what each gets: ``caption``, ``fps``, ``format``, ..."""
        self._log_media("Video", key, videos, step, kwargs)

    def _log_media(self, kind: str, key: str, items: list[Any], step: int | None, kwargs: dict[str, Any]) -> None:
        import wandb

        if not isinstance(items, list):
            raise TypeError(f"`{key}` should be a list, got {type(items).__name__}.")
        for name, values in kwargs.items():
            if len(values) != len(items):
                raise ValueError(f"`{name}` has {len(values)} items, but there are {len(items)} of {key!r}.")
        each = [{name: values[index] for name, values in kwargs.items()} for index in range(len(items))]
        make = getattr(wandb, kind)
        self.log_metrics({key: [make(item, **own) for item, own in zip(items, each, strict=True)]}, step)

    # Checkpoints.

    def after_save_checkpoint(self, checkpoint_callback: Any) -> None:
        """A checkpoint was written: upload it now or at the end."""
        if self._log_model == "all" or (self._log_model is True and checkpoint_callback.save_top_k == -1):
            self._upload(checkpoint_callback)
        elif self._log_model and all(checkpoint_callback is not other for other in self._checkpoint_callbacks):
            self._checkpoint_callbacks.append(checkpoint_callback)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """The Trainer's run has ended: upload checkpoints. The run of W&B stays open until the program ends."""
        if status == "success" and self._experiment is not None:
            for callback in self._checkpoint_callbacks:
                self._upload(callback)

    def _upload(self, callback: Any) -> None:
        import wandb

        name = self._checkpoint_name or f"model-{self.experiment.id}"
        for file in new_checkpoint_files(callback, self._seen_checkpoints):
            artifact = wandb.Artifact(name=name, type="model", metadata=describe(file, callback))
            artifact.add_file(file.path, name="model.ckpt", policy=self.add_file_policy)
            self.experiment.log_artifact(artifact, aliases=list(file.aliases))

    @staticmethod
    def download_artifact(
        artifact: str,
        save_dir: str | Path | None = None,
        artifact_type: str | None = None,
        use_artifact: bool | None = True,
    ) -> str:
        """Download an artifact.

        Args:
            artifact: its path at W&B.
            save_dir: where to; None for W&B's own place.
            artifact_type: its type.
            use_artifact: whether the running run, if there is one, is noted as its user.

        Returns:
            Where it is.
        """
        import wandb

        if wandb.run is not None and use_artifact:
            found: Any = wandb.run.use_artifact(artifact)
        else:
            found = wandb.Api().artifact(artifact, type=artifact_type)
        return str(found.download(root=None if save_dir is None else os.fspath(save_dir)))

    def use_artifact(self, artifact: str, artifact_type: str | None = None) -> Any:
        """Note that the run uses an artifact, and return it."""
        return self.experiment.use_artifact(artifact, type=artifact_type)

    def _key(self, name: str) -> str:
        return f"{self._prefix}{self.LOGGER_JOIN_CHAR}{name}" if self._prefix else name

    def __getstate__(self) -> dict[str, Any]:
        # Another process goes on with the same run, by its id.
        version = self.version
        return {
            **self.__dict__,
            "_experiment": None,
            "_id": version,
            "_wandb_init": {**self._wandb_init, "id": version},
            "_checkpoint_callbacks": [],
        }
