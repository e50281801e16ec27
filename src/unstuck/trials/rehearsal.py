"""Running kept steps of a program again, as often as wanted, with other weights, inputs or settings.

One sandbox stands around all of it: what the runs change (weights, buffers, counters, random states) is theirs to see
and is put back when it closes. Which way of continuing the program is the right one is settled once: with the weights
of the start, the first kept step must give the loss that was seen, bit for bit.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unstuck.instruments.kept_steps import Kept, KeptStep
from unstuck.instruments.moments import Moment
from unstuck.measure import rng
from unstuck.trials.replay.attempt import SHARES, Attempt, run_route
from unstuck.trials.replay.heap import HeapTooLargeError
from unstuck.trials.replay.reports import unheard_by_trainers
from unstuck.trials.replay.routes import Route, routes_to
from unstuck.trials.replay.sandbox import CannotReplayError, sandbox

__all__ = ["Rehearsal", "RehearsalError", "rehearse"]


class RehearsalError(Exception):
    """A step can't be run again; the message says why, in words for the report."""


@dataclass
class Rehearsal:
    """Kept steps that can be run again while the sandbox is open; made by :func:`rehearse`.

    Attributes:
        kept: what they come from. Its optimiser's parameters, its models' buffers and its batches may be written to,
            in place, in any way: that is what a rehearsal is for.
    """

    kept: Kept
    _run_backward: Callable[..., None]
    _routes: tuple[tuple[Route, ...], ...]
    _route_name: str = ""
    _taken: tuple[int, int, float] | None = None
    _attempt: Attempt | None = None

    @property
    def parameters(self) -> list[torch.Tensor]:
        """The optimiser's, in its order."""
        return [item for group in self.kept.optimizer.param_groups for item in group["params"]]

    def start_again(self) -> None:
        """Weights and buffers as before the first step, no gradients, the modules' modes of the first kept step."""
        with torch.no_grad():
            for parameter, first in zip(self.parameters, self.kept.weights, strict=True):
                parameter.copy_(first)
                parameter.grad = None
            for buffer, first in self.kept.buffers:
                buffer.copy_(first)

    def clear_gradients(self) -> None:
        """No parameter has a gradient afterwards."""
        for parameter in self.parameters:
            parameter.grad = None

    def loss(self, index: int, gradients: bool = False) -> torch.Tensor:
        """The loss of one kept step, computed by the program's own statements with the present weights.

        Args:
            index: of the step among ``kept.steps``. Its random numbers are those of the run, each time.
            gradients: add its gradients to the parameters' ``grad``.

        Returns:
            The loss with its graph.

        Raises:
            RehearsalError: the program did something that can't be undone, or raised.
        """
        route = next((item for item in self._routes[index] if item.name == self._route_name), None)
        if route is None:
            raise RehearsalError("the program can't be continued from that step as from the first")
        return self._pass(self.kept.steps[index], route, gradients, lambda loss: None, self._taken)

    def first_call(self, index: int) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
        """The module that one kept step called first, with positional and keyword arguments.

        Raises:
            RehearsalError: no call was kept.
        """
        moment = self._call(index)
        assert moment.module is not None
        return moment.module, moment.args, dict(moment.kwargs)

    def output(self, index: int) -> Any:
        """What the first module call of one kept step returns, on its arguments and in the present modes.

        Raises:
            RehearsalError: no call was kept, or the module raised.
        """
        moment = self._call(index)
        module, args, kwargs = self.first_call(index)
        if moment.random_state is not None:
            rng.restore(moment.random_state)
        with _named_errors(), _autocast(moment.autocast):
            return module(*args, **kwargs)

    def _call(self, index: int) -> Moment:
        moments = self.kept.steps[index].backward.moments
        moment = next((item for item, _ in moments if item.kind == "forward"), None)
        if moment is None or moment.module is None:
            raise RehearsalError("the step's first module call was not seen")
        return moment

    def _pass(
        self,
        step: KeptStep,
        route: Route,
        gradients: bool,
        accepts: Callable[[tuple[torch.Tensor, ...]], str | None],
        taken: tuple[int, int, float] | None,
    ) -> torch.Tensor:
        attempt = Attempt(route, step.backward, self._run_backward, accepts, gradients, (1.0, *SHARES), taken)
        self._attempt = attempt
        self._set_modes(step)
        rng.restore(route.random_state)
        with _named_errors(), _autocast(route.autocast):
            run_route(route, attempt)
        if attempt.refusal is not None:
            raise RehearsalError(attempt.refusal)
        loss = attempt.loss[0]
        if loss.numel() != 1:
            raise RehearsalError("the loss isn't a single number")
        return loss

    def _set_modes(self, step: KeptStep) -> None:
        for module, training in step.modes:
            if module.training is not training:
                module.training = training

    def _backward(self, tensors: Any, *args: Any, **kwargs: Any) -> None:
        """Stands for ``torch.autograd.backward`` in the sandbox."""
        attempt = self._attempt
        if attempt is None:
            return self._run_backward(tensors, *args, **kwargs)
        return attempt.backward(tensors, *args, **kwargs)

    def _settle(self) -> None:
        """Find the way to run a step again: the one by which the first step's loss comes out as it was seen."""
        self.start_again()
        step = self.kept.steps[0]
        reasons = []
        for route in self._routes[0]:
            try:
                self._pass(step, route, False, lambda loss: _other_loss(loss, step), None)
            except RehearsalError as error:
                reasons.append(str(error))
                continue
            assert self._attempt is not None
            self._route_name, self._taken = route.name, self._attempt.taken
            return
        raise RehearsalError(reasons[0] if reasons else "the program can't be continued from its first step")


@contextlib.contextmanager
def rehearse(
    kept: Kept, optimizers: Sequence[torch.optim.Optimizer], run_backward: Callable[..., None]
) -> Iterator[Rehearsal]:
    """Opens the sandbox; inside, kept steps can be run again, and outside nothing has changed afterwards.

    Args:
        kept: the steps.
        optimizers: every optimiser of the program; ``step`` and ``zero_grad`` of none do anything inside.
        run_backward: the original ``torch.autograd.backward``.

    Raises:
        RehearsalError: the first step can't be run again; the message says why.
    """
    routes = tuple(_routes(step) for step in kept.steps)
    rehearsal = Rehearsal(kept, run_backward, routes)
    every = [route for of_step in routes for route in of_step]
    roots = [kept.models, *(root for route in every for root in route.roots)]
    if not _fits(kept):
        raise RehearsalError("the optimizer holds other parameters than at its first step")
    if not every:
        raise RehearsalError("the program can't be continued from its first step")
    everyone = {id(item): item for item in (*optimizers, kept.optimizer)}
    try:
        with contextlib.ExitStack() as stack:
            start = every[0].random_state
            heap = stack.enter_context(sandbox(roots, everyone.values(), start, rehearsal._backward))
            stack.enter_context(unheard_by_trainers(heap.kinds))
            rehearsal._settle()
            yield rehearsal
    except HeapTooLargeError as error:
        raise RehearsalError(str(error)) from error


def _fits(kept: Kept) -> bool:
    """Whether the optimiser's groups and parameters are still those of its first step."""
    groups = kept.optimizer.param_groups
    parameters = [item for group in groups for item in group["params"]]
    return (
        len(groups) == len(kept.settings)
        and len(parameters) == len(kept.weights)
        and all(
            item.shape == first.shape and item.dtype == first.dtype
            for item, first in zip(parameters, kept.weights, strict=True)
        )
    )


def _routes(step: KeptStep) -> tuple[Route, ...]:
    with _named_errors():
        return tuple(routes_to(step.backward, None))


def _other_loss(loss: tuple[torch.Tensor, ...], step: KeptStep) -> str | None:
    """None if a loss is the one that was seen, else what differs."""
    seen = step.backward.values
    if seen is None or loss[0].numel() != 1:
        return "the loss isn't a single number"
    value = float(loss[0].detach().item())
    # other threads' kernels, or compiled ones, may add in another order
    if value == seen[0] or math.isclose(value, seen[0], rel_tol=1e-5, abs_tol=1e-12):
        return None
    return f"the loss of the first step is {value:.9g} when run again, it was {seen[0]:.9g}"


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    """Whatever the program's code raises becomes a :class:`RehearsalError`."""
    try:
        yield
    except RehearsalError:
        raise
    except CannotReplayError as error:
        raise RehearsalError(str(error)) from error
    except SystemExit as error:
        raise RehearsalError("the step ends the program") from error
    except Exception as error:
        raise RehearsalError(f"the step raised {type(error).__name__}: {' '.join(str(error).split())[:200]}") from error


@contextlib.contextmanager
def _autocast(devices: Sequence[tuple[str, torch.dtype]]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for device, dtype in devices:
            stack.enter_context(torch.autocast(device, dtype=dtype))
        yield
