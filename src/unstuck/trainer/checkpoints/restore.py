"""Taking a checkpoint over into a run: module, data module and callbacks before the optimisers are made, the rest of
the training's state after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from unstuck.errors import CheckpointError, IncompleteCheckpointError, MisconfigurationException
from unstuck.messages import rank_zero_info, rank_zero_warn
from unstuck.trainer.checkpoints.content import OWN_KEY, VERSION_KEY
from unstuck.trainer.checkpoints.files import load_file
from unstuck.trainer.checkpoints.learning import restore_learning
from unstuck.trainer.checkpoints.loop_states import Position, apply_position, read_position
from unstuck.trainer.hooks import call_datamodule_hook, call_hook, call_module_hook
from unstuck.trainer.run import Run
from unstuck.trainer.state import TrainerFn

__all__ = ["Resumption", "restore_states", "restore_training"]


@dataclass
class Resumption:
    """Where a fit goes on, and with what."""

    path: str
    position: Position
    own: dict[str, Any]
    """What only this package's files hold; empty for Lightning's."""
    loader_states: list[Any]
    """States of the training loaders that have one."""


def restore_states(run: Run, path: str, weights_only: bool | None) -> dict[str, Any]:
    """Reads a checkpoint and gives module, data module and callbacks what is theirs.

    Args:
        run: the run, whose module has all its layers.
        path: of the checkpoint.
        weights_only: as for :func:`~unstuck.trainer.checkpoints.files.load_file`.

    Returns:
        The checkpoint.
    """
    rank_zero_info(f"Loading the checkpoint {path}")
    checkpoint: dict[str, Any] = load_file(path, map_location="cpu", weights_only=weights_only)
    module, datamodule, trainer = run.module, run.datamodule, run.trainer
    call_module_hook(module, "on_load_checkpoint", checkpoint)
    load_weights(module, checkpoint["state_dict"], strict=module.strict_loading, path=path)
    if datamodule is not None:
        call_datamodule_hook(trainer, datamodule, "on_load_checkpoint", checkpoint)
        state = checkpoint.get(type(datamodule).__qualname__)
        if state is not None:
            datamodule.load_state_dict(state)
    states = checkpoint.get("callbacks")
    if states is not None:
        call_hook(trainer, "on_load_checkpoint", checkpoint, on_module=False)
        missing = _load_callbacks(trainer.callbacks, states)
        if missing and run.state.fn == TrainerFn.FITTING:
            rank_zero_warn(
                f"The checkpoint holds the states of callbacks that this Trainer doesn't have: {', '.join(missing)}."
                " Give them to `Trainer(callbacks=...)` if they shall go on."
            )
    return checkpoint


def load_weights(module: Any, weights: Any, strict: bool, path: str) -> None:
    """Loads the weights of a checkpoint into a module.

    Raises:
        CheckpointError: they are another module's.
    """
    try:
        module.load_state_dict(weights, strict=strict)
    except RuntimeError as error:
        raise CheckpointError(
            f"The weights of {path!r} don't fit {type(module).__name__}. {error}\nMake the module as it was made when"
            " the checkpoint was written, or load what fits: `strict=False`, or `self.strict_loading = False` in"
            " `__init__` (shapes must be the same even so)."
        ) from error


def _load_callbacks(callbacks: list[Any], states: dict[Any, Any]) -> list[str]:
    """Hands the states to the callbacks whose keys they have, and returns the keys that nobody has."""
    used = set()
    for callback in callbacks:
        # Files of Lightning's first versions have the class itself, or its name, as key.
        for key in (callback.state_key, type(callback), type(callback).__qualname__):
            if key in states:
                used.add(key)
                callback.load_state_dict(states[key])
                break
    return sorted(str(key) for key in states if key not in used)


def restore_training(run: Run, checkpoint: dict[str, Any], path: str) -> Resumption:
    """Gives optimisers, schedulers, scaler and counters their states back.

    Args:
        run: a fit, whose optimisers are made.
        checkpoint: as read.
        path: where from.

    Returns:
        Where the fit goes on.

    Raises:
        IncompleteCheckpointError: the checkpoint doesn't hold a training.
        CheckpointError: it holds another one.
        MisconfigurationException: the fit is at its end already.
    """
    if "optimizer_states" not in checkpoint or "lr_schedulers" not in checkpoint:
        raise IncompleteCheckpointError(
            f"{path!r} holds only the model, so a fit can't go on from it: optimizer state is missing. It was saved"
            " with `save_weights_only=True` or `weights_only=True`, or by something else than a fit. To begin a new fit"
            f" with its weights use `{type(run.module).__name__}.load_from_checkpoint`."
        )
    precision = checkpoint.get(type(run.precision).__qualname__)
    if precision is not None:
        run.precision.load_state_dict(precision)
    own = checkpoint.get(OWN_KEY) or {}
    position = read_position(checkpoint, own.get("place"))
    _load_optimizers(run, checkpoint["optimizer_states"], path)
    for config, state in zip(run.strategy.lr_scheduler_configs, checkpoint["lr_schedulers"], strict=False):
        config.scheduler.load_state_dict(state)
    restore_learning(run.module, own.get("learning", {}))
    bounds = run.settings.bounds
    if bounds.max_epochs != -1 and position.epoch > bounds.max_epochs:
        raise MisconfigurationException(
            f"The checkpoint {path!r} comes from epoch {position.epoch}, but `Trainer(max_epochs={bounds.max_epochs})`"
            " ends before. Raise it to train on."
        )
    apply_position(position, run.progress)
    loops = checkpoint["loops"]["fit_loop"]
    loader_states = loops.get("state_dict", {}).get("combined_loader", [])
    written_by = "" if own else f" (written by Lightning {checkpoint.get(VERSION_KEY)})"
    rank_zero_info(
        f"Resuming{written_by} at epoch {position.epoch}, step {position.global_step}"
        + (f", after {position.batches} batches of the epoch." if position.within_epoch else ".")
    )
    if own.get("within_step"):
        rank_zero_warn(
            f"{path!r} was saved when a step was interrupted that had changed weights already. The batch is done again"
            " as a whole, so the run ends with other weights than one without interruption. For the same ones go on"
            " from a checkpoint that was saved between two steps."
        )
    return Resumption(path, position, own, loader_states)


def _load_optimizers(run: Run, states: list[Any], path: str) -> None:
    optimizers = run.strategy.optimizers
    if len(states) != len(optimizers):
        raise CheckpointError(
            f"{path!r} holds the states of {len(states)} optimizers, but `configure_optimizers` made {len(optimizers)}."
            " Resume with the optimizers that the training had."
        )
    for optimizer, state in zip(optimizers, states, strict=True):
        try:
            optimizer.load_state_dict(state)
        except ValueError as error:
            raise CheckpointError(
                f"The state of {type(optimizer).__name__} in {path!r} doesn't fit: {error}. The parameters of its"
                " groups must be those of the training that wrote it."
            ) from error


def restore_gradients(run: Run, gradients: dict[str, torch.Tensor]) -> None:
    """Puts back gradients that a step which is still to come may use."""
    for name, parameter in run.module.named_parameters():
        gradient = gradients.get(name)
        if gradient is None:
            continue
        if gradient.layout == torch.strided:
            parameter.grad = torch.empty_like(parameter, dtype=gradient.dtype, requires_grad=False).copy_(gradient)
        else:
            parameter.grad = gradient.to(parameter.device, copy=True)
