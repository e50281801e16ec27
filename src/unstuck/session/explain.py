"""From an incident to what is known of it: replay, save, write down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from types import FrameType
from typing import Any

import torch
from torch.utils._pytree import tree_flatten_with_path

from unstuck.instruments.guard import Incident
from unstuck.instruments.inventory import find_models, parameter_names
from unstuck.instruments.moments import Moments
from unstuck.measure.finiteness import nonfinite_counts
from unstuck.record.incident import IncidentRecord
from unstuck.record.origin import Origin
from unstuck.session.options import SessionOptions
from unstuck.trials.incident_folder import save_incident
from unstuck.trials.replay.replay import Replay, replay
from unstuck.trials.replay.routes import user_lines
from unstuck.trials.tracing import OpTrace
from unstuck.trials.update import explain_update

__all__ = ["explain"]


def explain(
    incident: Incident,
    moments: Moments,
    optimizers: list[torch.optim.Optimizer],
    frame: FrameType | None,
    run_backward: Callable[..., None],
    options: SessionOptions,
    trace: OpTrace | None,
    number: int,
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
    """
    forward = moments.forward
    models = find_models(frame, optimizers, [forward.module if forward is not None else None])
    sample, key = _nonfinite_in(incident.draws[-1][1]) if incident.draws else (None, None)
    backward = incident.backward
    record = IncidentRecord(
        kind=incident.kind,
        step=incident.step,
        late=incident.late,
        batch=_batch_index(incident),
        loss=None if backward is None or backward.values is None else backward.values[0],
        chain=incident.chain or user_lines(forward),
        draw_chain=user_lines(moments.draw),
        batch_sample=sample,
        batch_key=key,
    )
    if incident.kind in ("parameter", "state"):
        record = changed(record, update=explain_update(incident.optimizer, parameter_names(models)))
    elif trace is not None:
        origin = _origin_in(trace, incident)
        record = changed(record, origin=origin, replayed=origin is not None)
    else:
        outcome = _replay(incident, models, optimizers, frame, run_backward)
        made_between = incident.draws and key is None and not outcome.whole
        if outcome.origin is not None and outcome.origin.leaf == "batch" and made_between:
            # what the model got was bad, what the loader gave was not, and what is between was not run again
            outcome = Replay(None, True, ("the value was made before the first module call", *outcome.reasons))
        record = changed(record, origin=outcome.origin, replayed=outcome.accepted, reasons=outcome.reasons)
    return _saved(record, incident, moments, models, optimizers, options, number)


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
    tolerant = any(type(item).__name__ == "OptimizedModule" for model in models.values() for item in model.modules())
    return replay(incident, models, optimizers, frame, run_backward, tolerant)


def _origin_in(trace: OpTrace, incident: Incident) -> Origin | None:
    if incident.kind == "loss" and incident.backward is not None:
        for tensor in incident.backward.losses:
            origin = trace.origin_of(tensor)
            if origin is not None:
                return origin
    held = [item for group in incident.optimizer.param_groups for item in group["params"] if item.grad is not None]
    return trace.origin_of_gradient(*held)


def _batch_index(incident: Incident) -> int | None:
    return incident.draws[-1][0] if incident.draws else None


def _nonfinite_in(batch: Any) -> tuple[int | None, str | None]:
    """(first sample, key path) of NaN or infinity in a batch."""
    leaves, _ = tree_flatten_with_path(batch)
    tensors = [(path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
    size = next((leaf.shape[0] for _, leaf in tensors if leaf.dim()), None)
    for path, leaf in tensors:
        if leaf.is_floating_point() and any(nonfinite_counts(leaf)):
            bad = (~torch.isfinite(leaf)).flatten(1).any(1) if leaf.dim() > 1 else ~torch.isfinite(leaf)
            sample = int(bad.reshape(-1).nonzero()[0]) if leaf.dim() and leaf.shape[0] == size else None
            return sample, "".join(str(item) for item in path)
    return None, None


def _saved(
    record: IncidentRecord,
    incident: Incident,
    moments: Moments,
    models: dict[str, torch.nn.Module],
    optimizers: list[torch.optim.Optimizer],
    options: SessionOptions,
    number: int,
) -> IncidentRecord:
    if options.out is None:
        return record
    folder = options.out / f"incident-{number}"
    forward = moments.forward
    batches: dict[str, Any] = {f"draw {index}": batch for index, batch in incident.draws}
    if forward is not None:
        batches["arguments"] = [list(forward.args), dict(forward.kwargs)]
    states = [item.random_state for item in (forward, moments.draw, moments.step) if item is not None]
    start = next((item for item in states if item is not None), None)
    try:
        save_incident(folder, record, models, optimizers, batches, start, options.script)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        return changed(record, reasons=(*record.reasons, f"the incident could not be saved: {error}"))
    return changed(record, folder=str(folder))
