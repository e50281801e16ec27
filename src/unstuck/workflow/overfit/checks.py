"""Looks whether a trial can be made of what was given, and whether a step can be taken on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from unstuck.errors import MisconfigurationException
from unstuck.findings import Finding, Severity, Where
from unstuck.places import is_user_code
from unstuck.trials.overfit.norm_of_one import norm_of_one
from unstuck.trials.overfit.training import Pass, Passed, forward_of_pair

__all__ = [
    "RefusalError",
    "check_counts",
    "check_model",
    "check_pairs",
    "check_step",
    "kind_of",
    "pass_of",
    "usable_device",
]


class RefusalError(Exception):
    """No step can be taken."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.summary)
        self.finding = finding


def pass_of(
    loss_fn: Callable[[Any, Any], torch.Tensor] | None, step: Callable[[torch.nn.Module, Any], torch.Tensor] | None
) -> Pass:
    """The pass of one batch.

    Raises:
        MisconfigurationException: not exactly one of both is given, or it can't be called so.
    """
    if (loss_fn is None) == (step is None):
        raise MisconfigurationException(
            "give `loss_fn`, called as loss_fn(output, target), or `step`, called as step(model, batch): one of them"
        )
    for name, given in (("loss_fn", loss_fn), ("step", step)):
        if given is not None and (not callable(given) or _is_module_class(given)):
            raise MisconfigurationException(f"`{name}` must be a function, got {kind_of(given)}")
    if loss_fn is not None:
        return forward_of_pair(loss_fn)
    assert step is not None
    return lambda model, batch: Passed(step(model, batch), inputs=batch)


def check_model(model: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise MisconfigurationException(f"`model` must be a torch Module, got {kind_of(model)}")


def check_counts(steps: int, batches: int, samples_per_class: int | None, max_seconds: float) -> None:
    for name, value in (("steps", steps), ("batches", batches), ("samples_per_class", samples_per_class)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise MisconfigurationException(f"`{name}` must be a whole number of at least 1, got {value!r}")
    if not max_seconds > 0:
        raise MisconfigurationException(f"`max_seconds` must be positive, got {max_seconds!r}")


def check_pairs(batches: Sequence[Any]) -> None:
    """Look whether batches have the form that ``loss_fn`` asks for.

    Raises:
        MisconfigurationException: one is no pair.
    """
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            kind = f"{type(batch).__name__} of {len(batch)}" if hasattr(batch, "__len__") else type(batch).__name__
            raise MisconfigurationException(
                f"with `loss_fn` a batch must be a pair of inputs and target, got {kind}; for batches of another form "
                "give `step`, called as step(model, batch)"
            )


def check_step(model: torch.nn.Module, batch: Any, run: Pass, source: Callable[..., Any]) -> None:
    """Run a pass and look whether a step can be taken on its loss.

    Args:
        model: a copy.
        batch: of the data.
        run: the pass.
        source: the user's function that gives the loss.

    Raises:
        RefusalError: no step can be taken, with the cause.
        MisconfigurationException: the loss isn't a single number, or isn't one of this model.
    """
    try:
        loss = run(model, batch).loss
    except ValueError as error:
        refused = norm_of_one(error)
        if refused is None:
            raise
        raise RefusalError(refused) from error
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        shape = f"a tensor {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise MisconfigurationException(f"the loss must be a tensor with a single number, got {shape}; reduce it")
    if loss.grad_fn is None:
        raise RefusalError(_disconnected(source))
    trained = [item for item in model.parameters() if item.requires_grad]
    if all(item is None for item in torch.autograd.grad(loss, trained, allow_unused=True)):
        raise MisconfigurationException(
            "the loss depends on none of the parameters of the model that is trained, which is a copy; use the model "
            "that `step` is called with, not one from outside"
        )


def usable_device(device: Any) -> torch.device:
    """The device by its name, after a look whether tensors can lie there."""
    try:
        place = torch.device(device)
        if place.type == "meta":
            raise ValueError("tensors there have no values")
        torch.empty(1, device=place)
    except Exception as error:  # backends raise AssertionError, RuntimeError, TypeError, NotImplementedError
        reason = str(error).split(". ")[0].splitlines()[0]
        raise MisconfigurationException(
            f"`device` must be a device that this torch can use, such as 'cpu', got {device!r}: {reason}; leave it out "
            "to train where the model is"
        ) from error
    return place


def kind_of(given: Any) -> str:
    """How to call what was given in the place of something else."""
    if isinstance(given, type):
        return f"the class {given.__name__}, not an instance of it"
    if isinstance(given, (list, tuple)):
        return f"a {type(given).__name__} of {len(given)} ({', '.join(type(item).__name__ for item in given[:4])})"
    return f"{given!r} ({type(given).__name__})" if isinstance(given, (str, int, float)) else type(given).__name__


def _is_module_class(given: Any) -> bool:
    return isinstance(given, type) and issubclass(given, torch.nn.Module)


def _disconnected(source: Callable[..., Any]) -> Finding:
    """What is wrong with a loss without a graph, at the function that gives it."""
    code = getattr(source.forward if isinstance(source, torch.nn.Module) else source, "__code__", None)
    where = Where(code.co_filename, code.co_firstlineno) if code is not None and is_user_code(code) else Where()
    return Finding(
        "loss.disconnected",
        Severity.ERROR,
        "the loss has no graph to any parameter, so there are no gradients",
        where,
        remedy="compute the loss from the model's output by operations of torch alone, without .item(), .detach(), "
        "argmax, rounding, numpy or torch.tensor(...) in between",
        confirmed=True,
    )
