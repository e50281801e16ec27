"""Tells when modules are switched to another mode, when their gradients are, and when a state is loaded into them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from unstuck.signals import Bus
from unstuck.sources.patching import Patches
from unstuck.sources.scope import ScopedBus

__all__ = ["watch_switches"]

_compiling: Callable[[], bool] = torch.compiler.is_compiling


def watch_switches(patches: Patches, bus: Bus | ScopedBus) -> None:
    """Feed ``mode_set``, ``gradients_switched``, ``state_loaded`` and ``parameter_copied``.

    Args:
        patches: gets what undoes it.
        bus: what to tell.
    """
    depth = 0

    def wrap_train(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def train(module: Any, mode: bool = True) -> Any:
            nonlocal depth
            if _compiling():
                return original(module, mode)
            depth += 1  # a module switches its parts by the same method
            try:
                result = original(module, mode)
            finally:
                depth -= 1
            if depth == 0:
                bus.mode_set(module, bool(mode), sys._getframe(1))
            return result

        return train

    def wrap_requires_grad(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def requires_grad_(module: Any, requires_grad: bool = True) -> Any:
            result = original(module, requires_grad)
            if not _compiling():
                bus.gradients_switched(module, bool(requires_grad), sys._getframe(1))
            return result

        return requires_grad_

    def wrap_load(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load_state_dict(module: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(module, state_dict, *args, **kwargs)
            if not _compiling():
                bus.state_loaded(module, frozenset(state_dict), sys._getframe(1))
            return result

        return load_state_dict

    def wrap_copy(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __deepcopy__(parameter: Any, memo: dict[int, Any]) -> Any:  # noqa: N807
            result = original(parameter, memo)
            if not _compiling():
                bus.parameter_copied(parameter, result)
            return result

        return __deepcopy__

    patches.replace(torch.nn.Parameter, "__deepcopy__", wrap_copy)
    patches.replace(torch.nn.Module, "train", wrap_train)
    patches.replace(torch.nn.Module, "requires_grad_", wrap_requires_grad)
    patches.replace(torch.nn.Module, "load_state_dict", wrap_load)
