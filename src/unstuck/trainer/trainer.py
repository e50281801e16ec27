"""The Trainer: Lightning 2.x's keywords, methods and properties over plain loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
from torch.optim import Optimizer

from unstuck.callbacks import Callback, ModelCheckpoint, OverfitVerdict, RichModelSummary, RichProgressBar
from unstuck.errors import MisconfigurationException
from unstuck.loggers import DummyLogger, Logger, configure_loggers
from unstuck.messages import rank_zero_info, rank_zero_warn, show_messages
from unstuck.profilers import PassThroughProfiler, configure_profiler
from unstuck.strategies import SingleDeviceStrategy
from unstuck.trainer.accelerators import select_device
from unstuck.trainer.bridge import LogConnector, LoopView, PredictView, ResultsBridge
from unstuck.trainer.checkpoints.content import build_checkpoint
from unstuck.trainer.checkpoints.files import save_file
from unstuck.trainer.checkpoints.finite import keep_finite
from unstuck.trainer.checkpoints.paths import select_path
from unstuck.trainer.config import (
    as_list,
    check_barebones,
    check_callbacks,
    check_clipping,
    check_count,
    check_on_nonfinite,
    check_state_keys,
    checkpoints_last,
    expand_root_dir,
    parse_accumulation,
    parse_detect_anomaly,
    parse_loop_bounds,
    parse_max_time,
    refuse_unbuilt,
)
from unstuck.trainer.data.limits import Overfit, parse_batch_limits, parse_check_val_every_n_epoch
from unstuck.trainer.data.loaders import find_source
from unstuck.trainer.entry import execute
from unstuck.trainer.hooks import is_overridden
from unstuck.trainer.interrupts import SignalGuard
from unstuck.trainer.loops.fit import estimate_stepping_batches
from unstuck.trainer.precision import Precision, select_precision
from unstuck.trainer.reproducibility import apply_benchmark, apply_determinism
from unstuck.trainer.results import Logbook
from unstuck.trainer.run import Run, StageData
from unstuck.trainer.settings import Settings
from unstuck.trainer.state import Place, Progress, RunningStage, TrainerFn, TrainerState, TrainerStatus

__all__ = ["Trainer"]

Interval = int | float | str | timedelta | dict[str, int]
_BATCHES_DEFAULT = 50


class Trainer:
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
        other_plugins = [plugin for plugin in as_list(plugins) if not isinstance(plugin, Precision)]
        refuse_unbuilt(
            strategy=strategy,
            num_nodes=num_nodes,
            plugins=other_plugins,
            sync_batchnorm=sync_batchnorm,
            model_registry=model_registry,
        )
        check_count("log_every_n_steps", log_every_n_steps, optional=True)
        check_count("reload_dataloaders_every_n_epochs", reload_dataloaders_every_n_epochs)
        limits = parse_batch_limits(
            limit_train_batches=limit_train_batches,
            limit_val_batches=limit_val_batches,
            limit_test_batches=limit_test_batches,
            limit_predict_batches=limit_predict_batches,
            overfit_batches=overfit_batches,
            val_check_interval=val_check_interval,
            check_val_every_n_epoch=check_val_every_n_epoch,
            num_sanity_val_steps=num_sanity_val_steps,
            fast_dev_run=fast_dev_run,
        )
        every_n_epochs = parse_check_val_every_n_epoch(check_val_every_n_epoch)
        if limits.fast_dev_run:
            max_epochs, max_steps, every_n_epochs = 1, limits.fast_dev_run, 1
        duration = parse_max_time(max_time)
        bounds = parse_loop_bounds(min_epochs, max_epochs, min_steps, max_steps, duration is not None)
        clip_algorithm = check_clipping(gradient_clip_val, gradient_clip_algorithm)

        self._strategy = strategy if isinstance(strategy, SingleDeviceStrategy) else None
        device = self._strategy.root_device if self._strategy is not None else select_device(accelerator, devices)
        if self._strategy is None:
            self._strategy = SingleDeviceStrategy(device)
        own_precision = [plugin for plugin in as_list(plugins) if isinstance(plugin, Precision)]
        if own_precision and precision is not None:
            raise MisconfigurationException(
                f"`Trainer(precision={precision!r}, plugins=...)`: both say which precision; leave one of them out."
            )
        if len(own_precision) > 1:
            raise MisconfigurationException("`Trainer(plugins=...)` has more than one precision.")
        self._precision = own_precision[0] if own_precision else select_precision(precision, device.type)
        self._strategy.precision_plugin = self._precision

        self._settings = Settings(
            bounds=bounds,
            max_time=duration,
            limits=limits,
            check_val_every_n_epoch=every_n_epochs,
            reload_dataloaders_every_n_epochs=reload_dataloaders_every_n_epochs,
            log_every_n_steps=_BATCHES_DEFAULT if log_every_n_steps is None else log_every_n_steps,
            accumulate_grad_batches=parse_accumulation(accumulate_grad_batches),
            gradient_clip_val=gradient_clip_val,
            gradient_clip_algorithm=clip_algorithm,
            inference_mode=inference_mode,
            detect_anomaly=parse_detect_anomaly(detect_anomaly),
            on_nonfinite=check_on_nonfinite(on_nonfinite, barebones),
            barebones=barebones,
            use_distributed_sampler=use_distributed_sampler,
            isolate_validation=isolate_validation,
            enable_autolog_hparams=enable_autolog_hparams,
        )
        self._default_root_dir = expand_root_dir(default_root_dir)
        loggers = configure_loggers(True if logger is None else logger, self._default_root_dir)
        if limits.fast_dev_run and loggers:
            # Code that writes to `self.logger.experiment` finds something that takes it.
            loggers = [DummyLogger()]
        self.state = TrainerState()
        self._progress = Progress()
        self._logbook = Logbook(loggers, self._settings.log_every_n_steps)
        self._signals = SignalGuard()
        self.profiler = profiler
        self.callbacks: list[Any] = as_list(callbacks)
        check_callbacks(self.callbacks, "`Trainer(callbacks=...)`")
        check_state_keys(self.callbacks)
        self._add_checkpoint_callback(enable_checkpointing)
        self._add_progress_bar(enable_progress_bar)
        self._add_model_summary(enable_model_summary)
        self._add_overfit_verdict()
        self.callbacks = checkpoints_last(self.callbacks)
        self.ckpt_path: str | None = None
        """The checkpoint that the newest run began from, None without one."""
        self._run: Run | None = None
        self._said: set[str] = set()
        self._deterministic, self._benchmark = deterministic, benchmark
        apply_determinism(deterministic)
        apply_benchmark(benchmark, deterministic)
        self._announce()

    def _add_checkpoint_callback(self, enable_checkpointing: bool | None) -> None:
        own = self.checkpoint_callbacks
        if own and enable_checkpointing is False:
            raise MisconfigurationException(
                f"`enable_checkpointing=False` contradicts the {type(own[0]).__name__} in `callbacks`; leave one of"
                " them out."
            )
        if not own and enable_checkpointing is not False:
            self.callbacks.append(ModelCheckpoint())

    def _add_progress_bar(self, enable_progress_bar: bool | None) -> None:
        own = _named(self.callbacks, "ProgressBar")
        if len(own) > 1:
            raise MisconfigurationException("The Trainer shows one progress bar; `callbacks` has several.")
        if own and enable_progress_bar is False:
            raise MisconfigurationException(
                f"`enable_progress_bar=False` contradicts the {type(own[0]).__name__} in `callbacks`; leave one of"
                " them out."
            )
        if not own and enable_progress_bar is not False:
            self.callbacks.append(RichProgressBar())

    def _add_model_summary(self, enable_model_summary: bool | None) -> None:
        own = _named(self.callbacks, "ModelSummary")
        if own and enable_model_summary is False:
            raise MisconfigurationException(
                f"`enable_model_summary=False` contradicts the {type(own[0]).__name__} in `callbacks`; leave one of"
                " them out."
            )
        if not own and enable_model_summary is not False:
            self.callbacks.append(RichModelSummary())

    def _add_overfit_verdict(self) -> None:
        wanted = self._settings.limits.overfit is not None and not self._settings.barebones
        if wanted and not _named(self.callbacks, "OverfitVerdict"):
            self.callbacks.append(OverfitVerdict())

    def _announce(self) -> None:
        """Tells what was read in which way and what is off."""
        settings = self._settings
        for note in settings.limits.notes:
            rank_zero_info(note)
        if settings.limits.overfit is not None and settings.reload_dataloaders_every_n_epochs:
            rank_zero_info(
                "`overfit_batches` keeps its batches over all epochs, so `reload_dataloaders_every_n_epochs` is off."
            )
        if settings.barebones:
            rank_zero_info(
                "`Trainer(barebones=True)`: checkpoints, loggers, `self.log`, progress bar, model summary, sanity"
                " check, anomaly"
                " detection and profiler are off."
            )
        elif settings.limits.fast_dev_run:
            rank_zero_info(
                f"`Trainer(fast_dev_run={settings.limits.fast_dev_run})`: one epoch of at most so many batches for"
                " each loop and a validation at its end, whatever lengths, limits and intervals are set. Off: loggers,"
                " checkpoints, early stopping, the sanity check."
            )
        if settings.detect_anomaly is True:
            rank_zero_info(
                "`Trainer(detect_anomaly=True)`: torch records the forward pass to explain NaN in backward, which"
                " makes training"
                " several times slower. Switch it off when you have found it."
            )

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
        if _is_datamodule(train_dataloaders):
            train_dataloaders, datamodule = None, train_dataloaders
        _refuse_both(datamodule, "fit", train_dataloaders=train_dataloaders, val_dataloaders=val_dataloaders)
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
        if _is_datamodule(dataloaders):
            dataloaders, datamodule = None, dataloaders
        _refuse_both(datamodule, "predict", dataloaders=dataloaders)
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
        if _is_datamodule(dataloaders):
            dataloaders, datamodule = None, dataloaders
        _refuse_both(datamodule, fn.value, dataloaders=dataloaders)
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
        model = _check_module(model, fn.value)
        before = self._run
        assert self._strategy is not None
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
        sources = {
            stage: find_source(f"{stage}_dataloader", given.get(stage), datamodule, model)
            for stage in ("train", "val", "test", "predict")
        }
        assert self._strategy is not None
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
            train=StageData(sources["train"]),
            val=StageData(sources["val"]),
            test=StageData(sources["test"]),
            predict=StageData(sources["predict"]),
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

    # Where and how.

    @property
    def strategy(self) -> SingleDeviceStrategy:
        """Where the run computes."""
        assert self._strategy is not None
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
        return next(iter(_named(self.callbacks, "ProgressBar")), None)

    @property
    def early_stopping_callbacks(self) -> list[Any]:
        """The callbacks that stop early."""
        return _named(self.callbacks, "EarlyStopping")

    @property
    def early_stopping_callback(self) -> Any:
        """The first of them, None without one."""
        return next(iter(self.early_stopping_callbacks), None)

    @property
    def checkpoint_callbacks(self) -> list[Any]:
        """The callbacks that save checkpoints."""
        return _named(self.callbacks, "Checkpoint")

    @property
    def checkpoint_callback(self) -> Any:
        """The first of them, None without one."""
        return next(iter(self.checkpoint_callbacks), None)

    def warn_of_barebones_log(self) -> None:
        """Warns, once, that ``self.log`` does nothing with ``barebones=True``."""
        if "barebones log" not in self._said:
            self._said.add("barebones log")
            rank_zero_warn("`self.log()` does nothing with `Trainer(barebones=True)`.", stacklevel=5)

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
        return _named(self.callbacks, "BasePredictionWriter")

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


def _is_datamodule(value: Any) -> bool:
    return any(cls.__name__ == "LightningDataModule" for cls in type(value).__mro__)


def _refuse_both(datamodule: Any, method: str, **loaders: Any) -> None:
    given = [name for name, value in loaders.items() if value is not None]
    if datamodule is not None and given:
        raise MisconfigurationException(f"`Trainer.{method}` takes `{'`, `'.join(given)}` or `datamodule`, not both.")


def _check_module(model: Any, method: str) -> Any:
    """The module itself; a compiled one is unwrapped, with its steps compiled.

    Raises:
        TypeError: it is no LightningModule, of this package or the real Lightning.
    """
    original = getattr(model, "_orig_mod", None)
    if original is not None and hasattr(model, "dynamo_ctx"):
        for name in ("forward", "training_step", "validation_step", "test_step", "predict_step"):
            if name not in original.__dict__:
                original.__dict__[name] = model.dynamo_ctx(getattr(original, name))
        model = original
    if not any(cls.__name__ == "LightningModule" for cls in type(model).__mro__):
        raise TypeError(f"`Trainer.{method}` needs a `LightningModule`, got `{type(model).__qualname__}`.")
    return model


def _iterables(data: StageData | None) -> Any:
    return None if data is None or data.combined is None else data.combined.iterables


def _named(callbacks: list[Any], name: str) -> list[Any]:
    return [callback for callback in callbacks if any(cls.__name__ == name for cls in type(callback).__mro__)]


def _to_number(value: Any) -> float:
    number: float = value.item() if isinstance(value, torch.Tensor) else value
    return number
