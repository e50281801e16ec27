"""From an incident to what is known of it: replay, save, write down."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace as changed
from types import FrameType
from typing import Any

import torch

from unstuck.instruments.guard import Incident
from unstuck.instruments.inventory import find_models, parameter_names
from unstuck.instruments.moments import Draw, Moment, Moments
from unstuck.measure.bad_samples import nonfinite_in
from unstuck.measure.rng import RandomState, capture, is_same
from unstuck.places import Frame, is_user_file
from unstuck.program.gradient_lines import gradient_changes
from unstuck.record.incident import IncidentRecord, SkippedStep, UnderflowRecord
from unstuck.record.origin import Origin
from unstuck.session.options import SessionOptions
from unstuck.trials.incident_folder import save_incident
from unstuck.trials.replay.replay import Program, Replay, replay, replay_in_float32, replay_unscaled
from unstuck.trials.replay.routes import lines_at, user_lines
from unstuck.trials.tracing import OpTrace
from unstuck.trials.update import explain_update
from unstuck.trials.variables import variables_of

__all__ = ["explain", "explain_skipped_step", "explain_zero_gradients"]


def explain(
    incident: Incident,
    moments: Moments,
    optimizers: list[torch.optim.Optimizer],
    frame: FrameType | None,
    run_backward: Callable[..., None],
    options: SessionOptions,
    trace: OpTrace | None,
    number: int,
    extra: dict[str, Any] | None = None,
    rebuild: dict[str, Any] | None = None,
    module: torch.nn.Module | None = None,
) -> IncidentRecord:
    """Everything that can be told of an incident.

    Args:
        incident: as the guard declared it.
        moments: of the present step.
        optimizers: all of the program.
        frame: innermost frame of the program at present.
        run_backward: the original ``torch.autograd.backward``.
        options: of the session; the incident is saved below its folder.
        trace: a live trace of the step, in a second run.
        number: of incidents before.
        extra: what a trainer knows of its position.
        rebuild: what another process needs to make the program's module again.
        module: the model, where the program's variables need not hold it.
    """
    forward = moments.forward
    models = find_models(frame, optimizers, [module, forward.module if forward is not None else None])
    drawn = _drawn(incident, moments)
    sample, key = (None, None) if drawn is None else nonfinite_in(drawn.batch)
    backward = incident.backward
    record = IncidentRecord(
        kind=incident.kind,
        step=incident.step,
        late=incident.late,
        batch=None if drawn is None else drawn.position,
        loss=None if backward is None or backward.values is None else backward.values[0],
        chain=incident.chain or user_lines(forward),
        draw_chain=user_lines(moments.draw),
        batch_sample=sample,
        batch_key=key,
        indices=None if drawn is None else drawn.indices,
        extra=extra or {},
    )
    start = None
    if incident.kind in ("parameter", "state"):
        chain = _with_settings(record.chain, module, incident.optimizer)
        record = changed(record, chain=chain, update=explain_update(incident.optimizer, parameter_names(models)))
    elif trace is not None:
        origin = _origin_in(trace, incident)
        record = changed(record, origin=origin, replayed=origin is not None)
    else:
        outcome = _replay(incident, models, optimizers, frame, run_backward)
        made_between = drawn is not None and key is None and not outcome.whole
        if outcome.origin is not None and outcome.origin.leaf == "batch" and made_between:
            # what the model got was bad, what the loader gave was not, and what is between was not run again
            outcome = Replay(None, True, ("the value was made before the first module call", *outcome.reasons))
        record = changed(
            record,
            origin=outcome.origin,
            replayed=outcome.accepted,
            reasons=outcome.reasons,
            precision=outcome.precision,
            reworked_at=_reworked_at(incident) if outcome.finite else (),
        )
        start = outcome.start
    return _saved(record, incident, moments, models, optimizers, options, f"incident-{number}", rebuild, start)


def explain_skipped_step(
    incident: Incident,
    scaler: Any,
    moments: Moments,
    optimizers: list[torch.optim.Optimizer],
    frame: FrameType | None,
    run_backward: Callable[..., None],
    options: SessionOptions,
    module: torch.nn.Module | None = None,
) -> SkippedStep | None:
    """What isn't finite in a step that a loss scaler has skipped, when its losses aren't scaled; None if nothing is.

    Args:
        incident: the step.
        scaler: with the scale of that step.
        moments: of the step.
        optimizers: all of the program.
        frame: innermost frame of the program at present.
        run_backward: the original ``torch.autograd.backward``.
        options: of the session; the step is saved below its folder.
        module: the model, where the program's variables need not hold it.
    """
    program = _program(moments, optimizers, frame, run_backward, module)
    outcome = replay_unscaled(incident, scaler, program)
    if outcome is None or outcome.origin is None:
        return None
    drawn = _drawn(incident, moments)
    sample, key = (None, None) if drawn is None else nonfinite_in(drawn.batch)
    record = IncidentRecord(
        kind=outcome.kind,
        step=incident.step,
        batch=None if drawn is None else drawn.position,
        loss=outcome.loss,
        chain=incident.chain or user_lines(moments.forward),
        origin=outcome.origin,
        replayed=True,
        draw_chain=user_lines(moments.draw),
        batch_sample=sample,
        batch_key=key,
        indices=None if drawn is None else drawn.indices,
        precision=outcome.precision,
    )
    models, start = program.models, outcome.start
    record = _saved(record, incident, moments, models, optimizers, options, "skipped-step", start=start)
    return SkippedStep(record, incident.scale)


def explain_zero_gradients(
    incident: Incident,
    number_format: str,
    moments: Moments,
    optimizers: list[torch.optim.Optimizer],
    frame: FrameType | None,
    run_backward: Callable[..., None],
    module: torch.nn.Module | None = None,
) -> UnderflowRecord | None:
    """How many gradients of a step half precision has flushed to zero; None if it couldn't be run again.

    Args:
        incident: the step, none of which needs to be non-finite.
        number_format: ``float16``.
        moments: of the step.
        optimizers: all of the program.
        frame: innermost frame of the program at present.
        run_backward: the original ``torch.autograd.backward``.
        module: the model, where the program's variables need not hold it.
    """
    program = _program(moments, optimizers, frame, run_backward, module)
    found = replay_in_float32(incident, program)
    if found is None or not found.nonzero:
        return None
    backward = () if incident.backward is None else lines_at(mark[1:] for mark in incident.backward.marks)
    names = parameter_names(program.models)
    largest = {names[key]: value for key, value in found.largest.items() if key in names}
    return UnderflowRecord(
        step=incident.step,
        chain=backward or incident.chain,
        format=number_format,
        looks=1,
        share=found.flushed / found.nonzero,
        nonzero=found.nonzero,
        largest=dict(sorted(largest.items(), key=lambda item: -item[1])[:_PARAMETERS]),
    )


_PARAMETERS = 6
"""Parameters whose largest gradients are told."""


def _replay(
    incident: Incident,
    models: dict[str, torch.nn.Module],
    optimizers: list[torch.optim.Optimizer],
    frame: FrameType | None,
    run_backward: Callable[..., None],
) -> Replay:
    if incident.late:
        reason = f"gradients were looked at every {incident.late + 1} steps, so the step that made it is over"
        return Replay(None, False, (reason,))
    return replay(incident, Program(models, optimizers, frame, run_backward, _is_compiled(models)))


def _program(
    moments: Moments,
    optimizers: list[torch.optim.Optimizer],
    frame: FrameType | None,
    run_backward: Callable[..., None],
    module: torch.nn.Module | None = None,
) -> Program:
    forward = moments.forward
    models = find_models(frame, optimizers, [module, forward.module if forward is not None else None])
    return Program(models, optimizers, frame, run_backward, _is_compiled(models))


def _is_compiled(models: dict[str, torch.nn.Module]) -> bool:
    return any(type(item).__name__ == "OptimizedModule" for model in models.values() for item in model.modules())


def _with_settings(
    chain: tuple[Frame, ...], module: torch.nn.Module | None, optimizer: torch.optim.Optimizer
) -> tuple[Frame, ...]:
    """Where a Trainer makes the updates, no line of the user's does; but one of them has set the optimiser up."""
    method = getattr(type(module), "configure_optimizers", None)
    if method is None or not getattr(module, "automatic_optimization", False):
        return chain
    try:
        code = inspect.unwrap(method).__code__
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError, AttributeError):
        return chain
    if not is_user_file(code.co_filename):
        return chain
    call = f"{type(optimizer).__name__}("
    line = next((number for number, text in enumerate(lines, first) if call in text), first)
    return (*chain, Frame(code.co_filename, line, getattr(code, "co_qualname", code.co_name)))


def _reworked_at(incident: Incident) -> tuple[Frame, ...]:
    """The line that changes gradients between backward and step, where backward alone leaves finite ones.

    Only if there is one such line that divides or the like, or a single one at all, in the files of the step.
    """
    if incident.kind != "gradient" or incident.calls != 1 or incident.changed or incident.partial:
        return ()
    found = [
        (file, item) for file in sorted({frame.file for frame in incident.chain}) for item in gradient_changes(file)
    ]
    chosen = [pair for pair in found if pair[1].divides] or found
    if len(chosen) != 1:
        return ()
    file, item = chosen[0]
    return (Frame(file, item.line, item.function),)


def _origin_in(trace: OpTrace, incident: Incident) -> Origin | None:
    if incident.kind == "loss" and incident.backward is not None:
        for tensor in incident.backward.losses:
            origin = trace.origin_of(tensor)
            if origin is not None:
                return origin
    held = [item for group in incident.optimizer.param_groups for item in group["params"] if item.grad is not None]
    return trace.origin_of_gradient(*held)


def _drawn(incident: Incident, moments: Moments) -> Draw | None:
    """The batch that the incident's backward call was made of, the step's last one where that isn't known."""
    if incident.backward is not None and incident.backward.drawn is not None:
        return incident.backward.drawn
    # an incident that is noticed in a later step has no batches: those at hand are of that one
    return moments.draws[-1] if incident.draws and moments.draws else None


def _saved(
    record: IncidentRecord,
    incident: Incident,
    moments: Moments,
    models: dict[str, torch.nn.Module],
    optimizers: list[torch.optim.Optimizer],
    options: SessionOptions,
    name: str,
    rebuild: dict[str, Any] | None = None,
    start: tuple[RandomState, str] | None = None,
) -> IncidentRecord:
    if options.out is None:
        return record
    folder = options.out / name
    forward = moments.forward
    batches: dict[str, Any] = {f"draw {index}": batch for index, batch in incident.draws}
    if forward is not None:
        batches["arguments"] = [list(forward.args), dict(forward.kwargs)]
    own = [moment for moment, _ in incident.backward.moments] if incident.backward is not None else []
    known = (*own, *(item for item in (forward, moments.draw, moments.step) if item is not None))
    starts = [start] if start else [(item.random_state, item.kind) for item in known if _is_certain(item)]
    state, at = starts[0] if starts else (None, None)
    try:
        variables = variables_of(forward)
        save_incident(folder, record, models, optimizers, batches, state, options.script, rebuild, at, variables)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        return changed(record, reasons=(*record.reasons, f"the incident could not be saved: {error}"))
    return changed(record, folder=str(folder))


def _is_certain(moment: Moment) -> bool:
    """Whether the random states at a moment are known."""
    state = moment.random_state
    return state is not None and (not state.assumed or is_same(state, capture()))
