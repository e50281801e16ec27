"""Saving checkpoints during a fit: the best, the last, all, in time, and when it fails."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import proxy

import torch
from torch import Tensor

from unstuck.callbacks.checkpoint import Checkpoint
from unstuck.callbacks.checkpoint_names import fill_template
from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_info, rank_zero_warn
from unstuck.trainer.checkpoints.files import exists, filesystem_of, is_remote, link_file, list_files, local_path
from unstuck.trainer.checkpoints.finite import nonfinite_weight

if TYPE_CHECKING:
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["ModelCheckpoint"]


class ModelCheckpoint(Checkpoint):
    """Saves checkpoints, keeps the best of them and removes the others.

    Without arguments it keeps one checkpoint, that of the newest epoch. Weights that aren't finite are never saved, so
    they replace no checkpoint and push none out of the best ones; a warning tells of it.

    Several of these work side by side if they differ in ``monitor``, ``mode`` or in when they save.

    Args:
        dirpath: the folder, local or an address for fsspec; None: the logger's folder, or
            ``default_root_dir/checkpoints`` without a logger.
        filename: a template such as ``"{epoch}-{val_loss:.2f}"``, in which metrics, ``epoch`` and ``step`` can stand;
            None: ``"{epoch}-{step}"``.
        monitor: the metric that says which are the best; None: the newest is.
        verbose: whether each saving is told.
        save_last: whether ``last.ckpt`` is saved whenever it is time to save, be it one of the best or not; "link": a
            symbolic link to what was saved last.
        save_top_k: how many of the best are kept; -1: all; 0: none.
        save_on_exception: whether a checkpoint of the last completed step is saved when the fit is ended by an
            exception, Ctrl-C or SIGTERM. Ctrl-C then lets the batch come to its end first.
        save_weights_only: whether only weights and hyperparameters are saved.
        mode: "min" or "max": whether the lowest or the highest value of ``monitor`` is the best.
        auto_insert_metric_name: whether the names of metrics stand in file names before their values.
        every_n_train_steps: save after every n optimiser steps.
        train_time_interval: save when this time has gone by, at the end of a batch.
        every_n_epochs: save after every n epochs (1 where neither of the two others is given; 0: never).
        save_on_train_epoch_end: whether it is at the end of an epoch, or else of a validation; None: after the
            validation where there is one within the epoch or not in each epoch, else at the epoch's end.
        enable_version_counter: whether a file that is there isn't overwritten but the name gets ``-v1`` and so on.

    Attributes:
        best_model_path: the best checkpoint, "" before there is one.
        best_model_score: its value of ``monitor``.
        best_k_models: values by path of those that are kept as the best.
        kth_best_model_path: the worst of these.
        kth_value: its value.
        current_score: the newest value.
        last_model_path: the newest copy of ``save_last``.

    Raises:
        MisconfigurationException: arguments that contradict each other.
    """

    CHECKPOINT_JOIN_CHAR = "-"
    CHECKPOINT_EQUALS_CHAR = "="
    CHECKPOINT_NAME_LAST = "last"
    FILE_EXTENSION = ".ckpt"
    STARTING_VERSION = 1

    def __init__(
        self,
        dirpath: str | Path | None = None,
        filename: str | None = None,
        monitor: str | None = None,
        verbose: bool = False,
        save_last: bool | Literal["link"] | None = None,
        save_top_k: int = 1,
        save_on_exception: bool = False,
        save_weights_only: bool = False,
        mode: str = "min",
        auto_insert_metric_name: bool = True,
        every_n_train_steps: int | None = None,
        train_time_interval: timedelta | None = None,
        every_n_epochs: int | None = None,
        save_on_train_epoch_end: bool | None = None,
        enable_version_counter: bool = True,
    ) -> None:
        super().__init__()
        self.monitor = monitor
        self.verbose = verbose
        self.save_last = save_last
        self.save_top_k = save_top_k
        self.save_on_exception = save_on_exception
        self.save_weights_only = save_weights_only
        self.auto_insert_metric_name = auto_insert_metric_name
        self._save_on_train_epoch_end = save_on_train_epoch_end
        self._enable_version_counter = enable_version_counter
        if every_n_train_steps is None and every_n_epochs is None and train_time_interval is None:
            every_n_epochs = 1
        self._every_n_epochs = every_n_epochs or 0
        self._every_n_train_steps = every_n_train_steps or 0
        self._train_time_interval = train_time_interval
        if mode not in ("min", "max"):
            raise MisconfigurationException(f"`ModelCheckpoint(mode={mode!r})`: choose 'min' or 'max'.")
        self.mode = mode
        self._check_arguments()

        self.dirpath: str | None = None if dirpath is None else _absolute(dirpath)
        self.filename = filename
        self.best_k_models: dict[str, Tensor] = {}
        self.best_model_path = ""
        self.best_model_score: Tensor | None = None
        self.current_score: Tensor | None = None
        self.kth_best_model_path = ""
        self.kth_value: Tensor = torch.tensor(self._worst)
        self.last_model_path = ""
        self._last_checkpoint_saved = ""
        self._last_global_step_saved = 0
        self._step_at_start = 0
        self._last_time_checked: float | None = None
        self._waits_for_validation = False
        self._outdated: list[str] = []

    def _check_arguments(self) -> None:
        if self.save_top_k < -1:
            raise MisconfigurationException(
                f"`ModelCheckpoint(save_top_k={self.save_top_k})`: should be -1 (all), 0 (none) or a number."
            )
        for name, number in (
            ("every_n_train_steps", self._every_n_train_steps),
            ("every_n_epochs", self._every_n_epochs),
        ):
            if number < 0:
                raise MisconfigurationException(f"`ModelCheckpoint({name}={number})`: should be at least 0.")
        given = {
            "every_n_train_steps": self._every_n_train_steps,
            "every_n_epochs": self._every_n_epochs,
            "train_time_interval": self._train_time_interval,
        }
        used = [f"{name}={value}" for name, value in given.items() if value]
        if len(used) > 1:
            raise MisconfigurationException(
                f"`ModelCheckpoint({', '.join(used)})`: only one of them can say when to save. Use several callbacks."
            )
        if self.monitor is None and self.save_top_k not in (-1, 0, 1):
            raise MisconfigurationException(
                f"`ModelCheckpoint(save_top_k={self.save_top_k}, monitor=None)`: without a metric nothing says which"
                " are the best. Give `monitor`, or save_top_k=-1 (all), 0 or 1."
            )

    @property
    def every_n_epochs(self) -> int | None:
        """After how many epochs it saves; 0: not then."""
        return self._every_n_epochs

    @property
    def idle_between_batches(self) -> bool:
        """Whether the end of a batch needn't be told to this callback."""
        own = type(self).on_train_batch_end is ModelCheckpoint.on_train_batch_end
        return own and not self._every_n_train_steps and self._train_time_interval is None

    @property
    def state_key(self) -> str:
        """What tells it from others of its kind."""
        return self._generate_state_key(
            monitor=self.monitor,
            mode=self.mode,
            every_n_train_steps=self._every_n_train_steps,
            every_n_epochs=self._every_n_epochs,
            train_time_interval=self._train_time_interval,
        )

    # Hooks.

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Decides about the folder."""
        self.dirpath = self._find_folder(trainer)
        if stage == "fit" and self.save_top_k != 0 and list_files(self.dirpath):
            rank_zero_info(f"The folder of checkpoints {self.dirpath} exists and is not empty.")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The time begins to run."""
        self._last_time_checked = time.monotonic()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Remembers which step needn't be saved again if nothing follows it."""
        self._step_at_start = checkpoint.get("global_step", 0)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Saves after a number of steps, or when the time has gone by."""
        if self._is_off(trainer):
            return
        due = self._every_n_train_steps >= 1 and trainer.global_step % self._every_n_train_steps == 0
        if self._train_time_interval is not None and self._last_time_checked is not None:
            now = time.monotonic()
            due = now - self._last_time_checked >= self._train_time_interval.total_seconds()
            if due:
                self._last_time_checked = now
        if due and self.monitor is not None and self._validation_decides(trainer):
            # Where it follows at once, its value belongs to these weights; one that is known is of a validation before.
            self._waits_for_validation = True
        elif due:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves after an epoch."""
        if not self._is_off(trainer) and self._saves_on_train_epoch_end(trainer):
            self._save_epoch(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves after a validation."""
        if self._is_off(trainer):
            return
        if self._waits_for_validation:
            self._waits_for_validation = False
            self._save(trainer)
        elif not self._saves_on_train_epoch_end(trainer):
            self._save_epoch(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves the last checkpoint of a fit that was too short to save any, or whose end none has."""
        if self._is_off(trainer) or (self._saves_others and self._last_checkpoint_saved):
            return
        self._save_last(trainer, self._candidates(trainer))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Saves what the fit has reached, where that is wanted."""
        if not self.save_on_exception or self._is_off(trainer) or trainer.global_step == self._step_at_start:
            # Without a new step there is nothing that the checkpoint which the run began from doesn't hold.
            return
        candidates = self._candidates(trainer)
        path = self._path_for(candidates)
        if self._write(trainer, path):
            self._save_last(trainer, candidates)
            rank_zero_info(f"The fit was ended by {type(exception).__name__} ({exception}); saved {path}.")

    # State.

    def state_dict(self) -> dict[str, Any]:
        """The best and the last checkpoints, and where they are."""
        return {
            "monitor": self.monitor,
            "best_model_score": self.best_model_score,
            "best_model_path": self.best_model_path,
            "current_score": self.current_score,
            "dirpath": self.dirpath,
            "best_k_models": self.best_k_models,
            "kth_best_model_path": self.kth_best_model_path,
            "kth_value": self.kth_value,
            "last_model_path": self.last_model_path,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on with the checkpoints of the run before; in another folder with the best one only."""
        before = state_dict.get("dirpath", self.dirpath)
        if self.dirpath == before:
            self.best_model_score = state_dict["best_model_score"]
            self.kth_best_model_path = state_dict.get("kth_best_model_path", self.kth_best_model_path)
            self.kth_value = state_dict.get("kth_value", self.kth_value)
            self.best_k_models = state_dict.get("best_k_models", self.best_k_models)
            self.last_model_path = state_dict.get("last_model_path", self.last_model_path)
        elif state_dict["best_model_path"] or state_dict.get("last_model_path"):
            rank_zero_warn(
                f"The folder of checkpoints was {before!r} and is {self.dirpath!r} now: only `best_model_path` is taken"
                " over, and what lies in the old folder is neither compared with nor removed."
            )
        self.best_model_path = state_dict["best_model_path"]

    # When.

    def _is_off(self, trainer: Trainer) -> bool:
        """Whether nothing is saved at present, or this step is saved already."""
        return (
            bool(trainer.fast_dev_run)
            or trainer.state.fn != "fit"
            or trainer.sanity_checking
            or self._last_global_step_saved == trainer.global_step
        )

    def _saves_on_train_epoch_end(self, trainer: Trainer) -> bool:
        if self._save_on_train_epoch_end is not None:
            return self._save_on_train_epoch_end
        if isinstance(trainer.val_check_interval, timedelta):
            return False
        if trainer.check_val_every_n_epoch != 1:
            return False
        if not trainer.enable_validation or sum(trainer.num_val_batches) == 0:
            return True
        return trainer.val_check_interval == 1.0

    def _validation_decides(self, trainer: Trainer) -> bool:
        """Whether the metric comes from a validation, and one follows at once or there was none yet."""
        if trainer.logbook.logs_in_training(str(self.monitor)):
            return False
        comes_later = trainer.enable_validation and self.monitor not in trainer.callback_metrics
        return trainer.validation_follows or comes_later

    def _save_epoch(self, trainer: Trainer) -> None:
        candidates = self._candidates(trainer)
        if self._every_n_epochs >= 1 and (trainer.current_epoch + 1) % self._every_n_epochs == 0:
            self._save_top_k(trainer, candidates)
        self._save_last_after(trainer, candidates)
        self._remove_linked(trainer)

    def _save(self, trainer: Trainer) -> None:
        candidates = self._candidates(trainer)
        self._save_top_k(trainer, candidates)
        self._save_last(trainer, candidates)
        self._remove_linked(trainer)

    def _save_last_after(self, trainer: Trainer, candidates: dict[str, Tensor]) -> None:
        """Copies what was saved just now; where nothing else is ever saved, the copy is the checkpoint."""
        if not self._saves_others or self._last_global_step_saved == trainer.global_step:
            self._save_last(trainer, candidates)

    @property
    def _saves_others(self) -> bool:
        """Whether checkpoints besides the last one are ever saved."""
        return self.save_top_k != 0 and bool(
            self._every_n_epochs or self._every_n_train_steps or self._train_time_interval is not None
        )

    # What.

    def _candidates(self, trainer: Trainer) -> dict[str, Tensor]:
        """The metrics of this moment, with epoch and step."""
        metrics = deepcopy(dict(trainer.callback_metrics))
        for name, number in (("epoch", trainer.current_epoch), ("step", trainer.global_step)):
            logged = metrics.get(name)
            metrics[name] = logged.int() if isinstance(logged, Tensor) else torch.tensor(number)
        return metrics

    def _save_top_k(self, trainer: Trainer, candidates: dict[str, Tensor]) -> None:
        if self.save_top_k == 0:
            return
        if self.monitor is None:
            path = self._path_for(candidates, self.best_model_path)
            before = self.best_model_path
            self.best_model_path = path
            if not self._write(trainer, path):
                self.best_model_path = before
            elif self.save_top_k == 1 and before and self._should_remove(trainer, before, path):
                self._remove(trainer, before)
            return
        current = candidates.get(self.monitor)
        if current is None:
            self._tell_of_missing_monitor(trainer, candidates)
        elif self.check_monitor_top_k(trainer, current):
            self._save_best(trainer, candidates, current)
        elif self.verbose:
            rank_zero_info(
                f"Epoch {int(candidates['epoch'])}, step {int(candidates['step'])}: {self.monitor!r} was not in the top"
                f" {self.save_top_k}"
            )

    def _tell_of_missing_monitor(self, trainer: Trainer, candidates: dict[str, Tensor]) -> None:
        message = (
            f"`ModelCheckpoint(monitor={self.monitor!r})` doesn't find this metric among what was logged:"
            f" {sorted(candidates)}. Log it by `self.log({self.monitor!r}, ...)`, or monitor another one."
        )
        if trainer.fit_loop.epoch_loop.val_loop._has_run:
            raise MisconfigurationException(message)
        rank_zero_warn(message)

    def check_monitor_top_k(self, trainer: Trainer, current: Tensor | None = None) -> bool:
        """Whether a value belongs to the best ``save_top_k``."""
        if current is None:
            return False
        if self.save_top_k == -1 or len(self.best_k_models) < self.save_top_k:
            return True
        kth = self.best_k_models[self.kth_best_model_path]
        return bool(current < kth if self.mode == "min" else current > kth)

    @property
    def _worst(self) -> float:
        return math.inf if self.mode == "min" else -math.inf

    def _save_best(self, trainer: Trainer, candidates: dict[str, Tensor], current: Tensor) -> None:
        """Saves a checkpoint that belongs to the best ones, and removes the one that no longer does."""
        before = self.best_k_models, self.kth_best_model_path, self.kth_value, self.best_model_path
        scores = self.best_model_score, self.current_score
        k = len(self.best_k_models) + 1 if self.save_top_k == -1 else self.save_top_k
        kept = dict(self.best_k_models)
        pushed_out = self.kth_best_model_path if len(kept) == k and k > 0 else None
        if pushed_out is not None:
            kept.pop(pushed_out)
        # A metric that isn't a number is worse than all numbers.
        current = torch.tensor(self._worst, device=current.device) if torch.isnan(current) else current
        path = self._path_for(candidates, pushed_out)
        kept[path] = current
        self.best_k_models, self.current_score = kept, current
        worst, best = (max, min) if self.mode == "min" else (min, max)
        if len(kept) == k:
            self.kth_best_model_path = worst(kept, key=kept.__getitem__)
            self.kth_value = kept[self.kth_best_model_path]
        self.best_model_path = best(kept, key=kept.__getitem__)
        self.best_model_score = kept[self.best_model_path]
        if not self._write(trainer, path):
            self.best_k_models, self.kth_best_model_path, self.kth_value, self.best_model_path = before
            self.best_model_score, self.current_score = scores
            return
        if self.verbose:
            rank_zero_info(
                f"Epoch {int(candidates['epoch'])}, step {int(candidates['step'])}: {self.monitor!r} reached"
                f" {float(current):0.5f} (best {float(self.best_model_score):0.5f}), saved {path!r} as top {k}"
            )
        if pushed_out is not None and self._should_remove(trainer, pushed_out, path):
            self._remove(trainer, pushed_out)

    def _save_last(self, trainer: Trainer, candidates: dict[str, Tensor]) -> None:
        if not self.save_last:
            return
        path = self.format_checkpoint_name(candidates, self.CHECKPOINT_NAME_LAST)
        if self._enable_version_counter:
            version = self.STARTING_VERSION
            while self.file_exists(path, trainer) and path != self.last_model_path:
                path = self.format_checkpoint_name(candidates, self.CHECKPOINT_NAME_LAST, ver=version)
                version += 1
        before, self.last_model_path = self.last_model_path, path
        newest = self._last_checkpoint_saved
        if self.save_last == "link" and newest and self.save_top_k != 0 and exists(newest):
            link_file(newest, path)
        elif not self._write(trainer, path):
            self.last_model_path = before
            return
        if before and self._should_remove(trainer, before, path):
            trainer.strategy.remove_checkpoint(before)

    # Files.

    def _write(self, trainer: Trainer, path: str) -> bool:
        """Saves a checkpoint, unless its weights aren't finite."""
        name = nonfinite_weight(trainer.lightning_module)
        if name is not None:
            rank_zero_warn(
                f"No checkpoint is saved at step {trainer.global_step}, since the weights aren't finite ({name}). Those"
                " that were saved before stay as they are."
            )
            return False
        step, saved = self._last_global_step_saved, self._last_checkpoint_saved
        self._last_global_step_saved, self._last_checkpoint_saved = trainer.global_step, path
        try:
            trainer.save_checkpoint(path, self.save_weights_only)
        except BaseException:
            self._last_global_step_saved, self._last_checkpoint_saved = step, saved
            raise
        for logger in trainer.loggers:
            logger.after_save_checkpoint(proxy(self))
        return True

    def _remove(self, trainer: Trainer, path: str) -> None:
        """Removes a checkpoint that another one has replaced."""
        if self.save_last == "link":
            # The link may lead to it. Whenever the process is killed, it has to lead to a file.
            self._outdated.append(path)
        else:
            trainer.strategy.remove_checkpoint(path)

    def _remove_linked(self, trainer: Trainer) -> None:
        """Removes what has waited until the link leads to the newest checkpoint."""
        while self._outdated:
            trainer.strategy.remove_checkpoint(self._outdated.pop())

    def _should_remove(self, trainer: Trainer, before: str, path: str) -> bool:
        """Whether an older checkpoint goes: it is another file, in this folder, and not the one from which the run was
        resumed.
        """
        if before == path:
            return False
        if is_remote(before):
            return True
        older = Path(local_path(before)).absolute()
        resumed = None if trainer.ckpt_path is None else Path(local_path(trainer.ckpt_path)).absolute()
        if resumed == older:
            return False
        assert self.dirpath is not None
        return Path(self.dirpath).absolute() in older.parents

    def _path_for(self, candidates: dict[str, Tensor], replaced: str | None = None) -> str:
        """A path for a new checkpoint that overwrites none but the one that it replaces."""
        path = self.format_checkpoint_name(candidates)
        if self._enable_version_counter:
            version = self.STARTING_VERSION
            while exists(path) and path != replaced:
                path = self.format_checkpoint_name(candidates, ver=version)
                version += 1
        return path

    def format_checkpoint_name(
        self,
        metrics: Mapping[str, Any],
        filename: str | None = None,
        ver: int | None = None,
        prefix: str | None = None,
    ) -> str:
        """The path of a checkpoint.

        Args:
            metrics: values by name, for the template.
            filename: a template instead of the callback's own.
            ver: a version that is put at the end.
            prefix: put before the name.

        >>> ModelCheckpoint(filename="{epoch}-{acc:.2f}").format_checkpoint_name({"epoch": 2, "acc": 0.5}, ver=1)
        'epoch=2-acc=0.50-v1.ckpt'
        """
        name = fill_template(
            filename or self.filename,
            metrics,
            prefix=prefix,
            join=self.CHECKPOINT_JOIN_CHAR,
            equals=self.CHECKPOINT_EQUALS_CHAR,
            insert_names=self.auto_insert_metric_name,
        )
        if ver is not None:
            name = f"{name}{self.CHECKPOINT_JOIN_CHAR}v{ver}"
        name += self.FILE_EXTENSION
        return os.path.join(self.dirpath, name) if self.dirpath else name

    def file_exists(self, filepath: str | Path, trainer: Trainer) -> bool:
        """Whether there is a file of this name already."""
        return exists(filepath)

    def to_yaml(self, filepath: str | Path | None = None) -> None:
        """Writes the values of the best checkpoints by path.

        Args:
            filepath: where; None: ``best_k_models.yaml`` in the folder of the checkpoints.
        """
        import yaml  # for this alone it would cost every program's start

        scores = {path: float(value) for path, value in self.best_k_models.items()}
        if filepath is None:
            assert self.dirpath is not None, "there is no folder before the first run"
            filepath = os.path.join(self.dirpath, "best_k_models.yaml")
        with filesystem_of(filepath).open(os.fspath(filepath), "w") as file:
            yaml.dump(scores, file)

    def _find_folder(self, trainer: Trainer) -> str:
        """The folder that was given, or else the one of the logger's run."""
        if self.dirpath is not None:
            return self.dirpath
        if not trainer.loggers:
            return os.path.join(trainer.default_root_dir, "checkpoints")
        logger = trainer.loggers[0]
        base = trainer.default_root_dir if logger.save_dir is None else logger.save_dir
        version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
        return os.path.join(base, str(logger.name), version, "checkpoints")

    def _find_last_checkpoints(self, trainer: Trainer) -> set[str]:
        """All files in the folder that ``save_last`` may have written."""
        start = self.CHECKPOINT_NAME_LAST.partition("{")[0] or self.CHECKPOINT_NAME_LAST
        paths = list_files(self._find_folder(trainer))
        return {path for path in paths if Path(path).name.startswith(start) and path.endswith(self.FILE_EXTENSION)}


def _absolute(path: str | Path) -> str:
    text = os.fspath(path)
    return text if is_remote(text) else os.path.realpath(local_path(text))
