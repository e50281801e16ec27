"""Running a step again under the tracer, and accepting the result only if it is the same step.

The replay counts when the loss is the one that was seen, bit for bit (to the dtype's tolerance where the run was
compiled), and the non-finite gradients are the same ones.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from unstuck.instruments.guard import Backward, Incident
from unstuck.record.origin import Origin
from unstuck.trials.replay.heap import HeapTooLargeError
from unstuck.trials.replay.routes import Route, routes_to, with_callers
from unstuck.trials.replay.sandbox import CannotReplayError, sandbox
from unstuck.trials.tracing import OpTrace

__all__ = ["Replay", "replay"]


@dataclass(frozen=True)
class Replay:
    """What came out.

    Attributes:
        origin: where the value came from; None if no route was accepted or the walk back ended nowhere.
        accepted: a route reproduced the step.
        reasons: why routes were not accepted, one sentence each.
        route: the accepted route's name.
        whole: it began before anything of the step was computed, so what came with its start came with the data.
    """

    origin: Origin | None
    accepted: bool
    reasons: tuple[str, ...] = ()
    route: str | None = None
    whole: bool = False


class _Reached(BaseException):
    """Ends a replay at the backward call that it was made for."""


@dataclass
class _Attempt:
    """One route on its way: counts backward calls and runs the wanted one."""

    route: Route
    wanted: Backward
    run_backward: Callable[..., None]
    accepts: Callable[[tuple[torch.Tensor, ...]], str | None]
    needs_gradients: bool
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
        self.loss = tensors
        self.refusal = self.accepts(tensors)
        if self.refusal is None and self.needs_gradients:
            self.running = True
            try:
                self.run_backward(tensors, *args, **(kwargs or {}))
            finally:
                self.running = False


def replay(
    incident: Incident,
    models: dict[str, torch.nn.Module],
    optimizers: Iterable[torch.optim.Optimizer],
    frame: FrameType | None,
    run_backward: Callable[..., None],
    tolerant: bool = False,
) -> Replay:
    """Run the step of an incident again and trace its non-finite value to the op that made it.

    Args:
        incident: of kind ``loss`` or ``gradient``.
        models: by the variable that holds each.
        optimizers: all of the program.
        frame: innermost frame at present.
        run_backward: the original ``torch.autograd.backward``.
        tolerant: the run was compiled, so values agree only to the dtype's tolerance.
    """
    wanted = incident.backward
    if wanted is None:
        return Replay(None, False, ("no backward call was seen that made these gradients",))
    optimizers = list(optimizers)
    reasons: list[str] = []
    fallback: Replay | None = None
    for route in _routes(wanted, frame, reasons):
        found = _try(route, incident, wanted, models, optimizers, run_backward, tolerant)
        if not found.accepted:
            reasons += [f"{route.name}: {reason}" for reason in found.reasons]
            continue
        origin = found.origin
        if origin is not None and origin.leaf not in ("batch", "constant"):
            return found
        # The value was there before this route begins: one that begins earlier may see it made.
        fallback = fallback or found
    if fallback is not None and fallback.origin is not None and fallback.origin.leaf == "constant":
        # neither data nor weights: something that the program computed before the replay's start
        return Replay(None, True, ("the value was made before the replay's start", *reasons), fallback.route)
    if fallback is not None:
        return fallback
    return Replay(None, False, tuple(reasons) or ("the step's first module call was not seen",))


def _routes(wanted: Backward, frame: FrameType | None, reasons: list[str]) -> Iterator[Route]:
    """The routes; one that can't be made from the program's source ends them, and is a reason."""
    try:
        yield from routes_to(wanted, frame)
    except Exception as error:  # noqa: BLE001 - reading somebody's program must not end the watching of it
        reasons.append(f"the program can't be continued from there ({type(error).__name__}: {_one_line(error)})")


def _try(
    route: Route,
    incident: Incident,
    wanted: Backward,
    models: dict[str, torch.nn.Module],
    optimizers: list[torch.optim.Optimizer],
    run_backward: Callable[..., None],
    tolerant: bool,
) -> Replay:
    needs_gradients = incident.kind == "gradient"
    attempt = _Attempt(route, wanted, run_backward, lambda loss: _same_loss(loss, wanted, tolerant), needs_gradients)
    real = _nonfinite_gradients(incident.optimizer) if needs_gradients else {}
    batch, size = _batch_of(route, incident)
    trace = OpTrace(models=models, batch=batch, batch_size=size, stop=sys._getframe())

    def found(origin: Origin | None) -> Replay:
        if origin is not None:
            origin = replace(origin, chain=with_callers(origin.chain, route.moment))
        return Replay(origin, True, route=route.name, whole=route.moment.kind != "forward")

    try:
        with sandbox(route.roots, optimizers, route.random_state, attempt.backward):
            with contextlib.ExitStack() as around:
                for device, dtype in route.autocast:
                    around.enter_context(torch.autocast(device, dtype=dtype))
                around.enter_context(trace)
                _run(route, attempt, tolerant)
            if attempt.refusal is not None:
                return Replay(None, False, (attempt.refusal,))
            if not needs_gradients:
                return found(next(filter(None, map(trace.origin_of, attempt.loss)), None))
            again = _nonfinite_gradients(incident.optimizer)
            refusal = _same_positions(real, again, exact=not incident.changed and incident.calls == 1)
            if refusal is not None:
                return Replay(None, False, (refusal,))
            holders = [
                parameter
                for group in incident.optimizer.param_groups
                for parameter in group["params"]
                if id(parameter) in again
            ]
            return found(trace.origin_of_gradient(*holders))
    except (CannotReplayError, HeapTooLargeError) as error:
        return Replay(None, False, (str(error),))
    except SystemExit:
        return Replay(None, False, ("the step ends the program",))
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything when it runs again
        return Replay(None, False, (f"the step raised {type(error).__name__}: {_one_line(error)}",))


def _run(route: Route, attempt: _Attempt, tolerant: bool) -> None:
    """Run the stages until the wanted backward call, or look for the loss in what they return."""
    try:
        value = route.first()
        for stage in route.stages:
            if _take_returned(value, attempt):
                return
            value = stage.run(value)
        if _take_returned(value, attempt):
            return
    except _Reached:
        return
    attempt.refusal = attempt.refusal or "it ended without the backward call"


def _take_returned(value: Any, attempt: _Attempt) -> bool:
    """Whether a returned value holds the loss that was seen (a trainer calls ``backward`` on it)."""
    for leaf in tree_leaves(value) + list(_fields(value)):
        scalar = isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.numel() == 1
        if scalar and attempt.wanted.values is not None and attempt.accepts((leaf,)) is None:
            attempt.finish((leaf,))
            return True
    return False


def _fields(value: Any) -> Iterable[Any]:
    """Values of an output object (a dataclass or mapping that torch's trees don't open)."""
    return vars(value).values() if hasattr(value, "__dict__") else ()


def _same_loss(loss: Sequence[torch.Tensor], wanted: Backward, tolerant: bool) -> str | None:
    """None if a replayed loss is the one that was seen, else what differs."""
    first = loss[0]
    if wanted.values is None:
        return None  # not a scalar: the gradients' positions decide
    if first.numel() != 1:
        return "the loss has another shape"
    value = float(first.detach().item())
    seen = wanted.values[0]
    if value == seen or (math.isnan(value) and math.isnan(seen)):
        return None
    if tolerant and math.isclose(value, seen, rel_tol=16 * torch.finfo(first.dtype).eps):
        return None
    return f"the loss is {value:.9g} when run again, it was {seen:.9g}"


def _nonfinite_gradients(optimizer: torch.optim.Optimizer) -> dict[int, torch.Tensor]:
    """Masks of the non-finite elements by parameter identity, for parameters that have any."""
    found = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is not None:
                mask = ~torch.isfinite(gradient.to_dense() if gradient.layout is not torch.strided else gradient)
                if bool(mask.any()):
                    found[id(parameter)] = mask
    return found


def _same_positions(real: dict[int, torch.Tensor], again: dict[int, torch.Tensor], exact: bool) -> str | None:
    if not again:
        return "all gradients are finite when it is run again"
    if exact:
        same = real.keys() == again.keys() and all(torch.equal(real[key], again[key]) for key in real)
    else:
        # clipping by a NaN norm spreads it, other backward calls add theirs: what is seen again must be among it
        same = all(key in real and bool((real[key] | ~mask).all()) for key, mask in again.items())
    return None if same else "other gradients are non-finite when it is run again"


def _batch_of(route: Route, incident: Incident) -> tuple[Any, int | None]:
    """The tensors that a route reads as data, and the number of samples."""
    drawn = [batch for _, batch in incident.draws]
    moment = route.moment
    size = next(
        (
            size
            for item in (*reversed(drawn), (moment.args, dict(moment.kwargs)), route.items)
            if (size := _leading(item))
        ),
        None,
    )
    named = {
        name: value
        for values in (*(frame.values or {} for frame in moment.frames), route.items)
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
        and not isinstance(value, torch.nn.Parameter)
        and value.dim() > 0
        and value.shape[0] == size
    }
    return {"drawn": drawn, "args": moment.args, "kwargs": dict(moment.kwargs), "names": named}, size


def _leading(batch: Any) -> int | None:
    for leaf in tree_leaves(batch):
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 0:
            return int(leaf.shape[0])
    return None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
