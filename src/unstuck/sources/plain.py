"""Signals from any PyTorch program: torch's own global hooks where they exist, patches with undo elsewhere.

Every function here runs inside the user's program: it returns at once while torch compiles (a hook that is traced would
change the compiled code) and in forked children, which are not watched.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks
from torch.utils.data import dataloader

from unstuck.signals import Bus
from unstuck.sources.constructions import watch_constructions
from unstuck.sources.patching import Patches
from unstuck.sources.scope import ScopedBus
from unstuck.sources.switches import watch_switches

__all__ = ["PlainSource"]

_OFTEN, _SELDOM = 256, 4
"""First steps after each of which it is asked whether module calls are wanted; later after one of so many."""

_compiling: Callable[[], bool] = torch.compiler.is_compiling


class PlainSource:
    """Installs hooks and patches that feed a bus; ``close`` removes every one of them.

    Between two passes one global module hook waits for the first module call and then takes itself away, so that the
    many calls below it run on torch's fast path.

    Args:
        bus: what to tell.
        compiled: models have been compiled before, so that no module hook may be set.
        wants_calls: whether the first module call of a pass is of interest.
        wants_evaluations: whether module calls without gradients are.
        wants_closures: whether gradients are there that a step with a closure may take as they are.

    Attributes:
        loading: loaders at work on a batch, in this process.
        original_backward: torch's own ``torch.autograd.backward``.
        substitute: gives the program another batch than the loader's (a replay from a saved incident); None as a rule.
    """

    def __init__(
        self,
        bus: Bus | ScopedBus,
        compiled: bool = False,
        wants_calls: Callable[[], bool] = lambda: True,
        wants_evaluations: Callable[[], bool] = lambda: False,
        wants_closures: Callable[[], bool] = lambda: False,
    ) -> None:
        self._bus = bus
        self._wants_calls = wants_calls
        self._wants_evaluations = wants_evaluations
        self._wants_closures = wants_closures
        self._begin_compiled = compiled
        self._patches = Patches()
        self._hooks = module_hooks._global_forward_pre_hooks
        self._hook_id: int | None = None
        self._armed = False
        self._steps = 0
        self._wanted = self._evaluations = True  # as it was said last
        self._compiles = False
        self._pid = os.getpid()
        self._in_backward = 0
        self._in_clip = False
        self.loading = 0
        self.substitute: Callable[[Any, Any], Any] | None = None
        self._backends_before = _backends()
        self.original_backward: Callable[..., None] = torch.autograd.backward

    @property
    def compiles(self) -> bool:
        """Whether the program has used ``torch.compile``, if only through a name imported before the patch."""
        return self._compiles or self._begin_compiled or bool(_backends() - self._backends_before)

    def open(self) -> None:
        """Start watching."""
        patch = self._patches.replace
        handle = module_hooks.register_module_forward_pre_hook(self._forward_hook)
        self._hook_id, self._armed = handle.id, True
        self._patches.add(self._disarm)
        self._patches.add(optimizer_hooks.register_optimizer_step_pre_hook(self._step_begins).remove)
        self._patches.add(optimizer_hooks.register_optimizer_step_post_hook(self._step_ended).remove)
        watch_constructions(self._patches, self._bus)
        watch_switches(self._patches, self._bus)
        patch(torch.optim.Optimizer, "__init__", self._wrap_optimizer_init)
        patch(torch.optim.Optimizer, "zero_grad", self._wrap_zero_grad)
        patch(torch.nn.Module, "zero_grad", self._wrap_zero_grad)
        patch(torch.autograd, "backward", self._wrap_backward)
        patch(torch.autograd, "grad", self._wrap_grad)
        for owner in (torch.nn.utils.clip_grad, torch.nn.utils):
            patch(owner, "clip_grad_norm_", self._wrap_clip_norm)
            patch(owner, "clip_grad_value_", self._wrap_clip_value)
        if hasattr(torch.nn.utils.clip_grad, "_clip_grads_with_norm_"):
            # what a reference to the function from before the patch still calls
            patch(torch.nn.utils.clip_grad, "_clip_grads_with_norm_", self._wrap_inner_clip)
        if hasattr(torch.nn.utils, "clip_grads_with_norm_"):
            # the same function under its public name
            patch(torch.nn.utils, "clip_grads_with_norm_", self._wrap_inner_clip)
        scaler = torch.amp.GradScaler
        patch(scaler, "scale", self._wrap_scale)
        patch(scaler, "unscale_", self._wrap_unscale)
        patch(scaler, "step", self._wrap_scaler_step)
        patch(scaler, "update", self._wrap_scaler_update)
        patch(torch.optim.lr_scheduler.LRScheduler, "__init__", self._wrap_schedule_init)
        patch(torch.optim.lr_scheduler.ReduceLROnPlateau, "__init__", self._wrap_schedule_init)
        patch(torch.optim.lr_scheduler.LRScheduler, "step", self._wrap_schedule_step)
        patch(torch.optim.lr_scheduler.ReduceLROnPlateau, "step", self._wrap_schedule_step)
        patch(dataloader.DataLoader, "__init__", self._wrap_loader_init)
        patch(dataloader.DataLoader, "__iter__", self._wrap_loader_iter)
        patch(dataloader._BaseDataLoaderIter, "_next_index", self._wrap_loader_index)
        patch(dataloader._BaseDataLoaderIter, "__next__", self._wrap_loader_next)
        patch(torch, "compile", self._wrap_compile)
        if self._begin_compiled:
            self._without_module_hook()
        # what is registered there is never let go
        forked = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: (method := forked()) is not None and method())

    def close(self) -> None:
        """Leave torch as it was found."""
        self._patches.undo()

    def _forked(self) -> None:
        self._bus.muted = True
        self.close()

    # -- module calls ------------------------------------------------------------------------------------------------

    def _forward_hook(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if _compiling():
            return
        if not torch.is_grad_enabled():
            if self._wants_evaluations():
                self._bus.module_evaluated(module, args, sys._getframe(1))
            return
        self._disarm()
        if not self._wanted:
            return
        frame = sys._getframe(1)
        # torch gives a global pre-hook no keyword arguments; its caller holds them.
        self._bus.forward_begins(module, args, frame.f_locals.get("kwargs", {}), frame)

    def _disarm(self) -> None:
        if self._armed and self._hook_id is not None:
            self._armed = False
            self._hooks.pop(self._hook_id, None)

    def _arm(self) -> None:
        if self._armed or self._hook_id is None or self._compiles or self._bus.muted:
            return
        if self._wanted or self._evaluations:
            self._armed = True
            self._hooks[self._hook_id] = self._forward_hook

    def _wrap_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """From the first use of ``torch.compile`` on no module hook is set.

        Compiled code is guarded on the absence of global hooks, so one that comes and goes would compile it again; and
        torch warns about them. A compiled module's own call tells what the hook would have told.
        """

        @functools.wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - it stands for torch.compile
            self._disarm()
            self._bus.compile_begins()
            compiled = original(*args, **kwargs)
            self._without_module_hook()
            return compiled

        return compile

    def _without_module_hook(self) -> None:
        self._disarm()
        if not self._compiles:
            from torch._dynamo.eval_frame import OptimizedModule

            self._compiles = True
            self._patches.replace(OptimizedModule, "__call__", self._wrap_compiled_call)

    def _wrap_compiled_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if not _compiling() and torch.is_grad_enabled():
                self._bus.forward_begins(module, args, kwargs, sys._getframe(1))
            return original(module, *args, **kwargs)

        return __call__

    # -- optimisers --------------------------------------------------------------------------------------------------

    def _step_begins(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if _compiling():
            return None
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        asked = closure is not None and self._wants_closures()
        self._bus.step_begins(optimizer, closure, sys._getframe(1))
        if closure is None or not asked:
            return None
        # a trainer's closure that prepares gradients which are there already: what it leaves is what the step takes
        told = self._wrap_closure(optimizer, closure)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": told}
        return (args[0], told, *args[2:]), kwargs

    def _wrap_closure(self, optimizer: torch.optim.Optimizer, closure: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(closure)
        def told(*args: Any, **kwargs: Any) -> Any:
            result = closure(*args, **kwargs)
            self._bus.closure_ended(optimizer, sys._getframe(1))
            return result

        return told

    def _step_ended(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not _compiling():
            self._bus.step_ended(optimizer, sys._getframe(1))
            self._steps += 1
            if self._steps < _OFTEN or not self._steps % _SELDOM:
                self._wanted, self._evaluations = self._wants_calls(), self._wants_evaluations()
            self._arm()

    def _wrap_optimizer_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(optimizer, *args, **kwargs)
            if not _compiling():
                self._bus.optimizer_created(optimizer, sys._getframe(1))

        return __init__

    def _wrap_zero_grad(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> None:
            original(owner, *args, **kwargs)
            if not _compiling():
                self._bus.gradients_zeroed(owner)

        return zero_grad

    # -- backward ----------------------------------------------------------------------------------------------------

    def _wrap_backward(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            standing = torch.autograd.backward
            if standing is not backward and self._bus.busy:
                # a replay stands in for it, also where the program had imported the name before
                return standing(tensors, *args, **kwargs)
            if _compiling() or self._in_backward or self._bus.muted:
                return original(tensors, *args, **kwargs)
            told = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
            self._bus.backward_begins(told, sys._getframe(1))
            self._in_backward += 1  # reentrant calls (checkpointing) belong to this one
            try:
                original(tensors, *args, **kwargs)
            finally:
                self._in_backward -= 1
            self._bus.backward_ended(told)
            self._arm()
            return None

        return backward

    def _wrap_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if _compiling() or self._in_backward or self._bus.muted:
                return original(outputs, *args, **kwargs)
            result = original(outputs, *args, **kwargs)
            self._bus.gradients_taken((outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs))
            return result

        return grad

    # -- clipping and scaling ----------------------------------------------------------------------------------------

    def _wrap_clip_norm(self, original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        @functools.wraps(original)
        def clip_grad_norm_(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> torch.Tensor:
            if _compiling():
                return original(parameters, max_norm, *args, **kwargs)
            kept = parameters if isinstance(parameters, torch.Tensor) else list(parameters)
            self._bus.clip_begins(kept, "norm", max_norm, sys._getframe(1))
            self._in_clip = True
            try:
                norm = original(kept, max_norm, *args, **kwargs)
            finally:
                self._in_clip = False
            self._bus.gradients_clipped(kept, "norm", max_norm, norm)
            return norm

        return clip_grad_norm_

    def _wrap_inner_clip(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def _clip_grads_with_norm_(
            parameters: Any, max_norm: float, total_norm: torch.Tensor, *args: Any, **kwargs: Any
        ) -> None:
            if self._in_clip or _compiling():
                return original(parameters, max_norm, total_norm, *args, **kwargs)
            kept = parameters if isinstance(parameters, torch.Tensor) else list(parameters)
            self._bus.clip_begins(kept, "norm", max_norm, sys._getframe(1))
            original(kept, max_norm, total_norm, *args, **kwargs)
            self._bus.gradients_clipped(kept, "norm", max_norm, total_norm)
            return None

        return _clip_grads_with_norm_

    def _wrap_clip_value(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def clip_grad_value_(parameters: Any, clip_value: float, *args: Any, **kwargs: Any) -> None:
            if _compiling():
                return original(parameters, clip_value, *args, **kwargs)
            kept = parameters if isinstance(parameters, torch.Tensor) else list(parameters)
            self._bus.clip_begins(kept, "value", clip_value, sys._getframe(1))
            original(kept, clip_value, *args, **kwargs)
            self._bus.gradients_clipped(kept, "value", clip_value, None)
            return None

        return clip_grad_value_

    def _wrap_scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            result = original(scaler, outputs)
            if not _compiling():
                self._bus.loss_scaled(scaler, sys._getframe(1))
            return result

        return scale

    def _wrap_unscale(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def unscale_(scaler: Any, optimizer: Any) -> None:
            original(scaler, optimizer)
            self._bus.gradients_unscaled(scaler, _wrapped(optimizer))

        return unscale_

    def _wrap_scaler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            wrapped = _wrapped(optimizer)
            self._bus.scaler_step_begins(scaler, wrapped, sys._getframe(1))
            result = original(scaler, optimizer, *args, **kwargs)
            self._bus.scaler_stepped(scaler, wrapped)
            return result

        return step

    def _wrap_scaler_update(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def update(scaler: Any, *args: Any, **kwargs: Any) -> None:
            original(scaler, *args, **kwargs)
            self._bus.scaler_updated(scaler)

        return update

    def _wrap_schedule_step(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            original(scheduler, *args, **kwargs)
            self._bus.schedule_stepped(scheduler)

        return step

    def _wrap_schedule_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(scheduler: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(scheduler, *args, **kwargs)
            self._bus.schedule_created(scheduler, sys._getframe(1))

        return __init__

    # -- data --------------------------------------------------------------------------------------------------------

    def _wrap_loader_iter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __iter__(loader: Any) -> Any:  # noqa: N807
            iterator = original(loader)
            self._bus.epoch_begins(iterator, loader)
            return iterator

        return __iter__

    def _wrap_loader_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(loader, *args, **kwargs)
            self._bus.loader_created(loader, sys._getframe(1))

        return __init__

    def _wrap_loader_index(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def _next_index(iterator: Any) -> Any:
            indices = original(iterator)
            self._bus.indices_drawn(iterator, indices)
            return indices

        return _next_index

    def _wrap_loader_next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: N807
            self.loading += 1
            try:
                batch = original(iterator)
            finally:
                self.loading -= 1
            if self.substitute is not None:
                batch = self.substitute(batch, sys._getframe(1))
            self._bus.batch_drawn(iterator, batch, sys._getframe(1))
            self._arm()
            return batch

        return __next__


def _wrapped(optimizer: Any) -> Any:
    """The optimiser inside of a trainer's wrapper, which was never initialised as an optimiser and has no hooks."""
    inner = None if "_optimizer_step_pre_hooks" in vars(optimizer) else getattr(optimizer, "optimizer", None)
    return inner if isinstance(inner, torch.optim.Optimizer) else optimizer


def _backends() -> set[int]:
    """Backends that something has been compiled with so far, by identity."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    known: dict[int, Any] = getattr(frames, "cached_backends", {})
    return {key for key, backend in known.items() if callable(backend)}
