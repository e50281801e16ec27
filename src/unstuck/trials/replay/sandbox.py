"""A place to run the user's code again without a trace: afterwards everything is as it was before.

Random states, containers, tensors, gradients, output and the effect of ``step`` and ``zero_grad`` are covered; what
can't be undone (drawing from the program's iterators, writing files, talking to other threads) is refused.
"""

from __future__ import annotations

import builtins
import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from unstuck.measure import rng
from unstuck.trials.replay.heap import HeapSnapshot
from unstuck.trials.replay.journal import WriteJournal
from unstuck.trials.replay.reports import unheard_by_loggers
from unstuck.trials.replay.stand_ins import CannotReplayError, attribute, no_effects_outside, out_of_reach, silence

__all__ = ["CannotReplayError", "sandbox"]


@contextlib.contextmanager
def sandbox(
    roots: Iterable[Any],
    optimizers: Iterable[torch.optim.Optimizer],
    start: rng.RandomState,
    backward: Callable[..., None],
) -> Iterator[HeapSnapshot]:
    """Runs the body with the random states of ``start``; undoes every effect afterwards.

    Args:
        roots: namespaces and objects of the program that the body may reach.
        optimizers: their ``step`` and ``zero_grad`` do nothing inside; a step's closure is called once.
        start: random states at the point from which the program is continued.
        backward: called in place of ``torch.autograd.backward``.

    Raises:
        CannotReplayError: by the body, where it does what can't be undone.
    """
    optimizers = list(optimizers)
    parameters = [item for optimizer in optimizers for group in optimizer.param_groups for item in group["params"]]
    with contextlib.ExitStack() as stack:
        heap = HeapSnapshot([*roots, *optimizers, *(generator for generator, _ in start.others)], out_of_reach)
        stack.callback(heap.restore)
        now = rng.capture(heap.generators.values())
        tensors = {id(tensor): tensor for tensor in (*heap.tensors.values(), *parameters)}
        gradients = [(tensor, tensor.grad) for tensor in tensors.values() if tensor.is_leaf]
        journal = WriteJournal([*tensors.values(), *(gradient for _, gradient in gradients if gradient is not None)])
        stack.callback(rng.restore, now)
        stack.callback(journal.restore)
        stack.callback(_put_gradients, gradients)
        for optimizer in optimizers:
            stack.enter_context(attribute(optimizer, "step", _asks_only))
            stack.enter_context(attribute(optimizer, "zero_grad", _does_nothing))
        stack.enter_context(attribute(torch.nn.Module, "zero_grad", _does_nothing))
        stack.enter_context(attribute(torch.autograd, "backward", backward))
        stack.enter_context(attribute(torch, "save", _does_nothing))
        stack.enter_context(attribute(builtins, "breakpoint", _does_nothing))
        stack.enter_context(silence(heap.streams.values()))
        stack.enter_context(no_effects_outside())
        stack.enter_context(unheard_by_loggers(heap.kinds))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        for tensor, gradient in gradients:
            if gradient is not None:
                tensor.grad = None
        rng.restore(start)
        stack.enter_context(torch.enable_grad())
        stack.enter_context(journal)
        yield heap


def _put_gradients(gradients: list[tuple[torch.Tensor, torch.Tensor | None]]) -> None:
    for tensor, gradient in gradients:
        if tensor.grad is not gradient:
            tensor.grad = gradient


def _does_nothing(*_: Any, **__: Any) -> None:
    return None


def _asks_only(closure: Callable[[], Any] | None = None, *_: Any, **__: Any) -> Any:
    """Stands for a step: what its closure computes belongs to the step, what it does to the weights doesn't."""
    return None if closure is None else closure()
