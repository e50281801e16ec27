"""Validation and test: one loop for both, and for the validation within a fit."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from unstuck.callbacks.collection import saves_checkpoints
from unstuck.errors import MisconfigurationException
from unstuck.profilers.actions import profiled, profiled_batches
from unstuck.trainer.hooks import bind_hook, call_hook, call_module_hook, has_own, is_overridden, takes_argument
from unstuck.trainer.loops.batches import announce_epoch, begin_pass, bind_transfer, load_evaluation
from unstuck.trainer.loops.modes import EvaluationTraces, capture_modes, restore_modes
from unstuck.trainer.loops.table import print_results
from unstuck.trainer.results import Loop
from unstuck.trainer.run import Run, StageData
from unstuck.trainer.state import Place, RunningStage, TrainerFn

__all__ = ["check_dataloader_idx", "check_step", "evaluate", "no_grad_context"]

STORES: dict[RunningStage, Loop] = {
    RunningStage.SANITY_CHECKING: "sanity_check",
    RunningStage.VALIDATING: "validate",
    RunningStage.TESTING: "test",
}


def evaluate(run: Run, stage: RunningStage, verbose: bool) -> list[dict[str, Any]]:
    """Runs a validation (its sanity check included) or a test.

    Args:
        run: the run.
        stage: what to run.
        verbose: whether to print the results.

    Returns:
        The logged metrics, one dict per loader; empty where there was nothing to run.
    """
    fitting = run.state.fn == TrainerFn.FITTING
    before = run.state.stage
    run.state.stage = stage
    with no_grad_context(run.settings.inference_mode and not fitting):
        data = run.test if stage == RunningStage.TESTING else run.val
        results = _evaluate(run, data, stage, verbose)
    run.state.stage = before
    return results


def _evaluate(run: Run, data: StageData, stage: RunningStage, verbose: bool) -> list[dict[str, Any]]:
    testing, sanity = stage == RunningStage.TESTING, stage == RunningStage.SANITY_CHECKING
    name = "test" if testing else "validation"
    limits, module, logbook, progress = run.settings.limits, run.module, run.logbook, run.progress
    if testing:
        load_evaluation(run, data, limits.test, "limit_test_batches")
    else:
        load_evaluation(run, data, limits.val, "limit_val_batches")
    max_batches = [min(limits.sanity, batches) for batches in data.max_batches] if sanity else data.max_batches
    if sum(max_batches) == 0:
        return []
    combined = data.combined
    if run.state.fn == TrainerFn.FITTING:
        announce_epoch(data, progress.epochs_processed)
    combined.limits = max_batches
    begin_pass(data)
    numbered = combined.mode == "sequential" and len(combined.flattened) > 1
    check_dataloader_idx(module, (f"{name}_step",), numbered, name)
    check_dataloader_idx(module, (f"on_{name}_batch_start", f"on_{name}_batch_end"), numbered, name)

    logbook.enter(STORES[stage])
    modes = capture_modes(module)
    if run.profiler is not None or has_own(f"on_{name}_model_eval", module):
        call_module_hook(module, f"on_{name}_model_eval")
    else:
        module.eval()
    traces = EvaluationTraces(module, len(combined.flattened)) if run.state.fn == TrainerFn.FITTING else None
    call_hook(run.trainer, f"on_{name}_start")
    call_hook(run.trainer, f"on_{name}_epoch_start")
    batches = _run_batches(run, data, name, numbered)
    logbook.reach_epoch_end()
    call_hook(run.trainer, f"on_{name}_epoch_end")
    outputs = logbook.finish_evaluation(progress.batches_that_stepped, progress.current_epoch)
    if run.state.fn == TrainerFn.FITTING and not sanity:
        progress.place, progress.validation_batches = Place.VALIDATED, batches
        progress.validation_batches_of_epoch += batches
    saving = [callback for callback in run.trainer.callbacks if saves_checkpoints(callback)]
    others = [callback for callback in run.trainer.callbacks if callback not in saving]
    call_hook(run.trainer, f"on_{name}_end", callbacks=others)
    # What the module changes there is to be in a checkpoint.
    call_hook(run.trainer, f"on_{name}_end", callbacks=saving, on_module=False)
    if is_overridden(f"on_{name}_model_train", module):
        call_module_hook(module, f"on_{name}_model_train")
    else:
        restore_modes(modes)
    logbook.leave()
    if traces is not None:
        traces.report(run.said)
    if verbose:
        print_results(outputs, STORES[stage])
    run.last_validation = time.monotonic()
    return outputs


def _run_batches(run: Run, data: StageData, name: str, numbered: bool) -> int:
    """All batches of all loaders; returns their number."""
    module, logbook, trainer, seen = run.module, run.logbook, run.trainer, data.seen
    transfer = bind_transfer(run)
    on_start, on_end = bind_hook(trainer, f"on_{name}_batch_start"), bind_hook(trainer, f"on_{name}_batch_end")
    kind = type(run.strategy).__name__
    step = run.precision.wrap_step(getattr(module, f"{name}_step"))
    step = profiled(run.profiler, f"[Strategy]{kind}.{name}_step", step)
    prefix = "test" if name == "test" else "val"
    takes_batch_idx = takes_argument(getattr(module, f"{name}_step"), "batch_idx", min_positional=2)
    scope, signals, sanity = module.__dict__, run.signals, run.state.stage == RunningStage.SANITY_CHECKING
    current = count = 0
    watcher = run.evaluation_watcher
    for batch, batch_idx, dataloader_idx, is_last in profiled_batches(
        run.profiler, f"[_EvaluationLoop].{prefix}_next", data.batches
    ):
        if dataloader_idx != current:
            logbook.close_dataloader()
            current = dataloader_idx
        count += 1
        batch = transfer(batch, dataloader_idx)
        logbook.begin_batch(batch, dataloader_idx if numbered else None)
        position = (batch, batch_idx, dataloader_idx) if numbered else (batch, batch_idx)
        if on_start is not None:
            on_start(*position)
        arguments = position if takes_batch_idx else (batch, *position[2:])
        scope["_current_fx_name"] = f"{name}_step"
        if watcher is not None:
            watcher.begin()
        output = step(*arguments)
        scope["_current_fx_name"] = None
        if watcher is not None:
            watcher.see(f"{name}_step", output, arguments, batch_idx, dataloader_idx)
        if on_end is not None:
            on_end(output, *position)
        logbook.end_batch()
        if not sanity:
            logbook.write_evaluation_step(seen.get(dataloader_idx, 0))
            seen[dataloader_idx] = seen.get(dataloader_idx, 0) + 1
        if signals.stop_requested and not is_last:
            signals.stop("an evaluation")
    data.batches = None
    logbook.close_dataloader()
    return count


def check_dataloader_idx(module: Any, hooks: tuple[str, ...], numbered: bool, stage: str) -> None:
    """Checks that a hook takes ``dataloader_idx`` exactly where there are several loaders.

    Raises:
        RuntimeError: the argument is missing, or it stands without a default where there is one loader only.
    """
    for name in hooks:
        if not is_overridden(name, module):
            continue
        function: Callable[..., Any] = getattr(module, name)
        takes = takes_argument(function, "dataloader_idx")
        if numbered and not takes:
            raise RuntimeError(f"`{stage}` has several loaders, so `{name}` needs the argument `dataloader_idx=0`.")
        if not numbered and _requires(function, "dataloader_idx"):
            raise RuntimeError(
                f"`{stage}` has one loader, but `{name}` insists on `dataloader_idx`. Give it a default:"
                " `dataloader_idx=0`."
            )


def _requires(function: Callable[..., Any], name: str) -> bool:
    parameter = inspect.signature(function).parameters.get(name)
    return parameter is not None and parameter.default is parameter.empty


def no_grad_context(inference_mode: bool) -> AbstractContextManager[Any]:
    """The context of an evaluation: torch's inference mode, or (where its tensors might meet autograd later) without
    gradients.
    """
    return torch.inference_mode() if inference_mode else torch.no_grad()


def check_step(module: Any, name: str, method: str) -> None:
    """Checks that a module can be validated or tested.

    Raises:
        MisconfigurationException: it has no such step.
    """
    if not is_overridden(name, module):
        raise MisconfigurationException(
            f"`Trainer.{method}` needs `{type(module).__name__}.{name}`, which isn't defined."
        )
