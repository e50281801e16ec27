"""The Trainer: Lightning 2.x's keywords, methods and properties over plain loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch

from unstuck.callbacks import Callback
from unstuck.callbacks.defaults import configure_callbacks
from unstuck.errors import MisconfigurationException
from unstuck.loggers import DummyLogger, Logger, configure_loggers
from unstuck.messages import rank_zero_warn, show_messages
from unstuck.strategies import SingleDeviceStrategy
from unstuck.trainer.accelerators import select_device
from unstuck.trainer.checkpoints.content import build_checkpoint
from unstuck.trainer.checkpoints.files import save_file
from unstuck.trainer.checkpoints.finite import keep_finite
from unstuck.trainer.checkpoints.paths import select_path
from unstuck.trainer.config import as_list, check_barebones, expand_root_dir, refuse_unbuilt
from unstuck.trainer.data.limits import Overfit
from unstuck.trainer.entry import execute
from unstuck.trainer.hooks import is_overridden
from unstuck.trainer.interrupts import SignalGuard
from unstuck.trainer.precision import Precision, configure_precision
from unstuck.trainer.properties import TrainerProperties
from unstuck.trainer.reproducibility import apply_benchmark, apply_determinism
from unstuck.trainer.results import Logbook
from unstuck.trainer.run import Run
from unstuck.trainer.settings import announce, read_settings
from unstuck.trainer.starting import check_module, find_data, refuse_both, separate_datamodule
from unstuck.trainer.state import Place, Progress, RunningStage, TrainerFn, TrainerState, TrainerStatus

__all__ = ["Trainer"]

Interval = int | float | str | timedelta | dict[str, int]


class Trainer(TrainerProperties):
    """Trains, validates, tests and predicts with a :class:`~unstuck.trainer.module.LightningModule`.

    Keywords, defaults, hooks and their order are those of Lightning 2.x. What isn't built is refused, never ignored.

    Args:
        accelerator: "cpu", "gpu", "cuda", "mps" or "auto".
        strategy: "auto" or "single_device".
        devices: how many devices (1, "auto"), or which one (a list with one index, "0,").
        num_nodes: 1.
        precision: "32-true" (the default), "64-true", "16-true", "bf16-true", "16-mixed", "bf16-mixed"; also 64, 32,
            16 and "bf16". "16-mixed" on the CPU really is float16 with a gradient scaler.
        logger: a logger or several; True (the default) for TensorBoard, or CSV where it isn't installed; False for
            none.
        callbacks: one or several callbacks.
        fast_dev_run: run n batches (True: 1) of everything, for one epoch, without loggers, to see whether the code
            works.
        max_epochs: epochs at most (1000 if nothing else ends the fit); -1: without end.
        min_epochs: epochs at least, whoever asks to stop.
        max_steps: optimiser steps at most; -1: without end.
        min_steps: optimiser steps at least.
        max_time: ends the fit after this time: "DD:HH:MM:SS", a timedelta, or a dict of its keywords.
        limit_train_batches: batches per epoch: a number (int) or a fraction (float).
        limit_val_batches: the same for each validation loader.
        limit_test_batches: the same for each test loader.
        limit_predict_batches: the same for each loader to predict on.
        overfit_batches: train on the same few batches in every epoch, as a number or fraction (0.0: off), or
            :class:`~unstuck.trainer.data.limits.Overfit` with options.
        val_check_interval: validate after this many training batches (int), this fraction of an epoch (float), or this
            time.
        check_val_every_n_epoch: validate in every n-th epoch; None: count ``val_check_interval`` over all epochs.
        num_sanity_val_steps: validation batches to try before the training (2); -1: all.
        log_every_n_steps: how often step values go to the loggers (50).
        enable_checkpointing: whether a :class:`~unstuck.callbacks.ModelCheckpoint` saves the newest epoch where
            ``callbacks`` has none (True).
        enable_progress_bar: whether to show progress (True).
        enable_model_summary: whether a table of the layers is shown when a fit begins (True).
        accumulate_grad_batches: batches whose gradients make one optimiser step.
        gradient_clip_val: clip gradients at this norm or value; None or 0: don't.
        gradient_clip_algorithm: "norm" (the default) or "value".
        deterministic: True: only deterministic operations; "warn": tell of others.
        benchmark: let cuDNN look for the fastest algorithms.
        inference_mode: whether evaluations outside of a fit use torch's inference mode (else ``no_grad``).
        use_distributed_sampler: whether loaders get a distributed sampler where there are several processes.
        profiler: "simple", "advanced", "pytorch", or a profiler; None for none.
        detect_anomaly: a fit warns once of a loss, gradient or weight that turns NaN or infinite, and names its
            operation; "replay" raises :class:`unstuck.errors.NonFiniteError` there; True is torch's anomaly mode, which
            is slow.
        on_nonfinite: "warn" once of a value that turns NaN or infinite, or "skip-step": drop each step that isn't
            finite and leave weights, buffers, optimiser and loss scaler as if its batches had not been; after ten in a
            row the fit ends with :class:`unstuck.errors.NonFiniteError`.
        barebones: without everything that costs time in a step.
        plugins: a :class:`~unstuck.trainer.precision.Precision` of your own.
        sync_batchnorm: needs several processes: False.
        reload_dataloaders_every_n_epochs: ask for the loaders anew after so many epochs; 0: never.
        default_root_dir: where loggers write (the current folder).
        enable_autolog_hparams: whether saved hyperparameters go to the loggers.
        model_registry: not available: None.
        isolate_validation: whether a validation within a fit gives the random state back as it was, so that a training
            is the same with and without validation. Off by default, as validation in Lightning takes part in the random
            numbers of the training.

    Raises:
        MisconfigurationException: an argument or a combination can't work.
        ValueError: an unknown accelerator, strategy or precision; a conflict with ``barebones``.
        TypeError: an argument of the wrong type.
    """

    def __init__(
        self,
        *,
        accelerator: str = "auto",
        strategy: str | SingleDeviceStrategy = "auto",
        devices: list[int] | str | int = "auto",
        num_nodes: int = 1,
        precision: str | int | None = None,
        logger: Logger | Iterable[Logger] | bool | None = None,
        callbacks: list[Callback] | Callback | None = None,
        fast_dev_run: int | bool = False,
        max_epochs: int | None = None,
        min_epochs: int | None = None,
        max_steps: int = -1,
        min_steps: int | None = None,
        max_time: str | timedelta | dict[str, int] | None = None,
        limit_train_batches: int | float | None = None,
        limit_val_batches: int | float | None = None,
        limit_test_batches: int | float | None = None,
        limit_predict_batches: int | float | None = None,
        overfit_batches: int | float | Overfit = 0.0,
        val_check_interval: Interval | None = None,
        check_val_every_n_epoch: int | None = 1,
        num_sanity_val_steps: int | None = None,
        log_every_n_steps: int | None = None,
        enable_checkpointing: bool | None = None,
        enable_progress_bar: bool | None = None,
        enable_model_summary: bool | None = None,
        accumulate_grad_batches: int = 1,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
        deterministic: bool | str | None = None,
        benchmark: bool | None = None,
        inference_mode: bool = True,
        use_distributed_sampler: bool = True,
        profiler: Any = None,
        detect_anomaly: bool | Literal["replay"] = False,
        barebones: bool = False,
        plugins: Any = None,
        sync_batchnorm: bool = False,
        reload_dataloaders_every_n_epochs: int = 0,
        default_root_dir: str | Path | None = None,
        enable_autolog_hparams: bool = True,
        model_registry: str | None = None,
        isolate_validation: bool = False,
        on_nonfinite: Literal["warn", "skip-step"] = "warn",
    ) -> None:
        show_messages()
        if barebones:
            check_barebones(
                enable_checkpointing=enable_checkpointing,
                logger=logger,
                enable_progress_bar=enable_progress_bar,
                log_every_n_steps=log_every_n_steps,
                enable_model_summary=enable_model_summary,
                num_sanity_val_steps=num_sanity_val_steps,
                fast_dev_run=fast_dev_run,
                detect_anomaly=detect_anomaly,
                profiler=profiler,
            )
            logger, enable_progress_bar, log_every_n_steps, num_sanity_val_steps = False, False, 0, 0
            enable_model_summary = enable_checkpointing = False
        refuse_unbuilt(
            strategy=strategy,
            num_nodes=num_nodes,
            plugins=[plugin for plugin in as_list(plugins) if not isinstance(plugin, Precision)],
            sync_batchnorm=sync_batchnorm,
            model_registry=model_registry,
        )
        self._settings = read_settings(
            min_epochs=min_epochs,
            max_epochs=max_epochs,
            min_steps=min_steps,
            max_steps=max_steps,
            max_time=max_time,
            limit_train_batches=limit_train_batches,
            limit_val_batches=limit_val_batches,
            limit_test_batches=limit_test_batches,
            limit_predict_batches=limit_predict_batches,
            overfit_batches=overfit_batches,
            val_check_interval=val_check_interval,
            check_val_every_n_epoch=check_val_every_n_epoch,
            num_sanity_val_steps=num_sanity_val_steps,
            fast_dev_run=fast_dev_run,
            reload_dataloaders_every_n_epochs=reload_dataloaders_every_n_epochs,
            log_every_n_steps=log_every_n_steps,
            accumulate_grad_batches=accumulate_grad_batches,
            gradient_clip_val=gradient_clip_val,
            gradient_clip_algorithm=gradient_clip_algorithm,
            inference_mode=inference_mode,
            detect_anomaly=detect_anomaly,
            on_nonfinite=on_nonfinite,
            barebones=barebones,
            use_distributed_sampler=use_distributed_sampler,
            isolate_validation=isolate_validation,
            enable_autolog_hparams=enable_autolog_hparams,
        )
        if not isinstance(strategy, SingleDeviceStrategy):
            strategy = SingleDeviceStrategy(select_device(accelerator, devices))
        self._strategy = strategy
        self._precision = configure_precision(precision, as_list(plugins), strategy.root_device.type)
        self._strategy.precision_plugin = self._precision
        self._default_root_dir = expand_root_dir(default_root_dir)
        loggers = configure_loggers(True if logger is None else logger, self._default_root_dir)
        if self._settings.limits.fast_dev_run and loggers:
            # Code that writes to `self.logger.experiment` finds something that takes it.
            loggers = [DummyLogger()]
        self.state = TrainerState()
        self._progress = Progress()
        self._logbook = Logbook(loggers, self._settings.log_every_n_steps)
        self._signals = SignalGuard()
        self.profiler = profiler
        self.callbacks = configure_callbacks(
            as_list(callbacks),
            enable_checkpointing=enable_checkpointing,
            enable_progress_bar=enable_progress_bar,
            enable_model_summary=enable_model_summary,
            judge_overfit=self._settings.limits.overfit is not None and not barebones,
        )
        self.ckpt_path: str | None = None
        """The checkpoint that the newest run began from, None without one."""
        self._run = None
        self._said: set[str] = set()
        self._deterministic, self._benchmark = deterministic, benchmark
        apply_determinism(deterministic)
        apply_benchmark(benchmark, deterministic)
        announce(self._settings)

    # Running.

    def fit(
        self,
        model: Any,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        datamodule: Any = None,
        ckpt_path: str | Path | None = None,
        weights_only: bool | None = None,
    ) -> None:
        """Trains a module.

        Args:
            model: the module.
            train_dataloaders: a loader or a collection of loaders; or a data module.
            val_dataloaders: a validation loader, or a list of them.
            datamodule: provides the loaders.
            ckpt_path: the checkpoint to go on from: a path or address, or "best" or "last" of those that callbacks have
                saved.
            weights_only: whether only tensors and plain values of it are loaded; True unless False is asked for.

        Raises:
            MisconfigurationException: loaders and a data module are given, or something is missing.
            TypeError: ``model`` is no module.
            FileNotFoundError: there is no such checkpoint.
            CheckpointError: the checkpoint is damaged, or can't be resumed.
        """
        train_dataloaders, datamodule = separate_datamodule(train_dataloaders, datamodule)
        refuse_both(datamodule, "fit", train_dataloaders=train_dataloaders, val_dataloaders=val_dataloaders)
        run = self._begin(TrainerFn.FITTING, model, datamodule, train=train_dataloaders, val=val_dataloaders)
        self._select_checkpoint(run, ckpt_path, True, weights_only)
        self._progress.place = Place.BETWEEN
        self._progress.should_stop = self._progress.has_learnt = False
        if self._settings.bounds.max_epochs_is_default:
            rank_zero_warn(
                "Neither `max_epochs` nor `max_steps` nor `max_time` is set: the fit ends after"
                f" {self.max_epochs} epochs. `max_epochs=-1` trains without end.",
            )
        execute(run)

    def validate(
        self,
        model: Any = None,
        dataloaders: Any = None,
        ckpt_path: str | Path | None = None,
        verbose: bool = True,
        datamodule: Any = None,
        weights_only: bool | None = None,
    ) -> list[dict[str, float]]:
        """Validates a module.

        Args:
            model: the module; None: the one of the run before.
            dataloaders: a loader, or a list of them; or a data module.
            ckpt_path: the checkpoint whose weights are used, as for :meth:`fit`; None: the present ones, or without
                ``model`` the best of the fit before.
            verbose: whether to print the results.
            datamodule: provides the loaders.
            weights_only: as for :meth:`fit`.

        Returns:
            The logged metrics, a dict for each loader.
        """
        return self._evaluate(TrainerFn.VALIDATING, model, dataloaders, ckpt_path, verbose, datamodule, weights_only)

    def test(
        self,
        model: Any = None,
        dataloaders: Any = None,
        ckpt_path: str | Path | None = None,
        verbose: bool = True,
        datamodule: Any = None,
        weights_only: bool | None = None,
    ) -> list[dict[str, float]]:
        """Tests a module; arguments and result are those of :meth:`validate`."""
        return self._evaluate(TrainerFn.TESTING, model, dataloaders, ckpt_path, verbose, datamodule, weights_only)

    def predict(
        self,
        model: Any = None,
        dataloaders: Any = None,
        datamodule: Any = None,
        return_predictions: bool | None = None,
        ckpt_path: str | Path | None = None,
        weights_only: bool | None = None,
    ) -> list[Any] | list[list[Any]] | None:
        """Predicts with a module.

        Args:
            model: the module; None: the one of the run before.
            dataloaders: a loader, or a list of them; or a data module.
            datamodule: provides the loaders.
            return_predictions: whether to collect the answers (the default).
            ckpt_path: as for :meth:`validate`.
            weights_only: as for :meth:`fit`.

        Returns:
            The answer to each batch; with several loaders a list of these for each; None if they aren't collected.
        """
        dataloaders, datamodule = separate_datamodule(dataloaders, datamodule)
        refuse_both(datamodule, "predict", dataloaders=dataloaders)
        run = self._begin(TrainerFn.PREDICTING, model, datamodule, predict=dataloaders)
        self._select_checkpoint(run, ckpt_path, model is not None, weights_only)
        run.return_predictions = return_predictions is not False
        predictions: list[Any] | list[list[Any]] | None = execute(run)
        return predictions

    def _evaluate(
        self,
        fn: TrainerFn,
        model: Any,
        dataloaders: Any,
        ckpt_path: Any,
        verbose: bool,
        datamodule: Any,
        weights_only: bool | None,
    ) -> list[dict[str, float]]:
        dataloaders, datamodule = separate_datamodule(dataloaders, datamodule)
        refuse_both(datamodule, fn.value, dataloaders=dataloaders)
        stage = {"val" if fn == TrainerFn.VALIDATING else "test": dataloaders}
        run = self._begin(fn, model, datamodule, **stage)
        self._select_checkpoint(run, ckpt_path, model is not None, weights_only)
        run.verbose = verbose
        outputs = execute(run)
        return [{name: _to_number(value) for name, value in metrics.items()} for metrics in outputs]

    def _select_checkpoint(self, run: Run, ckpt_path: Any, has_model: bool, weights_only: bool | None) -> None:
        """Finds out from which checkpoint a run begins, if from one."""
        assert self.state.fn is not None
        self.ckpt_path = run.ckpt_path = select_path(
            ckpt_path,
            self.state.fn.value,
            self.checkpoint_callbacks,
            has_model=has_model,
            fast_dev_run=bool(self.fast_dev_run),
            trainer=self,
        )
        run.ckpt_weights_only = weights_only

    def _begin(self, fn: TrainerFn, model: Any, datamodule: Any, **given: Any) -> Run:
        """A new run, with module, data module and this Trainer tied together."""
        if model is None:
            model = self.lightning_module
            if model is None:
                raise TypeError(f"`Trainer.{fn.value}()` needs a module when there was no run before.")
        model = check_module(model, fn.value)
        before = self._run
        self._strategy.model = model
        self.state.fn, self.state.status = fn, TrainerStatus.RUNNING
        self.state.stage = {
            TrainerFn.FITTING: RunningStage.TRAINING,
            TrainerFn.VALIDATING: RunningStage.VALIDATING,
            TrainerFn.TESTING: RunningStage.TESTING,
            TrainerFn.PREDICTING: RunningStage.PREDICTING,
        }[fn]
        run = self._new_run(model, datamodule, given)
        if before is not None and fn != TrainerFn.FITTING:
            # What an earlier fit has loaded can still be looked at.
            run.train = before.train
        run.validates = (
            run.val.source.is_defined and is_overridden("validation_step", model) and self.limit_val_batches > 0
        )
        self._run = run
        model.trainer = self
        if datamodule is not None:
            datamodule.trainer = self
        return run

    def _new_run(self, model: Any, datamodule: Any, given: dict[str, Any]) -> Run:
        """The parts of this Trainer with a module and its data; ``given`` has the loaders that were passed."""
        data = find_data(given, datamodule, model)
        return Run(
            trainer=self,
            module=model,
            datamodule=datamodule,
            settings=self._settings,
            state=self.state,
            progress=self._progress,
            strategy=self._strategy,
            precision=self._precision,
            logbook=self._logbook,
            signals=self._signals,
            profiler=self.active_profiler,
            train=data["train"],
            val=data["val"],
            test=data["test"],
            predict=data["predict"],
        )

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Prints in the first process only, as the built-in function does."""
        if self.is_global_zero:
            print(*args, **kwargs)  # noqa: T201 - the program's own output

    def save_checkpoint(
        self, filepath: str | Path, weights_only: bool | None = None, storage_options: Any = None
    ) -> None:
        """Saves a checkpoint of the run as it stands. To be called during a run or after it.

        Args:
            filepath: where: a path, or an address for fsspec. The file is replaced as a whole.
            weights_only: whether only weights and hyperparameters are saved, which is enough to evaluate and fine-tune.
            storage_options: not available: None.

        Raises:
            AttributeError: there was no run, and no module was connected.
            CheckpointError: the file can't be written; one that was there is untouched.
        """
        if storage_options is not None:
            raise TypeError(
                "`Trainer.save_checkpoint(storage_options=...)` needs a plugin for checkpoints; there is none."
            )
        run, module = self._run, self.lightning_module
        if module is None:
            raise AttributeError(
                "`Trainer.save_checkpoint` saves the module of a run. Call `fit`, `validate`, `test` or `predict`"
                " first, or `trainer.strategy.connect(module)`."
            )
        if run is None or run.module is not module:
            run = self._new_run(module, None, {})
        with self.profiler.profile("save_checkpoint"):
            save_file(build_checkpoint(run, bool(weights_only)), keep_finite(module, filepath))

    @contextmanager
    def init_module(self, empty_init: bool | None = None) -> Iterator[None]:
        """Inside, parameters are made on the device and in the precision of this Trainer.

        Args:
            empty_init: uninitialised parameters aren't available: None or False.
        """
        if empty_init:
            raise MisconfigurationException("`Trainer.init_module(empty_init=True)` isn't available.")
        with self.strategy.root_device, self._precision.init_context():
            yield

    def warn_of_barebones_log(self) -> None:
        """Warns, once, that ``self.log`` does nothing with ``barebones=True``."""
        if "barebones log" not in self._said:
            self._said.add("barebones log")
            rank_zero_warn("`self.log()` does nothing with `Trainer(barebones=True)`.", stacklevel=5)


def _to_number(value: Any) -> float:
    number: float = value.item() if isinstance(value, torch.Tensor) else value
    return number
