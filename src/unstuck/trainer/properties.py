"""What a Trainer answers: its keywords as they were read, where its run stands, its data, logs and callbacks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch.optim import Optimizer

from unstuck.callbacks.collection import callbacks_of_class
from unstuck.errors import MisconfigurationException
from unstuck.profilers import PassThroughProfiler, configure_profiler
from unstuck.strategies import SingleDeviceStrategy
from unstuck.trainer.bridge import LogConnector, LoopView, PredictView, ResultsBridge
from unstuck.trainer.config import parse_accumulation
from unstuck.trainer.interrupts import SignalGuard
from unstuck.trainer.loops.fit import estimate_stepping_batches
from unstuck.trainer.precision import Precision
from unstuck.trainer.results import Logbook
from unstuck.trainer.run import Run, StageData
from unstuck.trainer.settings import Settings
from unstuck.trainer.state import Progress, RunningStage, TrainerState, TrainerStatus

__all__ = ["TrainerProperties"]


class TrainerProperties:
    """The properties of the :class:`~unstuck.trainer.trainer.Trainer`, each read from the part that knows it.

    The Trainer's constructor makes the parts.
    """

    state: TrainerState
    callbacks: list[Any]
    active_profiler: Any
    _settings: Settings
    _strategy: SingleDeviceStrategy
    _precision: Precision
    _progress: Progress
    _logbook: Logbook
    _signals: SignalGuard
    _default_root_dir: str
    _run: Run | None

    # Where and how.

    @property
    def strategy(self) -> SingleDeviceStrategy:
        """Where the run computes."""
        return self._strategy

    @property
    def accelerator(self) -> str:
        """The kind of device: "cpu", "cuda" or "mps"."""
        return self.strategy.root_device.type

    @property
    def precision(self) -> str:
        """The name of the precision."""
        return self._precision.precision

    @property
    def precision_plugin(self) -> Precision:
        """The precision."""
        return self._precision

    @property
    def scaler(self) -> Any:
        """The gradient scaler of "16-mixed", else None."""
        return self._precision.scaler

    @property
    def global_rank(self) -> int:
        """The index of this process over all machines."""
        return self.strategy.global_rank

    @property
    def local_rank(self) -> int:
        """The index of this process on its machine."""
        return self.strategy.local_rank

    @property
    def node_rank(self) -> int:
        """The index of this machine."""
        return self.strategy.node_rank

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return self.strategy.world_size

    @property
    def num_nodes(self) -> int:
        """The number of machines."""
        return self.strategy.num_nodes

    @property
    def device_ids(self) -> list[int]:
        """The indices of the devices in use."""
        return [self.strategy.root_device.index or 0]

    @property
    def num_devices(self) -> int:
        """How many devices this machine uses."""
        return len(self.device_ids)

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the first process."""
        return self.strategy.is_global_zero

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any] | None:
        """Arguments for a distributed sampler; None with one process."""
        return None

    @property
    def lightning_module(self) -> Any:
        """The module of the run, None before the first."""
        return self.strategy.model

    @property
    def model(self) -> Any:
        """The module as it is run, maybe wrapped."""
        return self.strategy.model

    @property
    def datamodule(self) -> Any:
        """The data module of the run, None without one."""
        return None if self._run is None else self._run.datamodule

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimisers of the fit."""
        return self.strategy.optimizers

    @optimizers.setter
    def optimizers(self, optimizers: list[Optimizer]) -> None:
        self.strategy.optimizers = optimizers

    @property
    def lr_scheduler_configs(self) -> list[Any]:
        """The schedulers of the fit, with their configuration."""
        return self.strategy.lr_scheduler_configs

    @property
    def default_root_dir(self) -> str:
        """Where loggers write by default."""
        return self._default_root_dir

    # Keywords, as they were read.

    @property
    def max_epochs(self) -> int:
        """Epochs at most; -1: without end."""
        return self._settings.bounds.max_epochs

    @property
    def min_epochs(self) -> int | None:
        """Epochs at least."""
        return self._settings.bounds.min_epochs

    @property
    def max_steps(self) -> int:
        """Optimiser steps at most; -1: without end."""
        return self._settings.bounds.max_steps

    @property
    def min_steps(self) -> int | None:
        """Optimiser steps at least."""
        return self._settings.bounds.min_steps

    @property
    def limit_train_batches(self) -> int | float:
        """Training batches per epoch, as number or fraction."""
        return self._settings.limits.train

    @property
    def limit_val_batches(self) -> int | float:
        """Batches of each validation loader."""
        return self._settings.limits.val

    @property
    def limit_test_batches(self) -> int | float:
        """Batches of each test loader."""
        return self._settings.limits.test

    @property
    def limit_predict_batches(self) -> int | float:
        """Batches of each loader to predict on."""
        return self._settings.limits.predict

    @property
    def overfit_batches(self) -> int | float:
        """Batches to overfit on, 0.0 when that is off."""
        overfit = self._settings.limits.overfit
        return 0.0 if overfit is None else overfit.batches

    @property
    def fast_dev_run(self) -> bool | int:
        """Batches of a dry run, False when it is off."""
        batches = self._settings.limits.fast_dev_run
        return batches if batches > 1 else batches == 1

    @property
    def num_sanity_val_steps(self) -> int | float:
        """Validation batches before the training."""
        return self._settings.limits.sanity

    @property
    def val_check_interval(self) -> int | float | timedelta:
        """How often a fit validates within an epoch."""
        return self._settings.limits.val_check_interval

    @property
    def val_check_batch(self) -> int | float | None:
        """The same in training batches; None: by time, or not known yet."""
        return None if self._run is None else self._run.val_check_batches

    @property
    def check_val_every_n_epoch(self) -> int | None:
        """In which epochs a fit validates."""
        return self._settings.check_val_every_n_epoch

    @property
    def reload_dataloaders_every_n_epochs(self) -> int:
        """After how many epochs loaders are asked for anew."""
        return self._settings.reload_dataloaders_every_n_epochs

    @property
    def log_every_n_steps(self) -> int:
        """How often step values go to the loggers."""
        return self._settings.log_every_n_steps

    @property
    def accumulate_grad_batches(self) -> int:
        """Batches per optimiser step."""
        return self._settings.accumulate_grad_batches

    @accumulate_grad_batches.setter
    def accumulate_grad_batches(self, batches: int) -> None:
        self._settings.accumulate_grad_batches = parse_accumulation(batches)

    @property
    def gradient_clip_val(self) -> float | None:
        """Where gradients are clipped."""
        return self._settings.gradient_clip_val

    @property
    def gradient_clip_algorithm(self) -> str | None:
        """How gradients are clipped."""
        return self._settings.gradient_clip_algorithm

    @property
    def barebones(self) -> bool:
        """Whether everything that costs time in a step is off."""
        return self._settings.barebones

    @property
    def enable_validation(self) -> bool:
        """Whether a fit validates."""
        return self._run is not None and self._run.validates

    # Where the run stands.

    @property
    def global_step(self) -> int:
        """Optimiser steps so far, over all optimisers and epochs."""
        return self._progress.global_step

    @property
    def current_epoch(self) -> int:
        """The epoch, counted on after the hooks at its end."""
        return self._progress.current_epoch

    @property
    def is_last_batch(self) -> bool:
        """Whether the current training batch is the last of its epoch."""
        return self._progress.is_last_batch

    @property
    def validation_follows(self) -> bool:
        """Whether a validation comes after this batch, in the hooks of callbacks that save at its end."""
        return self._progress.validation_follows

    @property
    def should_stop(self) -> bool:
        """Whether the fit was asked to end. Set it to ask."""
        return self._progress.should_stop

    @should_stop.setter
    def should_stop(self, should_stop: bool) -> None:
        self._progress.should_stop = should_stop

    @property
    def interrupted(self) -> bool:
        """Whether the last run was ended by an exception."""
        return self.state.status == TrainerStatus.INTERRUPTED

    @property
    def received_sigterm(self) -> bool:
        """Whether SIGTERM has arrived."""
        return self._signals.received_sigterm

    @property
    def training(self) -> bool:
        """Whether a training batch, or a hook of the training, runs."""
        return self.state.stage == RunningStage.TRAINING

    @property
    def validating(self) -> bool:
        """Whether a validation runs (the sanity check apart)."""
        return self.state.stage == RunningStage.VALIDATING

    @property
    def testing(self) -> bool:
        """Whether a test runs."""
        return self.state.stage == RunningStage.TESTING

    @property
    def predicting(self) -> bool:
        """Whether a prediction runs."""
        return self.state.stage == RunningStage.PREDICTING

    @property
    def sanity_checking(self) -> bool:
        """Whether the validation before the training runs."""
        return self.state.stage == RunningStage.SANITY_CHECKING

    @property
    def evaluating(self) -> bool:
        """Whether a validation or test runs."""
        return self.state.stage is not None and self.state.stage.evaluating

    @property
    def estimated_stepping_batches(self) -> int | float:
        """Optimiser steps that the fit will make at most; it may load the training data to know."""
        if self._run is None:
            raise MisconfigurationException("`estimated_stepping_batches` is known only during a fit.")
        return estimate_stepping_batches(self._run)

    # Data.

    @property
    def num_training_batches(self) -> int | float:
        """Training batches of an epoch, infinite if unknown."""
        return self._progress.num_training_batches

    @property
    def num_sanity_val_batches(self) -> list[int | float]:
        """Batches of each loader in the sanity check."""
        return [min(self.num_sanity_val_steps, batches) for batches in self.num_val_batches]

    @property
    def num_val_batches(self) -> list[int | float]:
        """Batches of each validation loader."""
        return [] if self._run is None else self._run.val.max_batches

    @property
    def num_test_batches(self) -> list[int | float]:
        """Batches of each test loader."""
        return [] if self._run is None else self._run.test.max_batches

    @property
    def num_predict_batches(self) -> list[int | float]:
        """Batches of each loader to predict on."""
        return [] if self._run is None else self._run.predict.max_batches

    @property
    def train_dataloader(self) -> Any:
        """The training loaders, None before they were asked for."""
        return _iterables(None if self._run is None else self._run.train)

    @property
    def val_dataloaders(self) -> Any:
        """The validation loaders, None before they were asked for."""
        return _iterables(None if self._run is None else self._run.val)

    @property
    def test_dataloaders(self) -> Any:
        """The test loaders, None before they were asked for."""
        return _iterables(None if self._run is None else self._run.test)

    @property
    def predict_dataloaders(self) -> Any:
        """The loaders to predict on, None before they were asked for."""
        return _iterables(None if self._run is None else self._run.predict)

    # Logging.

    @property
    def logbook(self) -> Logbook:
        """What was logged."""
        return self._logbook

    @property
    def loggers(self) -> list[Any]:
        """The loggers."""
        return self._logbook.loggers

    @loggers.setter
    def loggers(self, loggers: list[Any] | None) -> None:
        self._logbook.loggers = list(loggers or ())

    @property
    def logger(self) -> Any:
        """The first logger, None without one."""
        return self.loggers[0] if self.loggers else None

    @logger.setter
    def logger(self, logger: Any) -> None:
        self.loggers = [logger] if logger else []

    @property
    def log_dir(self) -> str | None:
        """Where the first logger writes, or the default folder without one."""
        if not self.loggers:
            return self.default_root_dir
        first = self.loggers[0]
        directory: str | None = first.log_dir if hasattr(first, "log_dir") else first.save_dir
        return directory

    @property
    def callback_metrics(self) -> dict[str, Any]:
        """The newest value of everything that was logged."""
        return self._logbook.callback_metrics

    @property
    def logged_metrics(self) -> dict[str, Any]:
        """The newest values for the loggers."""
        return self._logbook.logged_metrics

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """The newest values for the progress bar."""
        return self._logbook.progress_bar_metrics

    # Profiling.

    @property
    def profiler(self) -> Any:
        """The profiler; one that does nothing where there is none. It can be set."""
        return PassThroughProfiler() if self.active_profiler is None else self.active_profiler

    @profiler.setter
    def profiler(self, profiler: Any) -> None:
        self.active_profiler = configure_profiler(profiler)

    # Callbacks.

    @property
    def progress_bar_callback(self) -> Any:
        """The progress bar, None without one."""
        return next(iter(callbacks_of_class(self.callbacks, "ProgressBar")), None)

    @property
    def early_stopping_callbacks(self) -> list[Any]:
        """The callbacks that stop early."""
        return callbacks_of_class(self.callbacks, "EarlyStopping")

    @property
    def early_stopping_callback(self) -> Any:
        """The first of them, None without one."""
        return next(iter(self.early_stopping_callbacks), None)

    @property
    def checkpoint_callbacks(self) -> list[Any]:
        """The callbacks that save checkpoints."""
        return callbacks_of_class(self.callbacks, "Checkpoint")

    @property
    def checkpoint_callback(self) -> Any:
        """The first of them, None without one."""
        return next(iter(self.checkpoint_callbacks), None)

    # What modules and callbacks of the real Lightning ask a Trainer for.

    @property
    def fit_loop(self) -> LoopView:
        """The fit's bounds and counters under the names of Lightning's loop objects."""
        return LoopView(self._progress, self._settings)

    @property
    def predict_loop(self) -> PredictView:
        """What a prediction has so far, for whoever writes it."""
        if self._run is None:
            raise MisconfigurationException("`predict_loop` is there from the first run on.")
        return PredictView(self._run)

    @property
    def prediction_writer_callbacks(self) -> list[Any]:
        """The callbacks that write predictions."""
        return callbacks_of_class(self.callbacks, "BasePredictionWriter")

    @property
    def _results(self) -> ResultsBridge | None:
        store = self._logbook.store
        return None if store is None else ResultsBridge(store)

    @property
    def _logger_connector(self) -> LogConnector:
        return LogConnector(self._logbook, self._progress)

    @property
    def _accelerator_connector(self) -> Any:
        return _ONE_PROCESS


class _OneProcess:
    is_distributed = False


_ONE_PROCESS = _OneProcess()


def _iterables(data: StageData | None) -> Any:
    return None if data is None or data.combined is None else data.combined.iterables
