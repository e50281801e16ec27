"""What a checkpoint holds: Lightning's keys, and under one key of this package's what an exact continuation needs."""

from __future__ import annotations

from typing import Any

import torch

from unstuck.errors import NameClashError
from unstuck.messages import rank_zero_warn
from unstuck.trainer.checkpoints.files import HYPERPARAMETERS
from unstuck.trainer.checkpoints.learning import change_of, learning_of
from unstuck.trainer.checkpoints.loop_states import Position, position_of, write_loop_states
from unstuck.trainer.checkpoints.metric_states import metric_states, states_on_cpu
from unstuck.trainer.checkpoints.random_state import RandomStates, pack
from unstuck.trainer.checkpoints.trail import gradients_of, modules_in_eval_mode, versions_of
from unstuck.trainer.hooks import call_datamodule_hook, call_hook, call_module_hook
from unstuck.trainer.run import Run
from unstuck.trainer.state import Place, RunningStage

__all__ = ["FORMAT_VERSION", "OWN_KEY", "VERSION_KEY", "build_checkpoint"]

VERSION_KEY = "pytorch-lightning_version"
# Lightning looks at the version to bring old files up to date; this is the format that is written here.
FORMAT_VERSION = "2.6.0"
OWN_KEY = "unstuck"


def build_checkpoint(run: Run, weights_only: bool) -> dict[str, Any]:
    """Collects a checkpoint of a run and calls the hooks that may add to it.

    Args:
        run: the run, whose state is saved as it is now.
        weights_only: whether only what evaluation and fine-tuning need is saved: weights and hyperparameters.
    """
    module, datamodule, trainer, progress = run.module, run.datamodule, run.trainer, run.progress
    window = _window_to_go_back_to(run)
    position = position_of(progress, None if window is None else window.batches)
    checkpoint: dict[str, Any] = {
        "epoch": position.epoch,
        "global_step": position.global_step,
        VERSION_KEY: FORMAT_VERSION,
        "state_dict": _weights(run, window),
        "loops": write_loop_states(
            position,
            progress,
            automatic=bool(module.automatic_optimization),
            loader_states=[] if run.train.combined is None else run.train.combined.loader_states(),
        ),
    }
    if not weights_only:
        checkpoint["callbacks"] = callback_states(trainer.callbacks)
        checkpoint["optimizer_states"] = [optimizer.state_dict() for optimizer in run.strategy.optimizers]
        checkpoint["lr_schedulers"] = [config.scheduler.state_dict() for config in run.strategy.lr_scheduler_configs]
        precision = run.precision.state_dict()
        if precision:
            checkpoint[type(run.precision).__qualname__] = precision
        own = _own_state(run, position, window)
        if own:
            checkpoint[OWN_KEY] = own
    for owner in (module, datamodule):
        _add_hyperparameters(owner, checkpoint)
    if datamodule is not None:
        state = call_datamodule_hook(trainer, datamodule, "state_dict")
        if state:
            checkpoint[type(datamodule).__qualname__] = state
    if not weights_only:
        call_hook(trainer, "on_save_checkpoint", checkpoint, on_module=False)
    call_module_hook(module, "on_save_checkpoint", checkpoint)
    call_datamodule_hook(trainer, datamodule, "on_save_checkpoint", checkpoint)
    return checkpoint


def callback_states(callbacks: list[Any]) -> dict[str, Any]:
    """The states of callbacks under their keys.

    Raises:
        NameClashError: two of them have a state under the same key.
    """
    states: dict[str, Any] = {}
    for callback in callbacks:
        state = callback.state_dict()
        if not state:
            continue
        if callback.state_key in states:
            raise NameClashError(
                f"Two callbacks save their state under the key {callback.state_key!r}, so one would overwrite the"
                f" other. Override `{type(callback).__name__}.state_key` with what tells them apart."
            )
        states[callback.state_key] = state
    return states


def _add_hyperparameters(owner: Any, checkpoint: dict[str, Any]) -> None:
    """Puts in what the owner was made with, so that it can be made again from the file."""
    if owner is None or not owner.hparams:
        return
    key = getattr(owner, "CHECKPOINT_HYPER_PARAMS_KEY", HYPERPARAMETERS)
    if hasattr(owner, "_hparams_name"):
        checkpoint[getattr(owner, "CHECKPOINT_HYPER_PARAMS_NAME", "hparams_name")] = owner._hparams_name
    hparams = owner.hparams
    if isinstance(hparams, dict):
        checkpoint[key] = dict(hparams)
    else:
        # A mapping of the user's own kind, such as OmegaConf's, comes back as what it was.
        checkpoint[key] = hparams
        checkpoint[getattr(owner, "CHECKPOINT_HYPER_PARAMS_TYPE", "hparams_type")] = type(hparams)


# The own part.


def _window_to_go_back_to(run: Run) -> Any:
    """The start of the optimiser step that is under way, if the checkpoint is to tell of the last completed one.

    It begins with the loading of its batch, which may draw random numbers before it fails.
    """
    window, progress = run.trail.window, run.progress
    if progress.place == Place.BATCH:
        return window
    loads = progress.place == Place.COMPLETE and window is not None and window.batches == progress.batches_ready
    return window if loads else None


def _weights(run: Run, window: Any) -> dict[str, Any]:
    weights: dict[str, Any] = run.module.state_dict()
    if window is not None:
        weights.update((name, buffer) for name, buffer in window.buffers.items() if name in weights)
    return weights


def _own_state(run: Run, position: Position, window: Any) -> dict[str, Any]:
    trail, progress = run.trail, run.progress
    place = position.place
    if run.resumption is not None:
        # The fit hasn't gone on yet, so it still stands where the checkpoint was written that it began from.
        return dict(run.resumption.own)
    state: dict[str, Any] = {
        "version": 1,
        "place": place.value,
        "random": pack(_random_states(run, position, window)),
        "pass": None,
        "metrics": {name: _on_cpu(value) for name, value in run.logbook.callback_metrics.items()},
        "training_batches": progress.num_training_batches,
        "accumulate_grad_batches": run.settings.accumulate_grad_batches,
        "loaded_in_epoch": trail.loaded_before if _begins_epoch_anew(run, position) else trail.loaded_now(),
    }
    if trail.learning is not None:
        state["learning"] = change_of(learning_of(run.module), trail.learning)
    begun_before = place == Place.BETWEEN or (place == Place.EPOCH_START and trail.begun_early)
    if trail.begun is not None and (position.within_epoch or begun_before):
        within = trail if window is None else window
        drawn, ahead = (trail.drawn, within.ahead) if position.within_epoch else (None, None)
        state["pass"] = {
            "begun": pack(trail.begun),
            "drawn": None if drawn is None else pack(drawn),
            "ahead": None if ahead is None else pack(ahead),
            "restarts": {loader: [restart.batch, pack(restart.random)] for loader, restart in within.restarts.items()},
        }
    state["running_workers"] = _running_workers(run, goes_on=state["pass"] is not None and not position.is_last_batch)
    if window is not None and versions_of(run.module) != window.versions:
        state["within_step"] = True
        rank_zero_warn(
            "The step that was interrupted had changed weights already (several optimizers, or one that evaluates the"
            " loss several times), and so the checkpoint holds weights between two steps. A fit that goes on from it"
            " does the whole batch again."
        )
    if position.within_epoch:
        sums = run.logbook.training_sums() if window is None else window.sums
        state["sums"] = [[_on_cpu(value) for value in entry] for entry in sums]
        state["metric_objects"] = states_on_cpu(metric_states(run.module) if window is None else window.metrics)
        state["eval_modules"] = _modules_in_eval_mode(run)
    if window is not None or _may_count_on(run, position):
        gradients = gradients_of(run.module) if window is None else window.gradients
        state["gradients"] = {name: _compact(gradient) for name, gradient in gradients.items()}
    return state


def _may_count_on(run: Run, position: Position) -> bool:
    """Whether a step that is still to come may use gradients that are there."""
    if not run.module.automatic_optimization:
        # When they are used and cleared is up to the module, also from one epoch to the next.
        return True
    if not position.within_epoch:
        return False
    if run.progress.place == Place.BATCH:
        return position.batches % run.settings.accumulate_grad_batches != 0
    return run.progress.accumulating


def _compact(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient on the CPU; one of zeros takes no room, but isn't none: an optimiser steps with it."""
    if gradient.layout == torch.strided and not gradient.any():
        return torch.zeros((), dtype=gradient.dtype).expand(gradient.shape)
    return gradient.cpu()


def _begins_epoch_anew(run: Run, position: Position) -> bool:
    """Whether the fit has to go on with the hooks at the start of the epoch, which have run."""
    return position.place == Place.EPOCH_START and run.trail.boundary is not None


def _random_states(run: Run, position: Position, window: Any) -> RandomStates:
    """The random states with which the fit has to go on."""
    trail, progress = run.trail, run.progress
    if window is not None and window.batches:
        states: RandomStates = window.random
        return states
    if _begins_epoch_anew(run, position) and trail.boundary is not None:
        return trail.boundary
    if run.state.stage == RunningStage.SANITY_CHECKING and trail.validation:
        return trail.validation
    if progress.place == Place.VALIDATING and trail.validation:
        return trail.validation
    if progress.place == Place.VALIDATED and trail.validation and run.settings.isolate_validation:
        return trail.validation
    return trail.now()


def _running_workers(run: Run, goes_on: bool) -> dict[str, list[bool]]:
    """Of which loaders persistent workers ran at the moments from which their order is continued.

    Args:
        run: the run.
        goes_on: whether the pass over the training data that was begun has batches left.
    """
    trail, progress = run.trail, run.progress
    validating = run.state.stage == RunningStage.SANITY_CHECKING or progress.place == Place.VALIDATING
    present = trail.running_in_validation if validating else trail.running_now()
    return {**present, "train": trail.running["train"]} if goes_on else present


def _modules_in_eval_mode(run: Run) -> list[str]:
    if run.progress.place in (Place.VALIDATING, Place.VALIDATED) and run.trail.eval_modules is not None:
        return run.trail.eval_modules
    return modules_in_eval_mode(run.module)


def _on_cpu(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value
