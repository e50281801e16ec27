"""Training: epochs of batches, validations in between, and all that decides when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

from unstuck.callbacks.collection import saves_checkpoints
from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_info, rank_zero_warn
from unstuck.profilers.actions import profiled, profiled_batches
from unstuck.trainer.checkpoints.data_position import (
    begin_pass_again,
    restore_between_epochs,
    restore_modes_of,
    warn_of_overfitting,
)
from unstuck.trainer.checkpoints.metric_states import metric_states, restore_metric_states
from unstuck.trainer.checkpoints.restore import Resumption, restore_gradients
from unstuck.trainer.checkpoints.trail import Window, gradients_of, versions_of
from unstuck.trainer.data.loaders import generators_of
from unstuck.trainer.data.seed import isolate_rng
from unstuck.trainer.hooks import bind_hook, call_hook, call_module_hook, has_own, hook_action, takes_argument
from unstuck.trainer.loops.batches import announce_epoch, begin_pass, bind_transfer, load_evaluation, load_training
from unstuck.trainer.loops.checks import warn_of_eval_mode, warn_of_uncovered_parameters
from unstuck.trainer.loops.evaluate import evaluate
from unstuck.trainer.optimization import AutomaticStep, ForwardStep, ManualStep
from unstuck.trainer.run import Run
from unstuck.trainer.schedulers import step_scheduler, warn_of_misfits
from unstuck.trainer.state import Place, RunningStage

__all__ = ["estimate_stepping_batches", "fit", "prepare_training_batches", "sanity_check"]


def sanity_check(run: Run) -> None:
    """Runs a few validation batches before the training, so that a mistake there doesn't wait for the end of an epoch.

    Random state, metrics and loggers are afterwards as before.
    """
    limits = run.settings.limits
    if not run.validates or limits.sanity == 0:
        return
    run.trail.validation, run.trail.running_in_validation = run.trail.now(), run.trail.running_now()
    with isolate_rng():
        run.state.stage = RunningStage.SANITY_CHECKING
        run.logbook.forget()
        call_hook(run.trainer, "on_sanity_check_start")
        load_evaluation(run, run.val, limits.val, "limit_val_batches")
        # A loader may draw from a generator of its own, or from one that the training loader has too.
        with isolate_rng(generators=generators_of(run.val.combined.flattened)):
            evaluate(run, RunningStage.SANITY_CHECKING, verbose=False)
        call_hook(run.trainer, "on_sanity_check_end")
        run.logbook.forget()
    run.val.seen = {}
    run.state.stage = RunningStage.TRAINING


def fit(run: Run) -> None:
    """Trains until one of the bounds is reached."""
    if run.settings.limits.train == 0:
        rank_zero_info("`Trainer.fit` does nothing: `limit_train_batches=0`.")
        return
    if run.resumption is None:
        prepare_training_batches(run)
    else:
        load_training(run)
        run.train.is_fresh = False
        _close_resumed_epoch(run, run.resumption)
    if not _has_only_its_end_left(run) and _is_done(run):
        return
    torch.set_grad_enabled(True)
    _start(run)
    train_epoch = profiled(run.profiler, "run_training_epoch", _train_epoch)
    continues = _resume(run)
    while continues or not _is_done(run):
        if not continues:
            _start_epoch(run)
        train_epoch(run, continues)
        continues = False
        _end_epoch(run)
        if run.signals.stop_requested:
            run.signals.stop("the fit")
    call_hook(run.trainer, "on_train_end")
    run.logbook.leave()


def prepare_training_batches(run: Run) -> None:
    """Loads the training data, if that isn't done, and begins the first pass over it."""
    load_training(run)
    if run.train.is_fresh and run.progress.num_training_batches != 0:
        run.train.is_fresh = False
        _begin_training_pass(run)


def _begin_training_pass(run: Run) -> None:
    if run.trail.searched is not run.train.combined:
        run.trail.find_sources(run.module, run.train, run.val)
    run.trail.begin_pass()
    run.trail.follow(run.train.combined)
    begin_pass(run.train)


def estimate_stepping_batches(run: Run) -> int | float:
    """The number of optimiser steps that the fit will make at most (infinite: without end)."""
    bounds, progress = run.settings.bounds, run.progress
    if bounds.max_epochs == -1:
        return float("inf") if bounds.max_steps == -1 else bounds.max_steps
    if run.train.combined is None:
        rank_zero_info("The training loader is loaded already, to count the optimizer steps of the run.")
        prepare_training_batches(run)
    batches = progress.num_training_batches
    if batches == float("inf"):
        return bounds.max_steps
    per_epoch = -(-int(batches) // run.settings.accumulate_grad_batches)
    steps = per_epoch * max(bounds.max_epochs, 1)
    return steps if bounds.max_steps == -1 else min(steps, bounds.max_steps)


def _start(run: Run) -> None:
    settings, progress = run.settings, run.progress
    if settings.bounds.max_steps == -1:
        progress.current_epoch = progress.epochs_processed
    if _validates_this_epoch(run) and run.val.combined is None:
        load_evaluation(run, run.val, settings.limits.val, "limit_val_batches")
    warn_of_eval_mode(run)
    run.started = run.last_validation = time.monotonic()
    run.logbook.enter("train")
    call_hook(run.trainer, "on_train_start")
    warn_of_uncovered_parameters(run.module, run.strategy.optimizers)
    bounds = settings.bounds
    epochs = float("inf") if bounds.max_epochs == -1 else bounds.max_epochs
    if run.module.automatic_optimization and run.strategy.lr_scheduler_configs:
        warn_of_misfits(run.strategy.lr_scheduler_configs, epochs, _known_steps(run))


def _known_steps(run: Run) -> float:
    steps = estimate_stepping_batches(run)
    return float("inf") if steps == -1 else steps


def _resume(run: Run) -> bool:
    """Goes on where a checkpoint was written, and says whether that is within an epoch."""
    resumption, run.resumption, progress = run.resumption, None, run.progress
    if resumption is None:
        return False
    own = resumption.own
    if run.validates and run.val.combined is None:
        load_evaluation(run, run.val, run.settings.limits.val, "limit_val_batches")
    for stage, epoch in own.get("loaded_in_epoch", {}).items():
        {"train": run.train, "val": run.val}[stage].loaded_in_epoch = epoch
    run.trail.find_sources(run.module, run.train, run.val)
    warn_of_overfitting(run)
    restore_gradients(run, own.get("gradients", {}))
    if resumption.position.within_epoch:
        announce_epoch(run.train, progress.epochs_processed)
        restore_modes_of(run.module, own.get("eval_modules", []))
        restore_metric_states(run.module, own.get("metric_objects", {}))
        if any(type(callback).__name__ == "GradientAccumulationScheduler" for callback in run.trainer.callbacks):
            # It acts in a hook at the start of the epoch.
            run.settings.accumulate_grad_batches = own.get(
                "accumulate_grad_batches", run.settings.accumulate_grad_batches
            )
        run.logbook.continue_epoch(own.get("sums", []))
        begin_pass_again(run, resumption)
        return True
    restore_between_epochs(run, resumption)
    return False


def _has_only_its_end_left(run: Run) -> bool:
    """Whether a resumed fit has made all of its steps, but not what follows the last one."""
    resumption, max_steps = run.resumption, run.settings.bounds.max_steps
    if resumption is None or not resumption.position.within_epoch or max_steps == -1:
        return False
    position = resumption.position
    # In manual optimisation a batch may make several steps, so the last one may go beyond the bound.
    steps_of_batch = -(-(position.global_step - position.global_step_before_epoch) // position.batches)
    return 0 <= position.global_step - max_steps < max(steps_of_batch, 1)


def _close_resumed_epoch(run: Run, resumption: Resumption) -> None:
    """Does what was left to do of an epoch whose hooks at its end have run."""
    run.logbook.restore_published(resumption.own.get("metrics", {}))
    if resumption.position.within_epoch:
        return
    if resumption.position.place == Place.EPOCH_END:
        _step_epoch_schedulers(run)
    run.progress.current_epoch, run.progress.place = run.progress.epochs_processed, Place.BETWEEN


def _start_epoch(run: Run) -> None:
    progress, trail = run.progress, run.trail
    trail.find_sources(run.module, run.train, run.val)
    trail.begin_epoch()
    prepare_training_batches(run)
    announce_epoch(run.train, progress.epochs_processed)
    progress.epochs_started = progress.epochs_processed + 1
    progress.place = Place.EPOCH_START
    call_hook(run.trainer, "on_train_epoch_start")


def _train_epoch(run: Run, continues: bool = False) -> None:
    """Runs the batches of one epoch.

    Args:
        run: the run.
        continues: whether an epoch is gone on with, whose first batches are done.
    """
    progress, module, logbook, settings, signals = run.progress, run.module, run.logbook, run.settings, run.signals
    if not continues:
        if progress.current_epoch > 0 or run.train.batches is None:
            _begin_training_pass(run)
        progress.batch_idx, progress.batches_ready, progress.is_last_batch = -1, 0, False
        progress.accumulating = False
        progress.global_step_before_epoch = progress.global_step
        progress.scheduler_steps_before_epoch = progress.scheduler_steps
        progress.validation_batches_of_epoch = 0
    batches, run.train.batches = run.train.batches, None
    if progress.should_stop and _may_stop(run):
        batches = iter(())

    transfer = bind_transfer(run)
    on_start = bind_hook(run.trainer, "on_train_batch_start")
    on_end, save = _bind_batch_end(run)
    step = _bind_step(run, wants_outputs=on_end is not None or save is not None)
    run_step = profiled(run.profiler, "run_training_batch", step.run)
    schedulers = _bind_schedulers(run)
    accumulate = settings.accumulate_grad_batches
    automatic = module.automatic_optimization
    writes = bool(logbook.loggers) and settings.log_every_n_steps > 0
    validates = _validates_this_epoch(run)
    max_steps = settings.bounds.max_steps
    stop_at = _deadline(run, settings.max_time)
    last, forward_only = progress.num_training_batches, progress.forward_only
    trail, keeps_windows = run.trail, run.trail.keeps_windows
    in_batch, at_batch_end, complete = Place.BATCH, Place.BATCH_END, Place.COMPLETE

    def finish_batch(is_last: bool, accumulating: bool, validated: bool) -> bool:
        """What follows the hooks at a batch's end; says whether the epoch ends with it."""
        if validates and not validated and _validation_is_due(run, is_last):
            _validate(run, accumulating)
        if schedulers is not None and not accumulating:
            schedulers("step", True)
        if not accumulating:
            progress.batches_that_stepped += 1
        if progress.should_stop:
            for logger in logbook.loggers:
                logger.save()
        progress.place = complete
        is_final = is_last or progress.batches_ready == last
        is_done = is_final or (max_steps != -1 and progress.global_step >= max_steps)
        if signals.stop_requested and not is_done:
            signals.stop("the fit")
        if is_done or (progress.should_stop and _may_stop(run)):
            return True
        if keeps_windows and not accumulating:
            trail.window = _open_window(run)
        signals.awaits_batch = True
        return False

    run.train.running = batches
    if trail.drawn is None:
        trail.drawn = trail.now()
    if keeps_windows:
        trail.window = _open_window(run)
    if continues:
        is_final = progress.is_last_batch or progress.batches_ready == last
        has_all_steps = max_steps != -1 and progress.global_step >= max_steps
        progress.accumulating = not is_final and progress.batches_ready % accumulate != 0
        is_over = progress.place != complete and finish_batch(
            progress.is_last_batch, progress.accumulating, validated=progress.place == Place.VALIDATED
        )
        if is_over or is_final or has_all_steps:
            batches = iter(())

    signals.awaits_batch = True
    for batch, batch_idx, _, is_last in profiled_batches(
        run.profiler, "[_TrainingEpochLoop].train_dataloader_next", batches
    ):
        signals.awaits_batch = False
        progress.place = in_batch
        progress.batch_idx = batch_idx
        progress.total_batch_idx += 1
        progress.batches_ready += 1
        progress.is_last_batch = is_last
        is_final = is_last or progress.batches_ready == last
        batch = transfer(batch, 0)
        logbook.begin_batch(batch)
        accumulating = forward_only or (not is_final and progress.batches_ready % accumulate != 0)
        progress.accumulating = accumulating
        outputs: dict[str, Any] = {}
        skips_rest = False
        if batch is None:
            _warn_of_none(run)
        else:
            skips_rest = on_start is not None and on_start(batch, batch_idx) == -1
            if skips_rest:
                progress.is_last_batch = is_final = True
                progress.accumulating = accumulating = False
            else:
                outputs = run_step(batch, batch_idx, accumulating)
        if schedulers is not None:
            if not accumulating:
                schedulers("step", False)
            if is_final:
                schedulers("epoch", False)
        if skips_rest:
            break
        progress.place = at_batch_end
        if on_end is not None:
            on_end(outputs, batch, batch_idx)
        if save is not None:
            progress.validation_follows = validates and _validation_is_due(run, is_last)
            save(outputs, batch, batch_idx)
        logbook.end_batch()
        if stop_at is not None and time.monotonic() >= stop_at:
            _stop_for_time(run)
        if writes and not (accumulating and automatic):
            logbook.write_train_step(progress.batches_that_stepped, progress.current_epoch, force=progress.should_stop)
        if finish_batch(is_last, accumulating, validated=False):
            break
    signals.awaits_batch = False
    if progress.batches_ready == 0 and not progress.should_stop:
        _tell_of_empty_epoch(run)
    step.refuse_only_nones(is_complete=progress.is_last_batch or progress.batches_ready == last)


def _bind_batch_end(run: Run) -> tuple[Callable[..., Any] | None, Callable[..., Any] | None]:
    """The hooks at the end of a batch: those of callbacks and module, and after them those that save, so that nothing
    that a batch changes is missing in a checkpoint.
    """
    saving = [callback for callback in run.trainer.callbacks if saves_checkpoints(callback)]
    others = [callback for callback in run.trainer.callbacks if not saves_checkpoints(callback)]
    is_listed = run.profiler is not None
    due = [callback for callback in saving if is_listed or not getattr(callback, "idle_between_batches", False)]
    name = "on_train_batch_end"
    return bind_hook(run.trainer, name, others), bind_hook(run.trainer, name, due, on_module=False)


def _open_window(run: Run) -> Window:
    """Notes what a checkpoint of the last completed step needs if the next one fails."""
    module, progress = run.module, run.progress
    return Window(
        batches=progress.batches_ready,
        random=run.trail.now(),
        buffers={name: buffer.detach().clone() for name, buffer in module.named_buffers(remove_duplicate=False)},
        versions=versions_of(module),
        sums=run.logbook.training_sums(),
        metrics=metric_states(module),
        restarts=run.trail.restarts,
        ahead=run.trail.ahead,
        gradients=gradients_of(module) if progress.accumulating or not module.automatic_optimization else {},
    )


def _bind_step(run: Run, wants_outputs: bool) -> AutomaticStep | ManualStep | ForwardStep:
    takes_batch_idx = takes_argument(run.module.training_step, "batch_idx", min_positional=2)
    if run.progress.forward_only:
        return ForwardStep(run, takes_batch_idx)
    if run.module.automatic_optimization:
        return AutomaticStep(run, takes_batch_idx, wants_outputs)
    return ManualStep(run, takes_batch_idx)


def _end_epoch(run: Run) -> None:
    progress, logbook = run.progress, run.logbook
    logbook.reach_epoch_end()
    progress.epochs_processed += 1
    progress.place = Place.EPOCH_END
    # Callbacks that watch a metric come last, since the module may log it in this very hook; and those that save after
    # all that an epoch's end changes.
    callbacks = run.trainer.callbacks
    watching = [callback for callback in callbacks if _stops_early(callback)]
    saving = [callback for callback in callbacks if saves_checkpoints(callback)]
    others = [callback for callback in callbacks if callback not in watching and callback not in saving]
    call_hook(run.trainer, "on_train_epoch_end", callbacks=others)
    call_hook(run.trainer, "on_train_epoch_end", callbacks=watching, on_module=False)
    logbook.publish_epoch()
    _step_epoch_schedulers(run)
    progress.place = Place.EPOCH_CLOSED
    call_hook(run.trainer, "on_train_epoch_end", callbacks=saving, on_module=False)
    logbook.write_train_epoch(progress.batches_that_stepped - 1, progress.current_epoch)
    progress.current_epoch += 1
    progress.place = Place.BETWEEN
    run.trail.end_epoch()


def _step_epoch_schedulers(run: Run) -> None:
    """Steps the schedulers that watch a metric at the end of an epoch that wasn't cut short."""
    progress, schedulers = run.progress, _bind_schedulers(run)
    if schedulers is not None and (progress.is_last_batch or progress.batches_ready == progress.num_training_batches):
        schedulers("epoch", True)


def _stops_early(callback: object) -> bool:
    return any(cls.__name__ == "EarlyStopping" for cls in type(callback).__mro__)


def _validate(run: Run, accumulating: bool) -> None:
    """A validation within the fit."""
    run.trail.begin_validation(run.module)
    run.progress.place = Place.VALIDATING
    if not accumulating:
        if run.profiler is not None or has_own("on_validation_model_zero_grad", run.module):
            call_module_hook(run.module, "on_validation_model_zero_grad")
        else:
            run.module.zero_grad()
    if run.settings.isolate_validation:
        loaders = [] if run.val.combined is None else run.val.combined.flattened
        with isolate_rng(generators=generators_of(loaders)):
            evaluate(run, RunningStage.VALIDATING, verbose=False)
    else:
        evaluate(run, RunningStage.VALIDATING, verbose=False)


def _validates_this_epoch(run: Run) -> bool:
    every = run.settings.check_val_every_n_epoch
    return run.validates and (every is None or (every > 0 and (run.progress.current_epoch + 1) % every == 0))


def _validation_is_due(run: Run, is_last: bool) -> bool:
    """Whether to validate after the batch that has just ended, in an epoch that validates."""
    progress, limits = run.progress, run.settings.limits
    every = run.val_check_batches
    if is_last and every == float("inf"):
        return True
    if progress.should_stop and _may_stop(run):
        return True
    if every is None:
        interval = limits.val_check_interval
        assert isinstance(interval, timedelta)
        return time.monotonic() - run.last_validation >= interval.total_seconds()
    if every == float("inf"):
        return isinstance(limits.train, int) and (progress.batch_idx + 1) % limits.train == 0
    count = progress.total_batch_idx if run.settings.check_val_every_n_epoch is None else progress.batch_idx
    return (count + 1) % every == 0


def _bind_schedulers(run: Run) -> Callable[[str, bool], None] | None:
    """Steps the schedulers of an interval ("step" or "epoch"), those that watch a metric or the others; None without
    schedulers.
    """
    configs, module, progress, logbook = run.strategy.lr_scheduler_configs, run.module, run.progress, run.logbook
    if not configs or not module.automatic_optimization:
        return None
    own = None
    if run.profiler is not None or has_own("lr_scheduler_step", module):
        own = profiled(run.profiler, hook_action(module, "lr_scheduler_step"), module.lr_scheduler_step)
    precision = run.precision

    def update(interval: str, on_plateau: bool) -> None:
        for config in configs:
            if config.reduce_on_plateau != on_plateau or config.interval != interval:
                continue
            if interval == "step" and precision.skipped_step:
                continue
            count = progress.batch_idx if interval == "step" else progress.current_epoch
            progress.scheduler_steps += (count + 1) % config.frequency == 0
            step_scheduler(config, count + 1, lambda: logbook.callback_metrics, own)

    return update


def _is_done(run: Run) -> bool:
    """Whether the fit is over before the next epoch; says why."""
    progress, bounds = run.progress, run.settings.bounds
    if progress.num_training_batches == 0:
        rank_zero_info("`Trainer.fit` stopped: there are no training batches.")
        return True
    if bounds.max_steps != -1 and progress.global_step >= bounds.max_steps:
        rank_zero_info(f"`Trainer.fit` stopped: `max_steps={bounds.max_steps}` reached.")
        return True
    if bounds.max_epochs != -1 and progress.epochs_processed >= bounds.max_epochs:
        progress.current_epoch = progress.epochs_processed
        rank_zero_info(f"`Trainer.fit` stopped: `max_epochs={bounds.max_epochs}` reached.")
        return True
    return progress.should_stop and _may_stop(run)


def _may_stop(run: Run) -> bool:
    """Whether the lower bounds allow an early end."""
    progress, bounds = run.progress, run.settings.bounds
    enough_epochs = not bounds.min_epochs or progress.epochs_processed >= bounds.min_epochs
    enough_steps = not bounds.min_steps or progress.global_step >= bounds.min_steps
    if not (enough_epochs and enough_steps):
        message = (
            f"A stop was asked for, but `min_epochs={bounds.min_epochs}` or `min_steps={bounds.min_steps}` isn't"
            " reached: the training"
            " goes on."
        )
        if message not in run.said:
            run.said.add(message)
            rank_zero_info(message)
        return False
    return True


def _deadline(run: Run, max_time: timedelta | None) -> float | None:
    return None if max_time is None else run.started + max_time.total_seconds()


def _stop_for_time(run: Run) -> None:
    if not run.progress.should_stop:
        run.progress.should_stop = True
        rank_zero_info(f"`Trainer.fit` stops: `max_time={run.settings.max_time}` is over.")


def _tell_of_empty_epoch(run: Run) -> None:
    """Tells of an epoch in which the loaders gave no batch, though they don't say that they are empty.

    Raises:
        MisconfigurationException: nothing would ever end the fit.
    """
    message = (
        f"The training loader gave no batch in epoch {run.progress.current_epoch}. A generator or iterator can be gone"
        " through only once; pass something that starts anew for every epoch, such as a list or a DataLoader."
    )
    if run.settings.bounds.max_epochs == -1:
        raise MisconfigurationException(f"{message} With `max_epochs=-1` the fit would go on for ever.")
    if "empty epoch" not in run.said:
        run.said.add("empty epoch")
        rank_zero_warn(message)


def _warn_of_none(run: Run) -> None:
    if "none batch" not in run.said:
        run.said.add("none batch")
        rank_zero_warn("The training loader yielded None in place of a batch; it is skipped.")
