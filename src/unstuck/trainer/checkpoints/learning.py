"""Which parts of a module learn: what callbacks and hooks have frozen and unfrozen on the way of a fit."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Learning", "change_of", "learning_of", "restore_learning"]

Learning = dict[str, dict[str, bool]]
"""Under "parameters" whether each requires gradients, under "norms" whether each keeps statistics, by name."""


def learning_of(module: torch.nn.Module) -> Learning:
    """What of a module learns now; what a toggled optimiser sets aside for a moment counts as it was before."""
    toggled: dict[Any, bool] = getattr(module, "_toggled", {})
    return {
        "parameters": {
            name: toggled.get(parameter, parameter.requires_grad) for name, parameter in module.named_parameters()
        },
        "norms": {
            name: child.track_running_stats
            for name, child in module.named_modules()
            if isinstance(getattr(child, "track_running_stats", None), bool)
        },
    }


def change_of(learning: Learning, before: Learning) -> Learning:
    """What differs from an earlier moment, as it is now. What wasn't there then is left out: it is as its maker made
    it.
    """
    return {
        kind: {name: learns for name, learns in now.items() if before[kind].get(name, learns) != learns}
        for kind, now in learning.items()
    }


def restore_learning(module: torch.nn.Module, change: Learning) -> None:
    """Freezes and unfreezes again what has changed by a checkpoint's time."""
    parameters, modules = dict(module.named_parameters()), dict(module.named_modules())
    for name, learns in change.get("parameters", {}).items():
        if name in parameters:
            parameters[name].requires_grad = learns
    for name, learns in change.get("norms", {}).items():
        if name in modules:
            modules[name].track_running_stats = learns
