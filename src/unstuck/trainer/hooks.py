"""Which hooks a user has written, and how they are called.

Rare hooks (a few calls per epoch) are looked up when they are due: :func:`call_hook`. Hooks of every batch are bound at
the start of an epoch: :func:`bind_hook` answers None for a hook that nobody wrote, so that the loop has nothing to
call.

While a hook of the module or a callback runs, the module knows its name (``_current_fx_name``), since what ``self.log``
means depends on it. The name lives in the module's ``__dict__`` directly: ``nn.Module.__setattr__`` costs a
microsecond.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from torch import nn

from unstuck.profilers.actions import profiled

if TYPE_CHECKING:
    from unstuck.trainer.trainer import Trainer

__all__ = [
    "bind_hook",
    "call_datamodule_hook",
    "call_hook",
    "call_module_hook",
    "has_own",
    "hook_action",
    "is_overridden",
    "takes_argument",
]

# The classes that only declare hooks. Their own versions do nothing that the loops don't do themselves.
_BASE_CLASSES = frozenset(
    {"LightningModule", "Callback", "LightningDataModule", "ModelHooks", "DataHooks", "CheckpointHooks"}
)
_BASE_PACKAGES = ("unstuck.", "lightning.pytorch.", "pytorch_lightning.", "lightning.fabric.")


def has_own(name: str, owner: object) -> bool:
    """Whether calling a hook of ``owner`` (module, callback or data module) runs more than the base class's version.

    The base classes are those of this package and of the real Lightning. An attribute set on the instance counts.
    """
    if name in getattr(owner, "__dict__", ()):
        return callable(owner.__dict__[name])
    for cls in type(owner).__mro__:
        if name in cls.__dict__:
            return not (cls.__name__ in _BASE_CLASSES and cls.__module__.startswith(_BASE_PACKAGES))
    return False


def is_overridden(name: str, owner: object) -> bool:
    """Whether ``owner`` has an implementation of a hook that is not the base class's.

    Unlike :func:`has_own`, a mere decoration of the base class's version (by :func:`functools.wraps`) doesn't count, so
    this answers whether there is, say, a ``validation_step``.
    """
    if not has_own(name, owner):
        return False
    function = inspect.unwrap(getattr(owner, name)) if callable(getattr(owner, name)) else None
    base = getattr(function, "__qualname__", "").split(".")[0]
    return not (base in _BASE_CLASSES and getattr(function, "__module__", "").startswith(_BASE_PACKAGES))


def takes_argument(function: Callable[..., Any], name: str, min_positional: int | None = None) -> bool:
    """Whether a hook's signature takes an argument ``name``, ``*args``, or (if given) at least ``min_positional``
    positional ones.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return True
    if name in parameters or any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        return True
    return min_positional is not None and len(parameters) >= min_positional


def call_hook(
    trainer: Trainer,
    name: str,
    *args: Any,
    callbacks: Iterable[Any] | None = None,
    on_module: bool = True,
    **kwargs: Any,
) -> Any:
    """Calls a hook on every callback and then on the module, and returns the module's answer.

    Args:
        trainer: handed to the callbacks.
        name: the hook.
        args: arguments after ``trainer`` and ``pl_module``.
        callbacks: the callbacks instead of all of the Trainer's.
        on_module: whether the module's hook is called as well.
        kwargs: arguments by keyword.
    """
    module, profiler = trainer.lightning_module, trainer.active_profiler
    scope = module.__dict__
    before = scope.get("_current_fx_name")
    scope["_current_fx_name"] = name
    try:
        for callback in trainer.callbacks if callbacks is None else callbacks:
            if _is_called(name, callback, profiler):
                _bound(profiler, callback, name, is_callback=True)(trainer, module, *args, **kwargs)
        if on_module and _is_called(name, module, profiler):
            return _bound(profiler, module, name)(*args, **kwargs)
    finally:
        scope["_current_fx_name"] = before
    return None


def call_module_hook(module: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Calls a hook on the module alone, whether or not it is the base class's version."""
    scope = module.__dict__
    trainer = scope.get("_trainer")
    profiler = None if trainer is None else trainer.active_profiler
    before = scope.get("_current_fx_name")
    scope["_current_fx_name"] = name
    try:
        return _bound(profiler, module, name)(*args, **kwargs)
    finally:
        scope["_current_fx_name"] = before


def call_datamodule_hook(trainer: Trainer, datamodule: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Calls a hook on a data module, if there is one and it has the hook."""
    if getattr(datamodule, name, None) is None:
        return None
    return _bound(trainer.active_profiler, datamodule, name)(*args, **kwargs)


def hook_action(owner: Any, name: str) -> str:
    """What a profiler calls a hook of a module or data module."""
    kind = "LightningModule" if isinstance(owner, nn.Module) else "LightningDataModule"
    return f"[{kind}]{type(owner).__name__}.{name}"


def bind_hook(
    trainer: Trainer, name: str, callbacks: Iterable[Any] | None = None, on_module: bool = True
) -> Callable[..., Any] | None:
    """One callable for a hook on callbacks and module, None if nobody wrote it.

    The callable takes the arguments after ``trainer`` and ``pl_module`` and returns the module's answer.

    Args:
        trainer: handed to the callbacks.
        name: the hook.
        callbacks: the callbacks instead of all of the Trainer's.
        on_module: whether the module's hook is called as well.
    """
    module = trainer.lightning_module
    profiler = trainer.active_profiler
    owners = trainer.callbacks if callbacks is None else callbacks
    hooks = [_bound(profiler, owner, name, is_callback=True) for owner in owners if _is_called(name, owner, profiler)]
    is_own = on_module and _is_called(name, module, profiler)
    own = _bound(profiler, module, name) if is_own else None
    if not hooks and own is None:
        return None
    scope = module.__dict__

    def hook(*args: Any) -> Any:
        before = scope["_current_fx_name"]
        scope["_current_fx_name"] = name
        try:
            for callback_hook in hooks:
                callback_hook(trainer, module, *args)
            return None if own is None else own(*args)
        finally:
            scope["_current_fx_name"] = before

    return hook


def _is_called(name: str, owner: Any, profiler: Any) -> bool:
    """Whether a hook is called: where somebody wrote it, and everywhere under a profiler, whose report lists all."""
    return has_own(name, owner) or (profiler is not None and callable(getattr(owner, name, None)))


def _bound(profiler: Any, owner: Any, name: str, is_callback: bool = False) -> Callable[..., Any]:
    """A hook of a callback, module or data module; its calls are profiled where a profiler is on."""
    hook: Callable[..., Any] = getattr(owner, name)
    if profiler is None:
        return hook
    if not is_callback:
        return profiled(profiler, hook_action(owner, name), hook)
    return profiled(profiler, f"[Callback]{getattr(owner, 'state_key', type(owner).__qualname__)}.{name}", hook)
