"""Tells when modules are made and parameters filled, by patches with undo."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from unstuck.signals import Bus
from unstuck.sources.patching import Patches
from unstuck.sources.scope import ScopedBus

__all__ = ["watch_constructions"]

_FILLERS = (
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
)
"""Functions of ``torch.nn.init``; layers of torch call them as well."""

_compiling: Callable[[], bool] = torch.compiler.is_compiling


def watch_constructions(patches: Patches, bus: Bus | ScopedBus) -> None:
    """Feed ``module_created``, ``parameter_registered`` and ``tensor_filled``.

    Args:
        patches: gets what undoes it.
        bus: what to tell.
    """

    def wrap_init(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            if not _compiling():
                bus.module_created(self, sys._getframe(1))

        return __init__

    def wrap_filler(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def fill(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if isinstance(result, torch.Tensor) and not _compiling():
                bus.tensor_filled(result, sys._getframe(1))
            return result

        return fill

    def registered(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        if parameter is not None and not _compiling():
            bus.parameter_registered(parameter, sys._getframe(1))

    patches.replace(torch.nn.Module, "__init__", wrap_init)
    for name in _FILLERS:
        patches.replace(torch.nn.init, name, wrap_filler)
    patches.add(register_module_parameter_registration_hook(registered).remove)
