"""From what ``configure_optimizers`` returns to checked lists of optimisers and schedulers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_warn
from unstuck.trainer.hooks import call_module_hook, is_overridden, takes_argument
from unstuck.trainer.schedulers import LRSchedulerConfig, configure_schedulers

__all__ = ["NoOptimizer", "configure_optimizers"]

_FORMS = (
    "`configure_optimizers` should return an optimizer, a list of optimizers, two lists (optimizers, schedulers), a"
    " dict with the key"
    " 'optimizer' (and 'lr_scheduler', 'monitor'), several such dicts, or None."
)


class NoOptimizer(Optimizer):
    """Stands in where ``configure_optimizers`` returned None: runs the closure and changes nothing."""

    def __init__(self) -> None:
        super().__init__([torch.zeros(1)], {})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        return None if closure is None else closure()

    def zero_grad(self, set_to_none: bool = True) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        pass

    def __repr__(self) -> str:
        return "No Optimizer"


def configure_optimizers(module: Any) -> tuple[list[Optimizer], list[LRSchedulerConfig]]:
    """Calls the module's ``configure_optimizers`` and reads its answer in any of the accepted forms.

    Args:
        module: the module of the run, attached to its Trainer.

    Returns:
        The optimisers and the schedulers' configurations.

    Raises:
        MisconfigurationException: an unknown form, a scheduler without its optimiser, an incomplete scheduler dict.
        RuntimeError: several optimisers with automatic optimisation.
    """
    answer = call_module_hook(module, "configure_optimizers")
    if answer is None:
        rank_zero_warn(
            "`configure_optimizers` returned `None`: this fit runs without an optimizer and changes no weights."
        )
        answer = NoOptimizer()
    optimizers, schedulers, monitor = _read_forms(answer)
    configs = configure_schedulers(
        schedulers,
        monitor,
        automatic=module.automatic_optimization,
        steps_itself=is_overridden("lr_scheduler_step", module),
    )
    if (module.automatic_optimization and len(optimizers) != 1) or takes_argument(
        module.training_step, "optimizer_idx"
    ):
        _refuse_several(module, len(optimizers))
    for config in configs:
        owner = getattr(config.scheduler, "optimizer", None)
        if not any(owner is optimizer for optimizer in optimizers):
            raise MisconfigurationException(
                f"The scheduler {type(config.scheduler).__name__} belongs to an optimizer that `configure_optimizers`"
                " didn't return."
            )
    return optimizers, configs


def _refuse_several(module: Any, count: int) -> None:
    named = _named_parameter(module.training_step, "optimizer_idx")
    if (module.automatic_optimization and count > 1) or named:
        raise RuntimeError(
            f"{type(module).__name__}: more than one optimizer needs manual optimization. Set"
            " `self.automatic_optimization = False` in"
            " `__init__`, take them in `training_step` by `opt1, opt2 = self.optimizers()`, and drop `optimizer_idx`"
            " if it is there."
        )
    if module.automatic_optimization and count == 0:
        raise MisconfigurationException(f"{type(module).__name__}.configure_optimizers returned no optimizer. {_FORMS}")


def _named_parameter(function: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(function).parameters


def _read_forms(answer: Any) -> tuple[list[Optimizer], list[Any], str | None]:
    """Optimisers, schedulers as given, and the monitor that stands beside them."""
    if _is_optimizer(answer):
        return [answer], [], None
    if isinstance(answer, Mapping):
        _check_keys(answer)
        schedulers = [answer["lr_scheduler"]] if "lr_scheduler" in answer else []
        return [_optimizer_of(answer)], schedulers, answer.get("monitor")
    if isinstance(answer, (list, tuple)):
        if len(answer) == 2 and isinstance(answer[0], list) and all(map(_is_optimizer, answer[0])):
            schedulers = answer[1] if isinstance(answer[1], list) else [answer[1]]
            return answer[0], schedulers, None
        if answer and all(isinstance(item, Mapping) for item in answer):
            for item in answer:
                _check_keys(item)
            schedulers = []
            for item in answer:
                if "lr_scheduler" in item:
                    scheduler = item["lr_scheduler"]
                    schedulers.append(dict(scheduler) if isinstance(scheduler, Mapping) else {"scheduler": scheduler})
            return [_optimizer_of(item) for item in answer], schedulers, None
        if all(map(_is_optimizer, answer)):
            return list(answer), [], None
    raise MisconfigurationException(f"Unknown answer of type {type(answer).__name__}. {_FORMS}")


def _is_optimizer(value: Any) -> bool:
    """By its interface, so that wrappers which are no subclass of torch's class count too."""
    return isinstance(value, Optimizer) or all(
        hasattr(value, name) for name in ("step", "zero_grad", "param_groups", "state_dict", "load_state_dict")
    )


def _optimizer_of(item: Mapping[str, Any]) -> Optimizer:
    if "optimizer" not in item:
        raise MisconfigurationException(
            f"A dict from `configure_optimizers` lacks the key 'optimizer'; it has {sorted(item)}. {_FORMS}"
        )
    optimizer: Optimizer = item["optimizer"]
    if not _is_optimizer(optimizer):
        raise MisconfigurationException(
            f"The 'optimizer' in a dict from `configure_optimizers` is a {type(optimizer).__name__}. {_FORMS}"
        )
    return optimizer


def _check_keys(item: Mapping[str, Any]) -> None:
    unknown = set(item) - {"optimizer", "lr_scheduler", "monitor"}
    if unknown:
        rank_zero_warn(
            f"`configure_optimizers` returned a dict with keys that nobody reads: {sorted(map(str, unknown))}.",
            RuntimeWarning,
        )
