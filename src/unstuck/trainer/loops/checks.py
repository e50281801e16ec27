"""What can be seen to be wrong before the first batch: missing methods, parameters that no optimiser holds, a module
in eval mode.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from unstuck.errors import MisconfigurationException
from unstuck.messages import PossibleUserWarning, rank_zero_warn
from unstuck.trainer.hooks import is_overridden
from unstuck.trainer.optimizers import NoOptimizer
from unstuck.trainer.run import Run

__all__ = [
    "check_callbacks_of_lightning",
    "check_evaluation",
    "check_fit",
    "warn_of_clipping_while_scaled",
    "warn_of_early_clipping",
    "warn_of_eval_mode",
    "warn_of_uncovered_parameters",
]

# Callbacks of the real Lightning that can't work here, or not with a module of this package's.
NEEDS_LIGHTNINGS_TRAINER = {"BatchSizeFinder", "LearningRateFinder", "ThroughputMonitor"}
NEEDS_LIGHTNINGS_MODULE = {"GradientAccumulationScheduler", "WeightAveraging"}
# How many names a warning lists.
SHOWN = 8


def check_fit(run: Run) -> None:
    """Checks that a module can be trained as the Trainer is set up.

    Raises:
        MisconfigurationException: a method is missing, or clipping or accumulation are asked for in manual
            optimisation.
        NotImplementedError: a hook of Lightning 1.x.
    """
    module, settings = run.module, run.settings
    name = type(module).__name__
    for method in ("training_step", "configure_optimizers"):
        if not is_overridden(method, module):
            raise MisconfigurationException(f"`Trainer.fit` needs `{name}.{method}`, which isn't defined.")
    if not run.train.source.is_defined:
        raise MisconfigurationException(
            "`Trainer.fit` needs training data: pass `train_dataloaders`, a `datamodule`, or define"
            f" `{name}.train_dataloader`."
        )
    has_loader, has_step = run.val.source.is_defined, is_overridden("validation_step", module)
    if has_loader and not has_step:
        rank_zero_warn(f"There is a `val_dataloader` but no `{name}.validation_step`: nothing is validated.")
    if has_step and not has_loader:
        rank_zero_warn(
            f"There is `{name}.validation_step` but no `val_dataloader`: nothing is validated.", PossibleUserWarning
        )
    _refuse_legacy(
        module, ("training_epoch_end", "on_train_epoch_end"), ("validation_epoch_end", "on_validation_epoch_end")
    )
    _refuse_iterator_steps(module)
    if module.automatic_optimization:
        warn_of_early_clipping(module)
        if run.precision.scaler is not None:
            warn_of_clipping_while_scaled(module)
        return
    if settings.gradient_clip_val:
        raise MisconfigurationException(
            f"`Trainer(gradient_clip_val={settings.gradient_clip_val})` can't act in manual optimization, where"
            " `training_step` steps the"
            " optimizers itself. Call `self.clip_gradients(optimizer, gradient_clip_val=...)` before"
            " `optimizer.step()` there, or use"
            " automatic optimization."
        )
    if settings.accumulate_grad_batches != 1:
        raise MisconfigurationException(
            f"`Trainer(accumulate_grad_batches={settings.accumulate_grad_batches})` can't act in manual optimization."
            " Step the optimizer"
            " in every n-th `training_step` there (and divide the loss by n yourself), or use automatic optimization."
        )


def check_callbacks_of_lightning(callbacks: Iterable[Any], module: Any) -> None:
    """Refuses those of the real Lightning's callbacks that need more of its Trainer, or of its module, than there is.

    Raises:
        MisconfigurationException: names the callback.
    """
    is_foreign = any(_is_lightnings(cls) for cls in type(module).__mro__)
    for callback in callbacks:
        names = {cls.__name__ for cls in type(callback).__mro__ if _is_lightnings(cls)}
        if names & NEEDS_LIGHTNINGS_TRAINER:
            raise MisconfigurationException(
                f"The callback {type(callback).__name__} reaches into the inside of Lightning's own Trainer, so it"
                " isn't available here."
            )
        if names & NEEDS_LIGHTNINGS_MODULE and not is_foreign:
            raise MisconfigurationException(
                f"The callback {type(callback).__name__} takes modules of the real Lightning only. Derive"
                f" {type(module).__name__} from `lightning.pytorch.LightningModule` to use it here."
            )


def _is_lightnings(cls: type) -> bool:
    return cls.__module__.startswith(("lightning.", "pytorch_lightning."))


def check_evaluation(run: Run, step: str, method: str) -> None:
    """Checks that a module can be validated, tested or used to predict.

    Args:
        run: the run.
        step: "validation_step", "test_step" or "predict_step".
        method: the Trainer's method, for messages.

    Raises:
        MisconfigurationException: a method or the data is missing.
    """
    module = run.module
    name = type(module).__name__
    if step == "predict_step":
        if not is_overridden(step, module) and not is_overridden("forward", module):
            raise MisconfigurationException(f"`Trainer.predict` needs `{name}.predict_step` or `{name}.forward`.")
    elif not is_overridden(step, module):
        raise MisconfigurationException(f"`Trainer.{method}` needs `{name}.{step}`, which isn't defined.")
    data = {"validate": run.val, "test": run.test, "predict": run.predict}[method]
    if not data.source.is_defined:
        raise MisconfigurationException(
            f"`Trainer.{method}` needs data: pass `dataloaders`, a `datamodule`, or define `{name}.{data.source.hook}`."
        )
    _refuse_iterator_steps(module)
    _refuse_legacy(module, (f"{step.split('_')[0]}_epoch_end", f"on_{step.split('_')[0]}_epoch_end"))


def _refuse_legacy(module: Any, *hooks: tuple[str, str]) -> None:
    for old, new in hooks:
        if callable(getattr(module, old, None)):
            raise NotImplementedError(
                f"`{type(module).__name__}.{old}` is a hook of Lightning 1.x and isn't called. Use `{new}` and keep"
                " the outputs yourself."
            )


def _refuse_iterator_steps(module: Any) -> None:
    for step in ("training_step", "validation_step", "test_step", "predict_step"):
        if "dataloader_iter" in inspect.signature(getattr(module, step)).parameters:
            raise MisconfigurationException(
                f"`{type(module).__name__}.{step}` takes `dataloader_iter`; steps that draw their batches themselves"
                " aren't available. Take `batch`."
            )


def warn_of_early_clipping(module: Any) -> None:
    """Warns when ``training_step`` itself clips gradients: in automatic optimisation they are computed only after
    it.
    """
    code = getattr(inspect.unwrap(module.training_step), "__code__", None)
    called = {"clip_grad_norm_", "clip_grad_value_", "clip_gradients"} & set(getattr(code, "co_names", ()))
    if called:
        rank_zero_warn(
            f"`{type(module).__name__}.training_step` calls `{min(called)}`, but in automatic optimization backward"
            " comes after it: there"
            " are no gradients yet, so nothing is clipped. Use `Trainer(gradient_clip_val=...)` or"
            " `configure_gradient_clipping`.",
            PossibleUserWarning,
        )


def warn_of_clipping_while_scaled(module: Any) -> None:
    """Warns when ``on_after_backward`` clips by torch's own functions: a loss scaler's gradients are unscaled later."""
    code = getattr(inspect.unwrap(module.on_after_backward), "__code__", None)
    names = set(getattr(code, "co_names", ()))
    called = {"clip_grad_norm_", "clip_grad_value_"} & names
    if called and not names & {"unscale_", "unscale"}:
        rank_zero_warn(
            f"numerics.amp-order: `{type(module).__name__}.on_after_backward` calls `{min(called)}` while the loss"
            " scaler has still multiplied the gradients, so steps are far too small. Use"
            " `Trainer(gradient_clip_val=...)`, or clip in `on_before_optimizer_step`.",
            PossibleUserWarning,
        )


def warn_of_eval_mode(run: Run) -> None:
    """Warns of modules in eval mode at the start of a fit that take part in the training.

    A frozen part in eval mode is left alone: that is how a frozen backbone should be.
    """
    held = {id(p) for optimizer in run.strategy.optimizers for group in optimizer.param_groups for p in group["params"]}
    suspects = []
    for name, module in run.module.named_modules():
        if module.training:
            continue
        trained = any(p.requires_grad and id(p) in held for p in module.parameters())
        if trained or (_acts_by_mode(module) and _parent_is_trained(run.module, name, held)):
            suspects.append(name or type(module).__name__)
    if suspects:
        rank_zero_warn(
            f"{len(suspects)} module(s) are in eval mode at the start of the fit although their parameters are"
            f" trained: {_shown(suspects)}."
            " Dropout and batch norm there act as in evaluation. Call `.train()` on them in `on_train_start` (or"
            " before) if that isn't"
            " wanted.",
            PossibleUserWarning,
        )


def _acts_by_mode(module: nn.Module) -> bool:
    return isinstance(module, (_DropoutNd, _BatchNorm))


def _parent_is_trained(root: nn.Module, name: str, held: set[int]) -> bool:
    """Whether the module around a layer has parameters that are trained, so that the layer takes part in training."""
    parent = root.get_submodule(name.rpartition(".")[0])
    return any(p.requires_grad and id(p) in held for p in parent.parameters())


def warn_of_uncovered_parameters(module: nn.Module, optimizers: Iterable[Optimizer]) -> None:
    """Warns of trainable parameters that no optimiser holds, averages of others apart, and of tensors in an optimiser
    that the module no longer has.
    """
    optimizers = list(optimizers)
    if not optimizers or any(isinstance(optimizer, NoOptimizer) for optimizer in optimizers):
        return
    held = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    held_ids = {id(p) for p in held}
    own = dict(module.named_parameters(remove_duplicate=False))
    averages = {id(p) for child in module.modules() if isinstance(child, AveragedModel) for p in child.parameters()}
    missing = [name for name, p in own.items() if p.requires_grad and id(p) not in held_ids | averages]
    if missing:
        rank_zero_warn(
            f"{len(missing)} trainable parameter(s) are in no optimizer, so they keep their values:"
            f" {_shown(missing)}. Add them in"
            " `configure_optimizers`, or set `requires_grad=False`.",
            PossibleUserWarning,
        )
    own_ids = {id(p) for p in own.values()}
    foreign = [p for p in held if isinstance(p, torch.Tensor) and id(p) not in own_ids]
    if foreign:
        shapes = _shown([str(tuple(p.shape)) for p in foreign])
        rank_zero_warn(
            f"{len(foreign)} tensor(s) in the optimizers are no parameters of the module (any more), shapes {shapes}."
            " Was a layer replaced"
            " after `configure_optimizers`, as in `on_fit_start`? Do it in `__init__`, `setup` or `configure_model`.",
            PossibleUserWarning,
        )


def _shown(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
