"""One optimisation step: the closure of automatic optimisation, the hooks around backward and step, clipping.

The order is that of the public API: ``training_step``, zero the gradients, backward, ``on_before_optimizer_step``,
clip, step. In automatic optimisation all but the last happens inside of ``optimizer.step(closure)``, so that optimisers
like LBFGS can ask again.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_warn
from unstuck.places import display_path
from unstuck.profilers.actions import profiled
from unstuck.trainer.hooks import bind_hook, has_own, hook_action
from unstuck.trainer.watching import StepWatcher

if TYPE_CHECKING:
    from unstuck.trainer.run import Run

__all__ = [
    "SKIP_STEP",
    "AutomaticStep",
    "ForwardStep",
    "ManualStep",
    "bind_backward",
    "bind_before_step",
]


class _SkipStep:
    """The type of :data:`SKIP_STEP`."""

    def __repr__(self) -> str:
        return "SKIP_STEP"


SKIP_STEP = _SkipStep()
"""``training_step`` returns this to skip a batch on purpose, where a forgotten ``return`` would give None."""


def bind_before_step(run: Run) -> Callable[[Optimizer], None] | None:
    """What happens between the gradients and the optimiser's step, None if that is nothing.

    Hooks first, so that they see the gradients before clipping; clipping in automatic optimisation only.
    """
    module, settings = run.module, run.settings
    hook = bind_hook(run.trainer, "on_before_optimizer_step")
    clip_val, algorithm = settings.gradient_clip_val, settings.gradient_clip_algorithm
    own_clipping = has_own("configure_gradient_clipping", module) or has_own("clip_gradients", module)
    scope = module.__dict__
    watcher = run.watcher
    is_listed = run.profiler is not None
    if not module.automatic_optimization or not (own_clipping or clip_val or is_listed):
        return hook if watcher is None else _watched(hook, watcher)

    def clip(optimizer: Optimizer) -> None:
        if not own_clipping:
            run.precision.clip_gradients(optimizer, clip_val, algorithm)
            return
        before = scope["_current_fx_name"]
        scope["_current_fx_name"] = "configure_gradient_clipping"
        module.configure_gradient_clipping(optimizer, gradient_clip_val=clip_val, gradient_clip_algorithm=algorithm)
        scope["_current_fx_name"] = before

    clip = profiled(run.profiler, hook_action(module, "configure_gradient_clipping"), clip)

    def before_step(optimizer: Optimizer) -> None:
        if hook is not None:
            hook(optimizer)
        clip(optimizer)

    return before_step if watcher is None else _watched(before_step, watcher)


def _watched(before_step: Callable[[Optimizer], None] | None, watcher: StepWatcher) -> Callable[[Optimizer], None]:
    """The watcher looks last, at what the step will take."""
    look = watcher.before_step
    if before_step is None:
        return look
    before = before_step

    def watched(optimizer: Optimizer) -> None:
        before(optimizer)
        look(optimizer)

    return watched


def bind_backward(run: Run) -> Callable[..., None]:
    """The backward pass of a loss: scaled as the precision needs it, between the hooks around it.

    The callable takes the loss and whatever ``backward`` takes besides.
    """
    module, precision = run.module, run.precision
    before = bind_hook(run.trainer, "on_before_backward")
    after = bind_hook(run.trainer, "on_after_backward")
    own = module.backward if has_own("backward", module) else None
    scope = module.__dict__
    scales = precision.scaler is not None
    watcher = run.watcher
    explains = watcher is not None and run.settings.detect_anomaly is True
    if before is None and after is None and own is None and not scales and not explains:
        return torch.Tensor.backward

    def backward(loss: Tensor, *args: Any, **kwargs: Any) -> None:
        if scales:
            loss = precision.scale(loss)
        if before is not None:
            before(loss)
        if own is None:
            try:
                loss.backward(*args, **kwargs)
            except RuntimeError:
                if explains:
                    assert watcher is not None
                    watcher.backward_failed()
                raise
        else:
            name = scope["_current_fx_name"]
            scope["_current_fx_name"] = "backward"
            own(loss, *args, **kwargs)
            scope["_current_fx_name"] = name
        if after is not None:
            if watcher is not None:
                watcher.after_backward()
            after()

    return backward


class AutomaticStep:
    """Automatic optimisation of one batch after the other; the object itself is the closure that the optimiser calls.

    Built once per epoch, so that what a batch doesn't need isn't looked at.

    Args:
        run: the run.
        takes_batch_idx: whether ``training_step`` wants the index of the batch.
        wants_outputs: whether somebody reads what :meth:`run` returns.
    """

    __slots__ = (
        "_accumulate",
        "_args",
        "_backward",
        "_batch_idx",
        "_before_step",
        "_before_zero_grad",
        "_module",
        "_optimizer",
        "_own_optimizer_step",
        "_own_zero_grad",
        "_precision",
        "_progress",
        "_result",
        "_said",
        "_scope",
        "_training_step",
        "_wants_outputs",
        "_watcher",
        "_wrapped",
        "_zeroes",
        "nones",
        "prepares_step",
        "steps",
        "takes_batch_idx",
    )

    def __init__(self, run: Run, takes_batch_idx: bool, wants_outputs: bool) -> None:
        module = run.module
        self._module = module
        self._scope = module.__dict__
        self._progress = run.progress
        self._precision = run.precision
        kind = f"[Strategy]{type(run.strategy).__name__}"
        self._training_step = profiled(
            run.profiler, f"{kind}.training_step", run.precision.wrap_step(module.training_step)
        )
        self._optimizer: Any = run.strategy.optimizers[0]
        self._wrapped = run.strategy._lightning_optimizers[0]
        self._accumulate = run.settings.accumulate_grad_batches
        self._backward = profiled(run.profiler, f"{kind}.backward", bind_backward(run))
        self._before_step = bind_before_step(run)
        self._wrapped.attach(run, self._before_step or _nothing, counts_steps=False)
        self._before_zero_grad = bind_hook(run.trainer, "on_before_zero_grad")
        self._own_zero_grad = module.optimizer_zero_grad if has_own("optimizer_zero_grad", module) else None
        self._own_optimizer_step = module.optimizer_step if has_own("optimizer_step", module) else None
        if run.profiler is not None:
            # The module's own versions do the same as the shorter ways past them.
            step, zero_grad = hook_action(module, "optimizer_step"), hook_action(module, "optimizer_zero_grad")
            self._own_optimizer_step = profiled(run.profiler, step, module.optimizer_step)
            self._own_zero_grad = profiled(run.profiler, zero_grad, module.optimizer_zero_grad)
        self._said = run.said
        self._watcher = run.watcher
        self.takes_batch_idx = takes_batch_idx
        self._wants_outputs = wants_outputs
        self._args: tuple[Any, ...] = ()
        self._batch_idx = 0
        self._zeroes = True
        self._result: Any = None
        self.prepares_step = False
        self.steps = 0
        """Batches run."""
        self.nones = 0
        """Batches for which ``training_step`` returned None."""

    def run(self, batch: Any, batch_idx: int, accumulating: bool) -> dict[str, Any]:
        """Runs one batch.

        Args:
            batch: the batch, on its device.
            batch_idx: its index in the epoch.
            accumulating: whether the optimiser waits for more gradients.

        Returns:
            What ``training_step`` returned, as a dict with the detached "loss"; empty for a skipped step and when
            nobody reads it.
        """
        self._args = (batch, batch_idx) if self.takes_batch_idx else (batch,)
        self._batch_idx = batch_idx
        self._zeroes = batch_idx % self._accumulate == 0
        self._result = None
        self.prepares_step = False
        self.steps += 1
        watcher = self._watcher
        if watcher is not None:
            watcher.begin(self._args, batch_idx)
        if accumulating:
            self()
        elif self._own_optimizer_step is not None:
            scope = self._scope
            scope["_current_fx_name"] = "optimizer_step"
            self._own_optimizer_step(self._progress.current_epoch, batch_idx, self._wrapped, self)
            scope["_current_fx_name"] = None
            self._progress.global_step += 1
        else:
            if self._precision.scaler is None:
                self.prepares_step = True
                self._optimizer.step(self)
            else:
                self._precision.optimizer_step(self._optimizer, self, self._before_step or _nothing)
            self._progress.global_step += 1
        if watcher is not None:
            watcher.end(self._optimizer, not accumulating, self._precision.skipped_step)
        # The batch must not live until the next one is there.
        self._args = ()
        outputs = self._outputs() if self._wants_outputs else {}
        self._result = None
        return outputs

    def __call__(self) -> Tensor | None:
        """Computes loss and gradients of the current batch and returns the detached loss, None for a skipped step."""
        if not torch.is_grad_enabled():
            with torch.enable_grad():
                return self()
        scope = self._scope
        around = scope["_current_fx_name"]
        scope["_current_fx_name"] = "training_step"
        output = self._result = self._training_step(*self._args)
        scope["_current_fx_name"] = around
        loss = output if isinstance(output, Tensor) else self._find_loss(output)
        if self._zeroes:
            self._zero_grad()
        if loss is not None:
            watcher = self._watcher
            if watcher is not None:
                watcher.see_loss(loss)
            if self._accumulate != 1:
                loss = loss / self._accumulate
            self._backward(loss)
            if watcher is not None and (watcher.suspects or self._accumulate != 1):
                watcher.after_backward()
            loss = loss.detach()
        if self.prepares_step and self._before_step is not None:
            self._before_step(self._optimizer)
        return loss

    def _find_loss(self, output: Any) -> Tensor | None:
        """The loss in an answer that is no tensor."""
        if output is None:
            self.nones += 1
            message = "`training_step` returned None: this batch is skipped. Return `SKIP_STEP` if that is wanted."
            if message not in self._said:
                self._said.add(message)
                rank_zero_warn(message)
            return None
        if output is SKIP_STEP:
            return None
        if isinstance(output, Mapping):
            loss = output.get("loss")
            if loss is None:
                raise MisconfigurationException(
                    f"`training_step` returned a dict without the key 'loss' (it has {sorted(map(str, output))});"
                    " automatic optimization needs it."
                )
            if not isinstance(loss, Tensor):
                raise MisconfigurationException(
                    f"`training_step` returned a 'loss' that is no tensor: {type(loss).__name__}."
                )
            return loss
        raise MisconfigurationException(
            "In automatic optimization `training_step` should return a tensor, a dict with the key 'loss', or None to"
            " skip the batch;"
            f" it returned {type(output).__name__}."
        )

    def _zero_grad(self) -> None:
        if self._before_zero_grad is not None:
            self._before_zero_grad(self._optimizer)
        if self._own_zero_grad is None:
            self._optimizer.zero_grad()
            return
        scope = self._scope
        around = scope["_current_fx_name"]
        scope["_current_fx_name"] = "optimizer_zero_grad"
        self._own_zero_grad(self._progress.current_epoch, self._batch_idx, self._optimizer)
        scope["_current_fx_name"] = around

    def _outputs(self) -> dict[str, Any]:
        result = self._result
        if result is None or result is SKIP_STEP:
            return {}
        loss, extra = (result, {}) if isinstance(result, Tensor) else (result["loss"], result)
        # The division is made anew, since backward has long let go of the other one.
        detached = loss.detach() / self._accumulate if self._accumulate != 1 else loss.detach().clone()
        return {**extra, "loss": detached}

    def refuse_only_nones(self, is_complete: bool) -> None:
        """Ends the fit if every batch of the epoch was skipped for a None.

        A single one stays a skip, also where an epoch has no other batch or is cut short by the end of the run, as long
        as earlier epochs had losses.

        Args:
            is_complete: whether the epoch has come to its last batch.

        Raises:
            MisconfigurationException: names the method and where it stands.
        """
        progress = self._progress
        only_nones = self.steps > 0 and self.nones == self.steps
        if only_nones and (not progress.has_learnt or (is_complete and self.steps > 1)):
            raise MisconfigurationException(
                f"`{type(self._module).__name__}.training_step` ({_place(self._module.training_step)}) returned None"
                f" on all {self.steps} batches of the epoch, so nothing was learnt. Return the loss. (Logging it isn't"
                " enough.)"
            )
        progress.has_learnt = progress.has_learnt or self.steps > self.nones


class ManualStep:
    """Manual optimisation: ``training_step`` does everything itself.

    Args:
        run: the run.
        takes_batch_idx: whether ``training_step`` wants the index of the batch.
    """

    nones = 0

    def __init__(self, run: Run, takes_batch_idx: bool) -> None:
        self._scope = run.module.__dict__
        kind = f"[Strategy]{type(run.strategy).__name__}"
        self._training_step = profiled(
            run.profiler, f"{kind}.training_step", run.precision.wrap_step(run.module.training_step)
        )
        self._takes_batch_idx = takes_batch_idx
        before_step = bind_before_step(run) or _nothing
        run.strategy.run_backward = profiled(run.profiler, f"{kind}.backward", bind_backward(run))
        for optimizer in run.strategy._lightning_optimizers:
            optimizer.attach(run, before_step, counts_steps=True)

    def run(self, batch: Any, batch_idx: int, accumulating: bool) -> dict[str, Any]:
        """Runs one batch and returns what ``training_step`` returned, as a dict."""
        scope = self._scope
        scope["_current_fx_name"] = "training_step"
        output = self._training_step(batch, batch_idx) if self._takes_batch_idx else self._training_step(batch)
        scope["_current_fx_name"] = None
        if output is None or output is SKIP_STEP:
            return {}
        if isinstance(output, Tensor):
            return {"loss": output.detach()}
        if not isinstance(output, Mapping):
            raise MisconfigurationException(
                "In manual optimization `training_step` should return a tensor, a dict or nothing; it returned"
                f" {type(output).__name__}."
            )
        outputs = dict(output)
        if isinstance(outputs.get("loss"), Tensor):
            outputs["loss"] = outputs["loss"].detach()
        return outputs

    def refuse_only_nones(self, is_complete: bool) -> None:
        """Manual optimisation needs no answer from ``training_step``."""


class ForwardStep:
    """``training_step`` without learning, for an epoch in which layers gather statistics.

    Args:
        run: the run.
        takes_batch_idx: whether ``training_step`` wants the index of the batch.
    """

    def __init__(self, run: Run, takes_batch_idx: bool) -> None:
        self._scope = run.module.__dict__
        self._training_step = run.precision.wrap_step(run.module.training_step)
        self._takes_batch_idx = takes_batch_idx

    def run(self, batch: Any, batch_idx: int, accumulating: bool) -> dict[str, Any]:
        """Runs one batch and returns what ``training_step`` returned, as a dict."""
        self._scope["_current_fx_name"] = "training_step"
        output = self._training_step(batch, batch_idx) if self._takes_batch_idx else self._training_step(batch)
        self._scope["_current_fx_name"] = None
        if isinstance(output, Tensor):
            return {"loss": output.detach()}
        return dict(output) if isinstance(output, Mapping) else {}

    def refuse_only_nones(self, is_complete: bool) -> None:
        """Without learning no loss is missing."""


def _place(function: Callable[..., Any]) -> str:
    """file:line of a function that the user wrote."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "unknown place" if code is None else f"{display_path(code.co_filename, os.getcwd())}:{code.co_firstlineno}"


def _nothing(optimizer: Optimizer) -> None:
    """No hooks, no clipping."""
