"""A model and its optimiser copied together, so that a trial can train them and the originals stay as they are."""

from __future__ import annotations

import copy
import inspect
from typing import Any, TypeVar

import torch

from unstuck.errors import MisconfigurationException

__all__ = ["copied_model", "copied_optimizer", "deep_copied"]

Item = TypeVar("Item")


def copied_model(model: torch.nn.Module) -> tuple[torch.nn.Module, dict[int, torch.Tensor]]:
    """A deep copy, and the copies of its parameters by the identity of the originals.

    Raises:
        MisconfigurationException: the model can't be copied.
    """
    memo: dict[int, Any] = {}
    clone = deep_copied(model, memo=memo)
    for parameter in clone.parameters():
        parameter.grad = None
    return clone, {id(item): memo[id(item)] for item in model.parameters() if id(item) in memo}


def deep_copied(item: Item, *kept: object, memo: dict[int, Any] | None = None) -> Item:
    """A deep copy of a model, or of what gives it data.

    Args:
        item: what is copied. The Trainer that it is attached to isn't.
        kept: objects that the copy refers to instead of copying them.
        memo: as for :func:`copy.deepcopy`.

    Raises:
        MisconfigurationException: it can't be copied.
    """
    memo = {} if memo is None else memo
    for other in (*kept, getattr(item, "_trainer", None)):
        if other is not None:
            memo[id(other)] = other
    try:
        return copy.deepcopy(item, memo)
    except Exception as error:
        raise MisconfigurationException(
            f"a copy of {type(item).__name__} is tried out, but it can't be copied ({error}); define __deepcopy__, or "
            "keep no tensors with a graph and no open files in its attributes"
        ) from error


def copied_optimizer(
    optimizer: torch.optim.Optimizer, copies: dict[int, torch.Tensor], factor: float = 1.0
) -> torch.optim.Optimizer:
    """A fresh optimiser of the same class, groups and settings over the copies; what it holds beside them is copied.

    Args:
        optimizer: the original; its state (moments) isn't taken over.
        copies: of parameters by the identity of the originals.
        factor: on the learning rate of every group.

    Raises:
        MisconfigurationException: its class can't be constructed from groups and the settings it was given.
    """
    beside: dict[int, torch.Tensor] = {}

    def counterpart(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in copies:
            return copies[id(tensor)]
        if id(tensor) not in beside:
            beside[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return beside[id(tensor)]

    groups = []
    for group in optimizer.param_groups:
        settings = {key: value for key, value in group.items() if key not in ("params", "initial_lr", "param_names")}
        # A schedule may have changed the rate by now; the trial begins where the run begins.
        rate = group.get("initial_lr", group.get("lr"))
        if rate is not None:
            settings["lr"] = float(rate) * factor
        groups.append({**settings, "params": [counterpart(item) for item in group["params"]]})
    accepted = inspect.signature(type(optimizer).__init__).parameters
    free = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in accepted.values())
    defaults = {key: value for key, value in optimizer.defaults.items() if free or key in accepted}
    if "lr" in defaults:
        defaults["lr"] = float(defaults["lr"]) * factor
    try:
        return type(optimizer)(groups, **defaults)
    except Exception as error:
        raise MisconfigurationException(
            f"a copy of the optimizer {type(optimizer).__name__} is needed, but it can't be made from its settings "
            f"({error}); give a function that makes one: optimizer=lambda parameters: ..."
        ) from error
