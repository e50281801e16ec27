"""Prediction: every batch through ``predict_step``, the answers collected on the CPU."""

from __future__ import annotations

from typing import Any

import torch

from unstuck.messages import rank_zero_warn
from unstuck.profilers.actions import profiled, profiled_batches
from unstuck.trainer.data.indices import RecordedDraws, recording_indices
from unstuck.trainer.data.transfer import move_data_to_device
from unstuck.trainer.hooks import bind_hook, call_hook, call_module_hook, has_own, takes_argument
from unstuck.trainer.loops.batches import begin_pass, bind_transfer, load_evaluation
from unstuck.trainer.loops.evaluate import check_dataloader_idx, no_grad_context
from unstuck.trainer.loops.modes import capture_modes, restore_modes
from unstuck.trainer.run import Run, StageData

__all__ = ["predict"]


def predict(run: Run) -> list[Any] | list[list[Any]] | None:
    """Runs a prediction.

    Args:
        run: the run.

    Returns:
        A list of the answers per batch; with several loaders one such list for each; None if they weren't asked for.

    Raises:
        ValueError: the loaders are combined in another mode than one after the other.
    """
    with no_grad_context(run.settings.inference_mode):
        return _predict(run)


def _predict(run: Run) -> list[Any] | list[list[Any]] | None:
    data, module, trainer = run.predict, run.module, run.trainer
    load_evaluation(run, data, run.settings.limits.predict, "limit_predict_batches")
    if sum(data.max_batches) == 0:
        return None
    combined = data.combined
    if combined.mode != "sequential":
        raise ValueError(
            "`Trainer.predict` goes through its loaders one after the other: `CombinedLoader(mode='sequential')`."
        )
    combined.limits = data.max_batches
    draws = _record_indices(data) if _writers(run) else None
    run.predictions = [[] for _ in combined.flattened]
    run.epoch_batch_indices = [[] for _ in combined.flattened]
    begin_pass(data)
    numbered = len(combined.flattened) > 1
    check_dataloader_idx(module, ("predict_step",), numbered, "predict")
    check_dataloader_idx(module, ("on_predict_batch_start", "on_predict_batch_end"), numbered, "predict")
    modes = capture_modes(module)
    if run.profiler is not None or has_own("on_predict_model_eval", module):
        call_module_hook(module, "on_predict_model_eval")
    else:
        module.eval()
    call_hook(trainer, "on_predict_start")
    call_hook(trainer, "on_predict_epoch_start")
    _run_batches(run, numbered, draws)
    call_hook(trainer, "on_predict_epoch_end")
    call_hook(trainer, "on_predict_end")
    restore_modes(modes)
    if not run.return_predictions:
        return None
    return run.predictions if numbered else run.predictions[0]


def _is_written_at_the_end(run: Run) -> bool:
    return any(callback.interval.on_epoch for callback in _writers(run))


def _writers(run: Run) -> list[Any]:
    return [
        callback
        for callback in run.trainer.callbacks
        if any(cls.__name__ == "BasePredictionWriter" for cls in type(callback).__mro__)
    ]


def _record_indices(data: StageData) -> list[RecordedDraws | None]:
    """From now on the loaders remember which samples they draw."""
    loaders, draws = zip(*map(recording_indices, data.combined.flattened), strict=True)
    data.combined.flattened = list(loaders)
    if None in draws:
        rank_zero_warn(
            "A prediction writer asks for the indices of the samples, but a loader isn't a DataLoader of a dataset with"
            " indices: there they are unknown."
        )
    return list(draws)


def _note_indices(run: Run, draws: RecordedDraws | None, batch_idx: int, dataloader_idx: int) -> None:
    run.batch_indices = None if draws is None else draws.indices_of(batch_idx)
    run.epoch_batch_indices[dataloader_idx].append(run.batch_indices or [])


def _run_batches(run: Run, numbered: bool, draws: list[RecordedDraws | None] | None) -> None:
    module, trainer, data = run.module, run.trainer, run.predict
    transfer = bind_transfer(run)
    on_start, on_end = bind_hook(trainer, "on_predict_batch_start"), bind_hook(trainer, "on_predict_batch_end")
    step = run.precision.wrap_step(module.predict_step)
    step = profiled(run.profiler, f"[Strategy]{type(run.strategy).__name__}.predict_step", step)
    takes_batch_idx = takes_argument(module.predict_step, "batch_idx", min_positional=2)
    scope = module.__dict__
    keeps = run.return_predictions or _is_written_at_the_end(run)
    for batch, batch_idx, dataloader_idx, is_last in profiled_batches(
        run.profiler, "[_PredictionLoop].predict_next", data.batches
    ):
        batch = transfer(batch, dataloader_idx)
        position = (batch, batch_idx, dataloader_idx) if numbered else (batch, batch_idx)
        if draws is not None:
            _note_indices(run, draws[dataloader_idx], batch_idx, dataloader_idx)
        if on_start is not None:
            on_start(*position)
        arguments = position if takes_batch_idx else (batch, *position[2:])
        scope["_current_fx_name"] = "predict_step"
        answer = step(*arguments)
        scope["_current_fx_name"] = None
        if answer is None and "predict" not in run.said:
            run.said.add("predict")
            rank_zero_warn("`predict_step` returned None. Return the prediction, if there is one.")
        if on_end is not None:
            on_end(answer, *position)
        if keeps:
            run.predictions[dataloader_idx].append(move_data_to_device(answer, torch.device("cpu")))
        if run.signals.stop_requested and not is_last:
            run.signals.stop("a prediction")
    data.batches = None
