"""One run of a route: backward calls are counted, and the wanted one ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from unstuck.instruments.guard import Backward
from unstuck.trials.replay.routes import Route

__all__ = ["SHARES", "Attempt", "run_route"]

SHARES = tuple(1.0 / count for count in range(2, 65))
"""Factors by which a trainer that accumulates gradients multiplies a loss."""


class _Reached(BaseException):
    """Ends a run at the backward call that it was made for."""


@dataclass
class Attempt:
    """One route on its way: counts backward calls and runs the wanted one.

    Attributes:
        accepts: what keeps a loss from being the wanted one, None if it is.
        factors: numbers by which a trainer may have multiplied a loss that the user's code returned.
        taken: (stage, leaf, factor) where the loss was found among returned values; known from an earlier attempt, or
            found by this one.
    """

    route: Route
    wanted: Backward
    run_backward: Callable[..., None]
    accepts: Callable[[tuple[torch.Tensor, ...]], str | None]
    needs_gradients: bool
    factors: tuple[float, ...] = (1.0,)
    taken: tuple[int, int, float] | None = None
    count: int = 0
    loss: tuple[torch.Tensor, ...] = ()
    refusal: str | None = None
    running: bool = False

    def backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:
        """Stands for ``torch.autograd.backward`` inside the sandbox."""
        if self.running:  # reentrant: checkpointing computes a part again and differentiates it
            return self.run_backward(tensors, *args, **kwargs)
        self.count += 1
        if self.count < self.route.target:
            return None  # an earlier call's gradients don't matter, and its graph may be needed again
        self.finish((tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors), args, kwargs)
        raise _Reached

    def finish(self, tensors: tuple[torch.Tensor, ...], args: Any = (), kwargs: Any = None) -> None:
        """Take the loss, and compute its gradients where they are needed."""
        self.loss = tensors
        self.refusal = self.accepts(tensors)
        if self.refusal is None and self.needs_gradients:
            self.running = True
            try:
                self.run_backward(tensors, *args, **(kwargs or {}))
            finally:
                self.running = False


def run_route(route: Route, attempt: Attempt) -> None:
    """Run the stages until the wanted backward call, or look for the loss in what they return.

    Where it isn't met, ``attempt.refusal`` says so.
    """
    try:
        value = route.first()
        for index, stage in enumerate(route.stages):
            if _take_returned(value, attempt, index):
                return
            value = stage.run(value)
        if _take_returned(value, attempt, len(route.stages)):
            return
    except _Reached:
        return
    attempt.refusal = attempt.refusal or "it ended without the backward call"


def _take_returned(value: Any, attempt: Attempt, stage: int) -> bool:
    """Whether a returned value holds the loss that was seen (a trainer calls ``backward`` on it)."""
    for index, leaf in enumerate(tree_leaves(value) + list(_fields(value))):
        if not (isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.numel() == 1):
            continue
        if attempt.taken is not None:
            if attempt.taken[:2] == (stage, index):
                attempt.finish((leaf * attempt.taken[2] if attempt.taken[2] != 1.0 else leaf,))
                return True
            continue
        if attempt.wanted.values is None:
            continue
        for factor in attempt.factors:
            scaled = leaf if factor == 1.0 else leaf * factor
            if attempt.accepts((scaled,)) is None:
                attempt.taken = (stage, index, factor)
                attempt.finish((scaled,))
                return True
    return False


def _fields(value: Any) -> Iterable[Any]:
    """Values of an output object (a dataclass or mapping that torch's trees don't open)."""
    return vars(value).values() if hasattr(value, "__dict__") else ()
