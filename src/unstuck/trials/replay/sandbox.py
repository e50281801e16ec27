"""A place to run the user's code again without a trace: afterwards everything is as it was before.

Random states, containers, tensors, gradients, stdout and the effect of ``step`` and ``zero_grad`` are covered; drawing
from the program's iterators is refused, since it can't be undone.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import dataloader

from unstuck.measure import rng
from unstuck.trials.replay.heap import HeapSnapshot
from unstuck.trials.replay.journal import WriteJournal

__all__ = ["CannotReplayError", "sandbox"]


class CannotReplayError(Exception):
    """The step can't be run again; the message says why, in words for the report."""


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
        optimizers: their ``step`` and ``zero_grad`` do nothing inside.
        start: random states at the point from which the program is continued.
        backward: called in place of ``torch.autograd.backward``.
    """
    optimizers = list(optimizers)
    parameters = [item for optimizer in optimizers for group in optimizer.param_groups for item in group["params"]]
    heap = HeapSnapshot([*roots, *optimizers, *(generator for generator, _ in start.others)])
    now = rng.capture(heap.generators.values())
    tensors = {id(tensor): tensor for tensor in (*heap.tensors.values(), *parameters)}
    gradients = [(tensor, tensor.grad) for tensor in tensors.values() if tensor.is_leaf]
    known = [*tensors.values(), *(gradient for _, gradient in gradients if gradient is not None)]
    journal = WriteJournal(known)
    with contextlib.ExitStack() as stack:
        stack.callback(rng.restore, now)
        stack.callback(heap.restore)
        stack.callback(journal.restore)
        stack.callback(_put_gradients, gradients)
        for optimizer in optimizers:
            for name in ("step", "zero_grad"):
                stack.enter_context(_attribute(optimizer, name, _does_nothing))
        stack.enter_context(_attribute(torch.nn.Module, "zero_grad", _does_nothing))
        stack.enter_context(_attribute(torch.autograd, "backward", backward))
        stack.enter_context(_attribute(dataloader._BaseDataLoaderIter, "__next__", _refuse_draw))
        stack.enter_context(_attribute(builtins, "open", _read_only(builtins.open)))
        stack.enter_context(_attribute(builtins, "input", _refuse_input))
        stack.enter_context(_attribute(builtins, "breakpoint", _does_nothing))
        stack.enter_context(_silence())
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


@contextlib.contextmanager
def _attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    own = vars(owner).get(name, _MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


_MISSING = object()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Python's own output goes nowhere; what the streams have buffered stays in them."""
    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def _does_nothing(*_: Any, **__: Any) -> None:
    return None


def _refuse_draw(*_: Any) -> Any:
    raise CannotReplayError("the step draws a batch after its first forward, and drawing can't be undone")


def _refuse_input(*_: Any) -> Any:
    raise CannotReplayError("the step reads from the keyboard")


def _read_only(original: Callable[..., Any]) -> Callable[..., Any]:
    def open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:  # noqa: A001 - it stands for open
        if set(mode) & set("wax+") and file is not os.devnull:
            raise CannotReplayError(
                f"the step writes the file {os.fspath(file) if not isinstance(file, int) else file!r}"
            )
        return original(file, mode, *args, **kwargs)

    return open
