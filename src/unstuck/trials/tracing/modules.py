"""Names of modules, parameters and buffers, and which module is running."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

_COMPILED = r"Using `torch\.compile\(module\)` when there are global hooks"

__all__ = ["ModuleStack", "module_names", "tidy"]


def tidy(path: str) -> str:
    """A dotted path without the names under which wrappers hold the module that they wrap."""
    return ".".join(part for part in path.split(".") if part not in ("_orig_mod", "module"))


def roots(models: Mapping[str, torch.nn.Module]) -> dict[str, torch.nn.Module]:
    """The models that aren't part of another one; the first name of each."""
    found: dict[str, torch.nn.Module] = {}
    for name, model in models.items():
        inside = any(
            model is part and (other is not model or name_other < name)
            for name_other, other in models.items()
            if name_other != name
            for part in other.modules()
        )
        if not inside:
            found[name] = model
    return found


def prefixed(name: str, path: str, several: bool) -> str:
    """``path`` below the model ``name``; begins with that name where there are several models."""
    path = tidy(path)
    if not several:
        return path
    return f"{name}.{path}" if path else name


def module_names(models: Mapping[str, torch.nn.Module]) -> dict[int, str]:
    """Path of every module by its identity."""
    top = roots(models)
    names: dict[int, str] = {}
    for name, model in top.items():
        for path, module in model.named_modules():
            names.setdefault(id(module), prefixed(name, path, len(top) > 1))
    return names


class ModuleStack:
    """Which modules' forwards are running, kept by global hooks between ``open`` and ``close``.

    Args:
        models: by the variable that holds each.
        entered: told of every forward that begins, with its positional arguments.
        left: told of every forward that ended, with arguments and result, None after an exception.
    """

    def __init__(
        self,
        models: Mapping[str, torch.nn.Module],
        entered: Callable[[torch.nn.Module, Any], None] | None = None,
        left: Callable[[torch.nn.Module, Any, Any], None] | None = None,
    ) -> None:
        self._names = module_names(models)
        self._entered = entered
        self._left = left
        self._running: list[torch.nn.Module] = []
        self._filter: Any = None
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def innermost(self) -> str | None:
        """Path of the innermost running module that has a name, None outside of all."""
        for module in reversed(self._running):
            name = self._names.get(id(module))
            if name is not None:
                return name
        return None

    @property
    def running(self) -> str | None:
        """Class name of the innermost running module, whether it has a name or not; None outside of all."""
        return type(self._running[-1]).__name__ if self._running else None

    def rename(self, models: Mapping[str, torch.nn.Module]) -> None:
        """Know these models from now on."""
        self._names = module_names(models)

    def open(self, inside: torch.nn.Module | None = None) -> None:
        """Install the hooks; ``inside`` is running already."""
        self._running.clear()
        if inside is not None:
            self._running.append(inside)
        # Said of any compiled module that runs meanwhile, and of no concern: the hooks only count.
        warnings.filterwarnings("ignore", message=_COMPILED)
        self._filter = warnings.filters[0]
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._running.clear()
        if self._filter in warnings.filters:
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        self._running.append(module)
        if self._entered is not None:
            self._entered(module, args)

    def _leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        if self._left is not None:
            self._left(module, args, result)
        # An exception may have skipped inner modules.
        while self._running:
            if self._running.pop() is module:
                break
