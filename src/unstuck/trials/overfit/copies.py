"""A model and its optimiser copied together, so that a trial can train them and the originals stay as they are."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from unstuck.errors import MisconfigurationException

__all__ = ["copied_model", "copied_optimizer", "deep_copied"]

Item = TypeVar("Item")


def copied_model(model: torch.nn.Module) -> tuple[torch.nn.Module, dict[int, torch.Tensor]]:
    """A deep copy, and the copies of its parameters by the identity of the originals. What it logs goes nowhere.

    Raises:
        MisconfigurationException: the model can't be copied.
    """
    clone = deep_copied(model)
    originals = dict(model.named_parameters(remove_duplicate=False))
    # a scripted module's copy leaves no trace in the memo of deepcopy: names tell which is which
    twins = dict(clone.named_parameters(remove_duplicate=False))
    for name, twin in twins.items():
        if not twin.is_leaf and name in originals:  # in a scripted module's copy they are results of an operation
            twin.detach_().requires_grad_(originals[name].requires_grad)
        twin.grad = None
    for module in clone.modules():
        if hasattr(module, "training_step") and hasattr(module, "log_dict"):
            vars(module).update(log=_ignore, log_dict=_ignore)  # a copy has no Trainer that would take it
    return clone, {id(item): twins[name] for name, item in originals.items() if name in twins}


def _ignore(*arguments: Any, **keywords: Any) -> None:
    return None


def deep_copied(item: Item, *kept: object) -> Item:
    """A deep copy of a model, or of what gives it data.

    A result of an operation that is kept in an attribute (an activation, a weight that is normalised) becomes a plain
    tensor with the same numbers.

    Args:
        item: what is copied. The Trainer that it is attached to isn't.
        kept: objects that the copy refers to instead of copying them.

    Raises:
        MisconfigurationException: it can't be copied; names the attribute.
    """
    memo: dict[int, Any] = {id(other): other for other in (*kept, getattr(item, "_trainer", None)) if other is not None}
    before = dict(memo)
    try:
        with _GraphsLeftOut():
            return copy.deepcopy(item, memo)
    except Exception as error:
        name, holder = _uncopyable(item, before) if isinstance(item, torch.nn.Module) else ("", None)
        what = f": its attribute `{name}` ({type(holder).__name__}) can't be ({error})" if name else f" ({error})"
        raise MisconfigurationException(
            f"a copy of the {type(item).__name__} is tried out, so that yours stays as it is, but it can't be "
            f"copied{what}; make locks, open files and connections where they are used instead of keeping them, or "
            "give the class a __deepcopy__"
        ) from error


class _GraphsLeftOut(TorchFunctionMode):
    """While it is active, tensors with a graph, which torch refuses to copy, are copied without it."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            memo[id(tensor)] = twin = tensor.detach().clone()
            return twin
        return func(*args, **(kwargs or {}))


def _uncopyable(model: torch.nn.Module, memo: Mapping[int, Any]) -> tuple[str, Any]:
    """The first attribute of a model or one of its modules that can't be copied: its path and itself."""
    modules = {id(module): module for module in model.modules()}
    for path, module in model.named_modules():
        for name, value in _attributes(module):
            if not _can_be_copied(value, {**memo, **modules}):
                inner = next((item for item in _items(value) if not _can_be_copied(item, {**memo, **modules})), value)
                return f"{path}.{name}".lstrip("."), inner
    return "", None


def _attributes(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        if name not in ("_modules", "_parameters"):
            yield name, value


def _items(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple, set)) else []


def _can_be_copied(value: Any, memo: dict[int, Any]) -> bool:
    try:
        with _GraphsLeftOut():
            copy.deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - whatever its class raises
        return False
    return True


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
