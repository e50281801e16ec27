"""What happens around a loop: preparing module, data and optimisers, running, and putting everything in order
afterwards.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch

from unstuck.callbacks.collection import check_callbacks, check_state_keys, checkpoints_last
from unstuck.errors import NameClashError, NonFiniteError
from unstuck.messages import rank_zero_info
from unstuck.trainer.checkpoints.learning import learning_of
from unstuck.trainer.checkpoints.restore import restore_states, restore_training
from unstuck.trainer.debugging import watched
from unstuck.trainer.hooks import call_datamodule_hook, call_hook, call_module_hook, is_overridden
from unstuck.trainer.interrupts import TerminationRequested
from unstuck.trainer.lightning_optimizer import LightningOptimizer
from unstuck.trainer.loops.batches import load_training
from unstuck.trainer.loops.checks import check_callbacks_of_lightning, check_evaluation, check_fit
from unstuck.trainer.loops.evaluate import evaluate
from unstuck.trainer.loops.fit import fit, sanity_check
from unstuck.trainer.loops.predict import predict
from unstuck.trainer.optimizers import configure_optimizers
from unstuck.trainer.run import Run
from unstuck.trainer.state import RunningStage, TrainerFn, TrainerStatus

__all__ = ["execute"]


def execute(run: Run) -> Any:
    """Does a run from its first hook to its last.

    Args:
        run: the run; ``run.state.fn`` says what is to be done.

    Returns:
        The results of an evaluation, the predictions, or None for a fit.
    """
    try:
        _start_profiler(run)
        _set_up(run)
        saves = any(getattr(callback, "save_on_exception", False) for callback in run.trainer.callbacks)
        run.trail.keeps_windows = saves and run.state.fn == TrainerFn.FITTING
        run.signals.install(defer_interrupt=run.trail.keeps_windows)
        run.module.zero_grad()
        loop = _prepare_loop(run)
        with ExitStack() as around:
            if loop is fit and run.settings.detect_anomaly is True:
                around.enter_context(torch.autograd.set_detect_anomaly(True))
            if run.state.fn != TrainerFn.PREDICTING:
                around.enter_context(watched(run))
            around.enter_context(_ended_by_signals(run, loop))
            results = loop(run)
        _finish(run)
        return results
    except KeyboardInterrupt as interrupt:
        rank_zero_info("Interrupted by the keyboard: shutting down.")
        # Whoever presses Ctrl+C twice doesn't mean to stop the shutting down.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if _in_main_thread() else None
        try:
            _fail(run, interrupt)
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)
        raise SystemExit(1) from interrupt
    except BaseException as error:
        if isinstance(error, TerminationRequested):
            rank_zero_info(f"{error} Shutting down.")
        _fail(run, error)
        raise


def _start_profiler(run: Run) -> None:
    if run.profiler is not None:
        local_rank = run.trainer.local_rank if run.trainer.world_size > 1 else None
        run.profiler._lightning_module = run.module
        run.profiler.setup(stage=run.state.fn, local_rank=local_rank, log_dir=run.trainer.log_dir)


def _prepare_loop(run: Run) -> Callable[[Run], Any]:
    """The loop of the run, with what comes before a fit's first training batch already done."""
    fn = run.state.fn
    if fn == TrainerFn.VALIDATING:
        return _validate
    if fn == TrainerFn.TESTING:
        return _test
    if fn == TrainerFn.PREDICTING:
        return predict
    if _train_limit_may_fail(run):
        # A limit that fits no loader is told before anything runs, the sanity check included.
        load_training(run)
    if run.resumption is None or not run.resumption.position.within_epoch:
        sanity_check(run)
    return fit


@contextmanager
def _ended_by_signals(run: Run, loop: Callable[[Run], Any]) -> Iterator[None]:
    """Where a loop fails because of a signal, that is what ends it."""
    try:
        yield
    except Exception as error:
        if run.signals.accounts_for(error):
            run.signals.stop("the fit" if loop is fit else "a prediction" if loop is predict else "an evaluation")
        raise


def _validate(run: Run) -> list[dict[str, Any]]:
    return evaluate(run, RunningStage.VALIDATING, run.verbose)


def _test(run: Run) -> list[dict[str, Any]]:
    return evaluate(run, RunningStage.TESTING, run.verbose)


def _finish(run: Run) -> None:
    """Everything after a loop that came to its end."""
    _release(run)
    fn = run.state.fn
    if fn == TrainerFn.FITTING:
        call_hook(run.trainer, "on_fit_end")
    call_datamodule_hook(run.trainer, run.datamodule, "teardown", stage=fn)
    call_hook(run.trainer, "teardown", stage=fn)
    run.module.__dict__["_current_fx_name"] = None
    for logger in run.trainer.loggers:
        logger.finalize("success")
    if run.profiler is not None:
        run.profiler.describe()
    run.state.status = TrainerStatus.FINISHED
    run.state.stage = None


def _train_limit_may_fail(run: Run) -> bool:
    limits = run.settings.limits
    return limits.overfit is not None or (isinstance(limits.train, float) and 0.0 < limits.train < 1.0)


def _set_up(run: Run) -> None:
    """Everything before the loop, in the order of the public API."""
    module, datamodule, trainer, state, strategy = run.module, run.datamodule, run.trainer, run.state, run.strategy
    fn = state.fn
    assert fn is not None
    fitting = fn == TrainerFn.FITTING
    _attach_callbacks(run)
    if fitting:
        check_fit(run)
    else:
        check_evaluation(run, {"validate": "validation_step"}.get(fn.value, f"{fn.value}_step"), fn.value)
    if datamodule is not None and is_overridden("prepare_data", datamodule):
        datamodule.prepare_data()
    if is_overridden("prepare_data", module):
        call_module_hook(module, "prepare_data")
    for child in module.modules():
        # The module can already tell where it will be.
        if "_device" in child.__dict__:
            child.__dict__["_device"] = strategy.root_device
    for logger in run.trainer.loggers:
        _ = getattr(logger, "experiment", None)
    call_datamodule_hook(trainer, datamodule, "setup", stage=fn)
    call_hook(trainer, "setup", stage=fn)
    if is_overridden("configure_model", module):
        with strategy.root_device, run.precision.init_context():
            call_module_hook(module, "configure_model")
    run.logbook.start(module, strategy.root_device)
    run.precision.convert_module(module)
    checkpoint = None
    if run.ckpt_path is not None:
        checkpoint = restore_states(run, run.ckpt_path, run.ckpt_weights_only)
        # The hook on loading may have made layers.
        run.precision.convert_module(module)
    module.to(strategy.root_device)
    if fitting:
        run.trail.learning = learning_of(module)
        _set_up_optimizers(run)
        call_hook(trainer, "on_fit_start")
    if run.settings.enable_autolog_hparams:
        _log_hyperparameters(run)
    if fitting and checkpoint is not None:
        run.resumption = restore_training(run, checkpoint, str(run.ckpt_path))


def _set_up_optimizers(run: Run) -> None:
    strategy = run.strategy
    strategy.optimizers, strategy.lr_scheduler_configs = configure_optimizers(run.module)
    strategy._lightning_optimizers = [
        optimizer if isinstance(optimizer, LightningOptimizer) else LightningOptimizer(optimizer)
        for optimizer in strategy.optimizers
    ]


def _attach_callbacks(run: Run) -> None:
    """Adds the module's own callbacks, and lets callbacks log through the module."""
    module, trainer = run.module, run.trainer
    own: Any = call_module_hook(module, "configure_callbacks")
    own = list(own) if isinstance(own, (list, tuple)) else [own] if own else []
    check_callbacks(own, f"`{type(module).__name__}.configure_callbacks`")
    if own:
        types = {type(callback) for callback in own}
        replaced = sorted({type(callback).__name__ for callback in trainer.callbacks if type(callback) in types})
        if replaced:
            rank_zero_info(f"Callbacks of the module take the place of the Trainer's: {', '.join(replaced)}.")
        kept = [callback for callback in trainer.callbacks if type(callback) not in types]
        trainer.callbacks = checkpoints_last([*kept, *own])
        check_state_keys(trainer.callbacks)
    check_callbacks_of_lightning(trainer.callbacks, module)
    for callback in trainer.callbacks:
        callback.log, callback.log_dict = module.log, module.log_dict


def _log_hyperparameters(run: Run) -> None:
    """Hands the saved hyperparameters of module and data module to the loggers.

    Raises:
        NameClashError: both have the same name with different values.
    """
    if not run.trainer.loggers:
        return
    logged = [
        owner
        for owner in (run.module, run.datamodule)
        if owner is not None and getattr(owner, "_log_hyperparams", False)
    ]
    merged: dict[str, Any] = {}
    for owner in logged:
        for name, value in owner.hparams_initial.items():
            if name in merged and not _same(merged[name], value):
                raise NameClashError(
                    f"The hyperparameter {name!r} of module and data module have different values, so they can't both"
                    " be logged."
                    " Rename one, or save it with `save_hyperparameters(logger=False)`."
                )
            merged[name] = value
    for logger in run.trainer.loggers:
        if logged:
            logger.log_hyperparams(merged)
        logger.log_graph(run.module)
        logger.save()


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor) or isinstance(second, torch.Tensor):
        return first is second
    return bool(first == second)


def _release(run: Run) -> None:
    """Lets go of devices, workers and signals, whether the run ended well or not."""
    run.signals.uninstall()
    run.logbook.move_to_cpu()
    for data in (run.train, run.val, run.test, run.predict):
        for batches in (data.batches, data.running):
            # An exception that somebody keeps would keep the iterators, too, and with them the workers.
            if isinstance(batches, Generator):
                batches.close()
        data.batches = data.running = None
        if data.combined is not None:
            data.combined.reset()
    for optimizer in run.strategy._lightning_optimizers:
        optimizer.detach()
    if run.strategy.root_device.type != "cpu":
        run.module.cpu()


def _fail(run: Run, error: BaseException) -> None:
    """Tells everybody that the run was ended by an exception. A second exception on the way doesn't hide the first."""
    run.state.status = TrainerStatus.INTERRUPTED

    def call_exception_hook(callback: Any) -> None:
        call_hook(run.trainer, "on_exception", error, callbacks=[callback], on_module=False)

    def finalize_loggers() -> None:
        for logger in run.trainer.loggers:
            logger.finalize("failed")

    steps: list[Callable[[], Any]] = [
        *(partial(call_exception_hook, callback) for callback in run.trainer.callbacks),
        lambda: call_datamodule_hook(run.trainer, run.datamodule, "on_exception", error),
        finalize_loggers,
        *(_teardown_hooks(run) if isinstance(error, NonFiniteError) else ()),
        lambda: _release(run),
        lambda: None if run.profiler is None else run.profiler.describe(),
    ]
    for step in steps:
        try:
            step()
        except Exception as second:  # noqa: BLE001 - the first exception is the one that is raised
            _attach_note(error, second)
    run.module.__dict__["_current_fx_name"] = None
    run.state.stage = None


def _teardown_hooks(run: Run) -> list[Callable[[], Any]]:
    """The hooks of an ordinary end: a run that was asked to end at an incident has ended as it should."""
    return [
        lambda: call_datamodule_hook(run.trainer, run.datamodule, "teardown", stage=run.state.fn),
        lambda: call_hook(run.trainer, "teardown", stage=run.state.fn),
    ]


def _attach_note(error: BaseException, second: Exception) -> None:
    note = f"While the Trainer was shutting down: {type(second).__name__}: {second}"
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        rank_zero_info(note)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
