"""Short fits of a copy of a module, with the settings of a Trainer that stays as it is."""

from __future__ import annotations

from typing import Any

from unstuck.session.session import Session
from unstuck.trainer.data.seed import isolate_rng
from unstuck.trainer.trainer import Trainer
from unstuck.trials.overfit.copies import deep_copied

__all__ = ["copied_module", "run_trial"]


def copied_module(module: Any, trainer: Trainer) -> Any:
    """A deep copy of a module or data module that belongs to no Trainer.

    Raises:
        MisconfigurationException: it can't be copied.
    """
    clone = deep_copied(module, trainer)
    if getattr(module, "_trainer", None) is not None:
        clone.trainer = None
    return clone


def run_trial(trainer: Trainer, module: Any, data: dict[str, Any], method: str, **changes: Any) -> Trainer:
    """Fit, or evaluate with, a module under a Trainer of the same settings.

    Random states stay as they are, and a session that watches this process sees nothing of it.

    Args:
        trainer: whose device, precision, limits, accumulation and clipping are taken over.
        module: used as it is; give a copy.
        data: keyword arguments of the method: loaders or a data module.
        method: ``fit``, ``validate``, ``test`` or ``predict``.
        changes: settings that differ.
    """
    settings: dict[str, Any] = {
        "accelerator": trainer.strategy.root_device.type,
        "precision": trainer.precision,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "gradient_clip_val": trainer.gradient_clip_val,
        "gradient_clip_algorithm": trainer.gradient_clip_algorithm,
        "limit_train_batches": trainer.limit_train_batches,
        "limit_val_batches": 0 if method == "fit" else trainer.limit_val_batches,
        "num_sanity_val_steps": 0,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_epochs": -1,
    }
    with isolate_rng(), Session.set_aside():
        trial = Trainer(**{**settings, **changes})
        getattr(trial, method)(module, **data)
    return trial
