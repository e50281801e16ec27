"""The copies that a trial trains: a model, and a fresh optimiser of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from unstuck.errors import MisconfigurationException
from unstuck.trials.overfit.copies import copied_model, copied_optimizer
from unstuck.workflow.overfit.checks import kind_of

__all__ = ["OptimizerOrMaker", "copies_of", "device_of", "rate_of"]

OptimizerOrMaker = torch.optim.Optimizer | Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]


def copies_of(
    model: torch.nn.Module,
    optimizer: OptimizerOrMaker | None,
    device: torch.device | None = None,
    factor: float = 1.0,
    rate: float | None = None,
) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A copy of a model on a device, and a fresh optimiser of it with ``factor`` on its learning rates.

    A model that is in evaluation mode as a whole, as loaded ones are, is put into training mode.

    Args:
        model: left as it is.
        optimizer: of the model, or a function that makes one from parameters; Adam at 1e-3 for None.
        device: where the copy lies; None: where the model does.
        factor: on every group's rate.
        rate: in the place of every group's rate, if it has one.

    Raises:
        MisconfigurationException: the model can't be copied, none of it can be trained, or ``optimizer`` is something
            else.
    """
    if not any(item.requires_grad for item in model.parameters()):
        raise MisconfigurationException("the model has no parameter that requires a gradient: nothing can be trained")
    clone, made = _copies(model, optimizer, device, factor)
    for group in made.param_groups:
        if rate is not None and "lr" in group:
            group["lr"] = rate
    return clone, made


def _copies(
    model: torch.nn.Module, optimizer: OptimizerOrMaker | None, device: torch.device | None, factor: float
) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    clone, copies = copied_model(model)
    if not any(module.training for module in clone.modules()):
        clone.train()
    if isinstance(optimizer, torch.optim.Optimizer):
        made = copied_optimizer(optimizer, copies, factor)
        return clone.to(device), made
    clone.to(device)
    parameters = [item for item in clone.parameters() if item.requires_grad]
    if optimizer is None:
        return clone, torch.optim.Adam(parameters, lr=1e-3 * factor)
    if not callable(optimizer):
        raise MisconfigurationException(
            f"`optimizer` must be an optimizer of the model or a function that makes one from parameters, got "
            f"{kind_of(optimizer)}; one optimizer with several groups takes the place of several"
        )
    made = optimizer(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise MisconfigurationException(
            f"`optimizer` must return an optimizer when it is called with parameters, it returned {kind_of(made)}"
        )
    for group in made.param_groups:
        if "lr" in group:
            group["lr"] = group["lr"] * factor
    return clone, made


def rate_of(optimizer: torch.optim.Optimizer) -> float | None:
    """The learning rate of the first group whose rate isn't 0; 0 where that of all is; None without one."""
    rates = [float(group["lr"]) for group in optimizer.param_groups if group.get("lr") is not None]
    return next((item for item in rates if item != 0.0), rates[0] if rates else None)


def device_of(model: torch.nn.Module) -> torch.device:
    """Where a model's first parameter or buffer lies; the CPU for one without any."""
    return next((item.device for item in [*model.parameters(), *model.buffers()]), torch.device("cpu"))
