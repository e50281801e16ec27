"""Puts back what a target gave to an examination: it may hand out objects that its own program goes on with."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from unstuck.trainer.data.loaders import generators_of, shut_down_workers
from unstuck.workflow.doctor.target import Patient

__all__ = ["Belongings", "put_back"]

_CONTAINERS = (dict, OrderedDict, list, set)


class Belongings:
    """The objects that a target has returned, as they were when it returned them."""

    def __init__(self, patient: Patient) -> None:
        model = patient.module if patient.plain is None else patient.plain[0]
        # a lazy module becomes one of another class at its first call, which can't be undone
        lazy = {id(item) for item in model.modules() if any(map(is_lazy, item.parameters(recurse=False)))}
        self._modules = [(item, _attributes(item)) for item in model.modules() if id(item) not in lazy]
        tensors = [*model.parameters(), *model.buffers()]
        optimizers = [] if patient.plain is None else [patient.plain[3]]
        for optimizer in optimizers:
            tensors += [item for group in optimizer.param_groups for item in group["params"]]
        self._tensors = [_Kept(item) for item in {id(item): item for item in tensors if not is_lazy(item)}.values()]
        self._optimizers = [(item, _optimizer_state(item)) for item in optimizers]
        self._loaders = [item for item in tree_leaves((patient.train, patient.val)) if hasattr(item, "__iter__")]
        around = [patient.datamodule, *self._loaders]
        around += [getattr(item, name, None) for item in self._loaders for name in ("sampler", "batch_sampler")]
        self._others = [(item, _attributes(item)) for item in around if hasattr(item, "__dict__")]
        self._generators = [(item, item.get_state()) for item in generators_of(self._loaders)]

    def put_back(self) -> None:
        """Make the objects what they were; tensors keep their identity and their memory."""
        for loader in self._loaders:
            shut_down_workers(loader)
        for item, attributes in (*self._modules, *self._others):
            _set_attributes(item, attributes)
        for kept in self._tensors:
            kept.put_back()
        for optimizer, (state, groups) in self._optimizers:
            optimizer.state.clear()
            optimizer.state.update({key: _cloned(value) for key, value in state.items()})
            for group, settings in zip(optimizer.param_groups, groups, strict=False):
                group.clear()
                group.update(settings)
        for generator, random_state in self._generators:
            generator.set_state(random_state)


class _Kept:
    """A parameter or buffer: values, gradient, and whether it wants one."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._data = tensor.data
        self._values = tensor.detach().clone()
        self._grad = tensor.grad
        self._grad_values = None if tensor.grad is None else tensor.grad.detach().clone()
        self._requires_grad = tensor.requires_grad

    def put_back(self) -> None:
        with torch.no_grad():
            self._data.copy_(self._values)
            if self._tensor.data_ptr() != self._data.data_ptr():
                self._tensor.data = self._data
            if self._grad is not None and self._grad_values is not None:
                self._grad.copy_(self._grad_values)
        self._tensor.grad = self._grad
        if self._tensor.is_leaf:
            self._tensor.requires_grad_(self._requires_grad)


def _attributes(item: Any) -> dict[str, Any]:
    """An object's attributes, and what its containers hold."""
    return {name: _shallow(value) for name, value in vars(item).items()}


def _shallow(value: Any) -> Any:
    """A container with a copy of what it holds, anything else alone."""
    return (value, value.copy()) if type(value) in _CONTAINERS else (value, None)


def _set_attributes(item: Any, kept: dict[str, Any]) -> None:
    attributes = vars(item)
    for name in [name for name in attributes if name not in kept]:
        del attributes[name]
    for name, (value, held) in kept.items():
        attributes[name] = value
        if held is None:
            continue
        if isinstance(value, list):
            value[:] = held
        else:
            value.clear()
            value.update(held)


def _optimizer_state(optimizer: torch.optim.Optimizer) -> tuple[dict[Any, Any], list[dict[str, Any]]]:
    state = {key: _cloned(value) for key, value in optimizer.state.items()}
    return state, [{**group, "params": list(group["params"])} for group in optimizer.param_groups]


def _cloned(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return {key: _cloned(item) for key, item in value.items()} if isinstance(value, dict) else value


def put_back(belongings: list[Belongings]) -> None:
    """Put everything in the list back, the latest first, and let go of it."""
    while belongings:
        belongings.pop().put_back()
