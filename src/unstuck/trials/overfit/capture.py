"""What the loss of a pass was made of: a prediction, and a function of it.

Where one call of a loss function of torch's made the whole loss, its first argument is the prediction. Else it is what
the step's last outermost module call returned, if the loss follows from that alone: then the step itself, with the
module's answer replaced, is the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from unstuck.trials.overfit.bounds import in_full_precision
from unstuck.trials.overfit.training import Pass, Passed

__all__ = ["CapturedLoss", "LossCapture", "inputs_beside", "look", "looking", "same_targets"]

_NAMES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
)
_SIGNATURES = {getattr(functional, name): inspect.signature(getattr(functional, name)) for name in _NAMES}


@dataclass(frozen=True)
class CapturedLoss:
    """One call of a loss function.

    Attributes:
        loss_fn: the same call with another prediction and target.
        output: the prediction.
        target: the target.
        value: what it returned.
        name: of the function.
    """

    loss_fn: Callable[[Any, Any], torch.Tensor]
    output: torch.Tensor
    target: Any
    value: torch.Tensor
    name: str = ""


class LossCapture(TorchFunctionMode):
    """While it is active, remembers calls of torch's loss functions that returned a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[CapturedLoss] = []
        self._inside = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        signature = _SIGNATURES.get(func) if not self._inside else None
        if signature is None:
            return func(*args, **keywords)
        self._inside = True  # some are written in terms of others
        try:
            value = func(*args, **keywords)
        finally:
            self._inside = False
        bound = signature.bind(*args, **keywords).arguments
        first, second, *_ = signature.parameters
        output, target = bound.pop(first), bound.pop(second)
        rest = in_full_precision(bound)
        if isinstance(value, torch.Tensor) and value.numel() == 1 and isinstance(output, torch.Tensor):
            self.calls.append(
                CapturedLoss(
                    lambda given, wanted: func(given, wanted, **rest), output, target, value.detach(), func.__name__
                )
            )
        return value

    def only(self, loss: torch.Tensor) -> CapturedLoss | None:
        """The call that made the whole of a loss; None where several did, or something else as well."""
        found = [call for call in self.calls if torch.allclose(call.value.double(), loss.detach().double(), rtol=1e-5)]
        return found[0] if len(self.calls) == 1 and found else None


def look(step: Callable[[], Any], model: torch.nn.Module, batch: Any) -> Passed:
    """The pass of a step, and what its loss is made of where that can be told.

    Args:
        step: runs the pass; returns the loss, or a dict with it under "loss".
        model: whose modules the step calls.
        batch: that it works on.

    Raises:
        TypeError: the step returns no loss.
    """
    with LossCapture() as capture, _outermost_calls(model) as calls:
        result = step()
    loss = _loss_of(result)
    call = capture.only(loss)
    if call is not None:
        with LossCapture() as again:
            _loss_of(step())
        if len(again.calls) != 1 or not same_targets(call.target, again.calls[0].target):
            return Passed(loss, inputs=batch)  # a target that is drawn anew each time has no floor
        return Passed(loss, call.output, call.target, inputs_beside(call.target, batch), call.loss_fn)
    found = [item for item in calls if not (isinstance(item.output, torch.Tensor) and item.output.numel() == 1)]
    last = found[-1] if found else None
    if last is None or not isinstance(last.output, torch.Tensor) or sum(x.module is last.module for x in found) > 1:
        return Passed(loss, inputs=batch, terms=_terms(capture.calls, batch))

    def answered(output: torch.Tensor, target: Any) -> torch.Tensor:
        with _answering(last.module, output):
            return _loss_of(step())

    if not _follows_from(answered, last.output.detach(), loss.detach()):
        return Passed(loss, inputs=batch, terms=_terms(capture.calls, batch))
    return Passed(loss, last.output, None, found[0].inputs, answered)


def _terms(calls: Sequence[CapturedLoss], batch: Any) -> tuple[Passed, ...]:
    """The terms of a loss, where there are several, that compare something with a tensor of the batch.

    A target that was drawn or made by the model may be one that can't be met.
    """
    given = [item for item in tree_leaves(batch) if isinstance(item, torch.Tensor)]
    return tuple(
        Passed(call.value, call.output, call.target, inputs_beside(call.target, batch), call.loss_fn, name=call.name)
        for call in (calls if len(calls) > 1 else ())
        if isinstance(call.target, torch.Tensor) and any(_same_numbers(item, call.target) for item in given)
    )


def same_targets(a: Any, b: Any) -> bool:
    """Whether two targets hold the same numbers."""
    first, second = ([item for item in tree_leaves(given) if isinstance(item, torch.Tensor)] for given in (a, b))
    return len(first) == len(second) and all(
        one.shape == other.shape and torch.equal(one.detach(), other.detach())
        for one, other in zip(first, second, strict=True)
    )


def looking(run: Pass) -> Pass:
    """A pass that also tells what its loss is made of, where ``run`` doesn't by itself."""

    def looked(model: torch.nn.Module, batch: Any) -> Passed:
        first: list[Passed] = []

        def step() -> torch.Tensor:
            passed = run(model, batch)
            if not first:
                first.append(passed)
            return passed.loss

        seen = look(step, model, batch)
        own = first[0]
        return own if isinstance(own.output, torch.Tensor) and own.loss_fn is not None else seen

    return looked


def _loss_of(result: Any) -> torch.Tensor:
    loss = result.get("loss") if isinstance(result, Mapping) else result
    if not isinstance(loss, torch.Tensor):
        raise TypeError(f"the step returned no loss, but {type(result).__name__}")
    return loss


@dataclass(frozen=True)
class _Call:
    """One call of a module that no other module called."""

    module: torch.nn.Module
    inputs: Any
    output: Any


@contextmanager
def _outermost_calls(model: torch.nn.Module) -> Iterator[list[_Call]]:
    """The calls of a model's modules during a block, without those inside of one another."""
    calls: list[_Call] = []
    depth = 0

    def enter(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal depth
        depth += 1

    def leave(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0:
            calls.append(_Call(module, (args, kwargs), output))

    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue  # takes no such hooks
            stack.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(leave, with_kwargs=True).remove)
        yield calls


@contextmanager
def _answering(module: torch.nn.Module, output: torch.Tensor) -> Iterator[None]:
    """Let a module give this answer, whatever it is called with, during a block."""
    own = module.__dict__.get("forward")
    module.__dict__["forward"] = lambda *args, **kwargs: output
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if own is not None:
            module.__dict__["forward"] = own


def _follows_from(loss_fn: Callable[[Any, Any], torch.Tensor], output: torch.Tensor, loss: torch.Tensor) -> bool:
    """Whether a loss is made of a prediction alone: the same each time, and through no parameter beside it."""
    if output.dim() == 0 or not output.is_floating_point():
        return False
    try:
        with torch.enable_grad():
            again = [loss_fn(output, None) for _ in range(2)]
    except Exception:  # noqa: BLE001 - the user's code, called with an answer that it doesn't expect
        return False
    return all(
        not item.requires_grad and item.numel() == 1 and torch.allclose(item.double(), loss.double(), rtol=1e-4)
        for item in again
    )


def inputs_beside(target: Any, batch: Any) -> list[torch.Tensor]:
    """The tensors of a batch without its target, however that was reshaped."""
    wanted = [item.detach() for item in tree_leaves(target) if isinstance(item, torch.Tensor)]
    return [
        item
        for item in tree_leaves(batch)
        if isinstance(item, torch.Tensor) and not any(_same_numbers(item, other) for other in wanted)
    ]


def _same_numbers(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.numel() == b.numel() and torch.equal(a.detach().flatten().double().cpu(), b.flatten().double().cpu())
