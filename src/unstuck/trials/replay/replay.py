"""Running a step again under the tracer, and accepting the result only if it is the same step.

The replay counts when the loss is the one that was seen, bit for bit (to the dtype's tolerance where the run was
compiled), and the non-finite gradients are the same ones.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from unstuck.instruments.guard import Backward, Incident
from unstuck.measure import rng
from unstuck.record.incident import PrecisionRecord
from unstuck.record.origin import Origin
from unstuck.trials.replay.attempt import SHARES, Attempt, run_route
from unstuck.trials.replay.float32 import in_float32
from unstuck.trials.replay.heap import HeapTooLargeError
from unstuck.trials.replay.reports import unheard_by_trainers
from unstuck.trials.replay.routes import Route, routes_to, with_callers
from unstuck.trials.replay.sandbox import CannotReplayError, sandbox
from unstuck.trials.tracing import OpTrace

__all__ = ["Program", "Replay", "WideComparison", "replay", "replay_in_float32", "replay_unscaled"]


@dataclass(frozen=True)
class Replay:
    """What came out.

    Attributes:
        origin: where the value came from; None if no route was accepted or the walk back ended nowhere.
        accepted: a route reproduced the step.
        reasons: why routes were not accepted, one sentence each.
        route: the accepted route's name.
        whole: it began before anything of the step was computed, so what came with its start came with the data.
        kind: ``loss`` or ``gradient``: what isn't finite.
        loss: of the replay.
        precision: what the same step gives in float32, if anything of it was computed in half precision.
        finite: a route gave the very loss that was seen, and gradients that are all finite.
        start: random states at the start of the accepted route, and the moment of which they are.
    """

    origin: Origin | None
    accepted: bool
    reasons: tuple[str, ...] = ()
    route: str | None = None
    whole: bool = False
    kind: str = ""
    loss: float | None = None
    precision: PrecisionRecord | None = None
    finite: bool = False
    start: tuple[rng.RandomState, str] | None = None


@dataclass(frozen=True)
class Program:
    """What a replay needs of the program.

    Attributes:
        models: by the variable that holds each.
        optimizers: all of them.
        frame: innermost frame at present.
        run_backward: the original ``torch.autograd.backward``.
        tolerant: the run was compiled, so values agree only to the dtype's tolerance.
    """

    models: dict[str, torch.nn.Module]
    optimizers: list[torch.optim.Optimizer]
    frame: FrameType | None
    run_backward: Callable[..., None]
    tolerant: bool = False


def replay(incident: Incident, program: Program) -> Replay:
    """Run the step of an incident again and trace its non-finite value to the op that made it.

    Args:
        incident: of kind ``loss`` or ``gradient``.
        program: of which it is.
    """
    wanted = incident.backward
    if wanted is None:
        return Replay(None, False, ("no backward call was seen that made these gradients",))
    reasons: list[str] = []
    fallback: Replay | None = None
    for route in _routes(incident, wanted, program, reasons):
        found = _try(route, incident, wanted, program)
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
        return Replay(
            None, True, ("the value was made before the replay's start", *reasons), fallback.route, kind=fallback.kind
        )
    if fallback is not None:
        return fallback
    finite = any(reason.endswith(_ALL_FINITE) for reason in reasons)
    return Replay(None, False, tuple(reasons) or ("the step's first module call was not seen",), finite=finite)


def replay_unscaled(incident: Incident, scaler: Any, program: Program) -> Replay | None:
    """Run a step that a loss scaler has skipped again with scale 1.

    Args:
        incident: the step, as the scaler saw it.
        scaler: with the scale of that step.
        program: of which it is.

    Returns:
        What isn't finite at scale 1 either; None if the scale alone was too large, or the step couldn't be reproduced.
    """
    wanted = incident.backward
    if wanted is None:
        return None
    for route in _routes(incident, wanted, program, []):
        step = _Step(route, incident, wanted, program)
        # the scaled loss must be the one that was seen; then the same pass without the scale says something of it
        own = _run_again(step, compare=True)
        if own is None:
            continue
        step = replace(step, scaler=scaler, taken=own.taken)
        quick = _run_again(step)
        if quick is None:
            continue
        if quick.finite:
            return None
        traced = _run_again(step, traced=True)
        if traced is None or traced.finite or not _same_number(traced.loss, quick.loss):
            continue
        if traced.origin is not None and traced.origin.leaf == "constant":
            continue
        return _outcome(traced, step, "gradient" if traced.loss_finite else "loss")
    return None


def replay_in_float32(incident: Incident, program: Program) -> WideComparison | None:
    """Run the present step again in float32, and count the gradients that half precision has flushed to zero.

    Args:
        incident: the step; nothing of it needs to be non-finite.
        program: of which it is.

    Returns:
        None if the step couldn't be reproduced, or gradients aren't finite in float32.
    """
    wanted = incident.backward
    if wanted is None:
        return None
    zeros = _zero_gradients(incident.optimizer)
    for route in _routes(incident, wanted, program, []):
        step = _Step(route, incident, wanted, program)
        own = _run_again(step, compare=True)
        if own is None:
            continue
        wide = _run_again(replace(step, taken=own.taken), wide=True)
        if wide is not None and wide.finite:
            return _compared(zeros, wide.gradients)
    return None


@dataclass(frozen=True)
class WideComparison:
    """Gradients of one step in half precision and in float32.

    Attributes:
        nonzero: elements that aren't zero in float32.
        flushed: of those, elements that are zero in half precision.
        largest: largest gradient by parameter identity, in float32.
    """

    nonzero: int
    flushed: int
    largest: dict[int, float]


@dataclass
class _Pass:
    """One run of a route: its loss, whether loss and gradients are finite, and what a trace of it says.

    ``end``: random states at its end, where those at its start were only assumed.
    """

    loss: float | None
    loss_finite: bool
    finite: bool
    taken: tuple[int, int, float] | None
    origin: Origin | None = None
    formats: tuple[str, ...] = ()
    largest: dict[str, float] = field(default_factory=dict)
    gradients: dict[int, torch.Tensor] = field(default_factory=dict)
    end: rng.RandomState | None = None


@dataclass(frozen=True)
class _Step:
    """What is run again, and how.

    Attributes:
        route: from where.
        incident: the step.
        wanted: the backward call at which it ends.
        program: of which it is.
        scaler: a loss scaler whose scale is to be 1; None leaves it as it is.
        taken: where an earlier pass has found the loss among returned values.
    """

    route: Route
    incident: Incident
    wanted: Backward
    program: Program
    scaler: Any = None
    taken: tuple[int, int, float] | None = None


class _RefusedError(Exception):
    """A pass isn't the step that was seen; the message says why."""


def _routes(incident: Incident, wanted: Backward, program: Program, reasons: list[str]) -> Iterator[Route]:
    """The routes; one that can't be made from the program's source ends them, and is a reason."""
    try:
        for route in routes_to(wanted, program.frame):
            sure = _with_sure_state(_Step(route, incident, wanted, program))
            if sure is None:
                reasons.append(f"{route.name}: {_UNKNOWN_STATE}")
            else:
                yield sure
    except Exception as error:  # noqa: BLE001 - reading somebody's program must not end the watching of it
        reasons.append(f"the program can't be continued from there ({type(error).__name__}: {_one_line(error)})")


_UNKNOWN_STATE = "the program has only just begun to draw random numbers, so those of this step aren't known"

_GUESSES, _GUESSING_SECONDS = 32, 10.0
"""Passes, and the time for them, in which the random states at the start of a step are looked for."""


def _with_sure_state(step: _Step) -> Route | None:
    """The route with the random states of its start, where these were only assumed; None if they can't be found.

    What isn't known is how many steps have drawn numbers since the states were taken. If all drew as many, the pass is
    to be run one time more, each from where the last one ended, until it ends where the program is now.
    """
    route, now = step.route, rng.capture()
    if not route.random_state.assumed or rng.is_same(route.random_state, now):
        return route
    begin = time.perf_counter()
    for _ in range(_GUESSES):
        made = _run_again(replace(step, route=route))
        if made is None or made.end is None or time.perf_counter() - begin > _GUESSING_SECONDS:
            return None
        if rng.is_same(made.end, now) or rng.is_same(made.end, route.random_state):
            return route  # or it draws nothing at all
        route = replace(route, random_state=made.end._replace(assumed=True))
    return None


def _try(route: Route, incident: Incident, wanted: Backward, program: Program) -> Replay:
    reasons: list[str] = []
    step = _Step(route, incident, wanted, program)
    made = _run_again(step, compare=True, traced=True, reasons=reasons)
    if made is None:
        return Replay(None, False, tuple(reasons))
    return _outcome(made, replace(step, taken=made.taken), incident.kind)


def _outcome(made: _Pass, step: _Step, kind: str) -> Replay:
    """What an accepted pass tells, with the same step in float32 beside it where half precision took part."""
    precision = None
    if made.formats and made.origin is not None and made.origin.leaf is None:
        wide = _run_again(step, wide=True, traced=True)
        if wide is not None:
            precision = PrecisionRecord(made.formats, wide.finite, wide.loss, wide.largest)
    route = step.route
    return Replay(
        made.origin,
        True,
        route=route.name,
        whole=route.moment.kind != "forward",
        kind=kind,
        loss=made.loss,
        precision=precision,
        start=(route.random_state, route.moment.kind),
    )


def _run_again(
    step: _Step,
    *,
    compare: bool = False,
    traced: bool = False,
    wide: bool = False,
    reasons: list[str] | None = None,
) -> _Pass | None:
    """Run a route once, without a trace left behind.

    Args:
        step: what to run.
        compare: the pass counts only if loss and non-finite gradients are those that were seen.
        traced: name the operation.
        wide: in float32.
        reasons: takes one sentence where the pass doesn't count.

    Returns:
        The pass, None if it doesn't count.
    """
    route, incident, wanted, program = step.route, step.incident, step.wanted, step.program
    # of a loss that wasn't finite the gradients say nothing more, unless it may be finite this time
    needs_gradients = incident.kind == "gradient" or not compare
    real = _nonfinite_gradients(incident.optimizer) if compare and needs_gradients else {}
    attempt = Attempt(
        route,
        wanted,
        program.run_backward,
        (lambda loss: _same_loss(loss, wanted, program.tolerant)) if compare else (lambda loss: None),
        needs_gradients,
        factors=_factors(incident.scale) if compare else (),
        taken=step.taken,
    )
    if attempt.taken is not None and step.scaler is not None:
        attempt.taken = (*attempt.taken[:2], attempt.taken[2] / incident.scale)
    batch, size = _batch_of(route, incident)
    trace = OpTrace(models=program.models, batch=batch, batch_size=size, stop=sys._getframe()) if traced else None
    roots = route.roots if step.scaler is None else (*route.roots, step.scaler)
    try:
        with sandbox(roots, program.optimizers, route.random_state, attempt.backward) as heap:
            with contextlib.ExitStack() as around:
                around.enter_context(torch.autograd.set_detect_anomaly(False))
                around.enter_context(unheard_by_trainers(heap.kinds))
                if wide:
                    parameters = [item for optimizer in program.optimizers for item in _parameters(optimizer)]
                    around.enter_context(in_float32([*heap.tensors.values(), *parameters]))
                if step.scaler is not None:
                    step.scaler._scale.fill_(1.0)
                for device, dtype in route.autocast if not wide else ():
                    around.enter_context(torch.autocast(device, dtype=dtype))
                if trace is not None:
                    around.enter_context(trace)
                known = {id(generator) for generator, _ in route.random_state.others}
                others = [item for key, item in heap.generators.items() if key not in known and not rng.is_global(item)]
                before = [rng.fingerprint(item) for item in others]
                run_route(route, attempt)
                if before != [rng.fingerprint(item) for item in others]:
                    raise _RefusedError("it draws from a random generator whose state at the start isn't known")
                end = rng.capture() if route.random_state.assumed else None
                if attempt.refusal is not None:
                    raise _RefusedError(attempt.refusal)
                made = _seen(attempt, incident, real if compare and not incident.partial else None)
                made.end = end
            if trace is not None:
                made.formats, made.largest = trace.half_formats, trace.largest
                if not wide:
                    made.origin = _origin(made, trace, attempt, incident)
            return made
    except (CannotReplayError, HeapTooLargeError, _RefusedError) as error:
        reason = str(error)
    except SystemExit:
        reason = "the step ends the program"
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything when it runs again
        reason = f"run again, the step raised {type(error).__name__}: {_one_line(error)}"
    if reasons is not None:
        reasons.append(reason)
    return None


def _seen(attempt: Attempt, incident: Incident, real: dict[int, torch.Tensor] | None) -> _Pass:
    """What a pass has left: its loss and gradients, compared with the ``real`` ones where they are given.

    Raises:
        _RefusedError: other gradients are non-finite.
    """
    losses = [item.detach() for item in attempt.loss]
    loss_finite = all(bool(torch.isfinite(item).all()) for item in losses)
    loss = float(losses[0].item()) if losses and losses[0].numel() == 1 else None
    again = _nonfinite_gradients(incident.optimizer) if attempt.needs_gradients else {}
    if real is not None and incident.kind == "gradient":
        refusal = _same_positions(real, again, exact=not incident.changed and incident.calls == 1)
        if refusal is not None:
            raise _RefusedError(refusal)
    gradients = {
        id(item): item.grad.detach().clone()
        for item in _parameters(incident.optimizer)
        if attempt.needs_gradients and item.grad is not None
    }
    return _Pass(loss, loss_finite, loss_finite and not again, attempt.taken, gradients=gradients)


def _origin(made: _Pass, trace: OpTrace, attempt: Attempt, incident: Incident) -> Origin | None:
    """The operation that made the first value of a pass that isn't finite."""
    if not made.loss_finite or not attempt.needs_gradients:
        origin = next(filter(None, map(trace.origin_of, attempt.loss)), None)
    else:
        holders = _nonfinite_gradients(incident.optimizer)
        origin = trace.origin_of_gradient(*(item for item in _parameters(incident.optimizer) if id(item) in holders))
    return None if origin is None else replace(origin, chain=with_callers(origin.chain, attempt.route.moment))


def _factors(scale: float) -> tuple[float, ...]:
    """By what a trainer may have multiplied a loss that the user's code returned: loss scaling, accumulation."""
    own = (1.0, *SHARES)
    return own if scale == 1.0 else (scale, *(scale * share for share in SHARES), *own)


def _compared(zeros: dict[int, torch.Tensor], wide: dict[int, torch.Tensor]) -> WideComparison:
    nonzero = flushed = 0
    largest = {}
    for identity, gradient in wide.items():
        if identity not in zeros or not gradient.numel():
            continue
        present = gradient != 0
        nonzero += int(present.sum())
        flushed += int((present & zeros[identity]).sum())
        largest[identity] = float(gradient.abs().max())
    return WideComparison(nonzero, flushed, largest)


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


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _nonfinite_gradients(optimizer: torch.optim.Optimizer) -> dict[int, torch.Tensor]:
    """Masks of the non-finite elements by parameter identity, for parameters that have any."""
    found = {}
    for parameter in _parameters(optimizer):
        gradient = parameter.grad
        if gradient is not None:
            mask = ~torch.isfinite(gradient.to_dense() if gradient.layout is not torch.strided else gradient)
            if bool(mask.any()):
                found[id(parameter)] = mask
    return found


def _zero_gradients(optimizer: torch.optim.Optimizer) -> dict[int, torch.Tensor]:
    """Masks of the elements that are zero, by parameter identity."""
    return {
        id(item): item.grad == 0
        for item in _parameters(optimizer)
        if item.grad is not None and item.grad.layout is torch.strided
    }


def _same_number(value: float | None, other: float | None) -> bool:
    if value is None or other is None:
        return value is other
    return value == other or (math.isnan(value) and math.isnan(other))


_ALL_FINITE = "all gradients are finite when it is run again"


def _same_positions(real: dict[int, torch.Tensor], again: dict[int, torch.Tensor], exact: bool) -> str | None:
    if not again:
        return _ALL_FINITE
    if exact:
        same = real.keys() == again.keys() and all(torch.equal(real[key], again[key]) for key in real)
    else:
        # clipping by a NaN norm spreads it, other backward calls add theirs: what is seen again must be among it
        same = all(key in real and bool((real[key] | ~mask).all()) for key, mask in again.items())
    return None if same else "other gradients are non-finite when it is run again"


def _batch_of(route: Route, incident: Incident) -> tuple[Any, int | None]:
    """The tensors that a route reads as data, and the number of samples."""
    drawn = [batch for _, batch in incident.draws]
    if incident.backward is not None and incident.backward.drawn is not None:
        drawn.append(incident.backward.drawn.batch)  # not the step's last one where gradients are accumulated
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
