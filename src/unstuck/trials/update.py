"""Explains a parameter that an update has made non-finite, from what is left: gradients, hyper-parameters, state.

The values before the update are gone, so the update is repeated on copies whose non-finite elements are set to zero: an
eps that vanishes in half precision, a square that overflows or a decay that multiplies by infinity does it again.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from unstuck.measure.finiteness import nonfinite_counts
from unstuck.record.incident import UpdateRecord
from unstuck.record.origin import Origin
from unstuck.trials.tracing import OpTrace

__all__ = ["explain_update"]


def explain_update(
    optimizer: torch.optim.Optimizer,
    names: Mapping[int, str],
    ignored: set[int] = frozenset(),  # type: ignore[assignment]
) -> UpdateRecord:
    """What made a parameter or the state of ``optimizer`` non-finite; changes nothing.

    Args:
        optimizer: right after the update.
        names: dotted paths by parameter identity.
        ignored: identities of parameters that were non-finite before training.
    """
    bad = [
        (group, parameter)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if id(parameter) not in ignored and any(nonfinite_counts(parameter))
    ]
    states = _nonfinite_state(optimizer)
    holders = [parameter for _, parameter in bad] or [parameter for parameter, _ in states]
    first = holders[0] if holders else None
    group = next((g for g in optimizer.param_groups if any(item is first for item in g["params"])), {})
    origin = None if first is None else _repeat(optimizer, first)
    gradient = None if first is None else first.grad
    limits = None
    if gradient is not None and gradient.numel():
        size = gradient.detach().abs().float()
        limits = (float(size.min()), float(size.max()))
    return UpdateRecord(
        parameter=None if first is None else names.get(id(first)),
        dtype="" if first is None else str(first.dtype).removeprefix("torch."),
        count=0 if first is None else sum(nonfinite_counts(first)),
        total=0 if first is None else first.numel(),
        parameters=len(bad),
        optimizer=type(optimizer).__name__,
        settings={key: value for key, value in group.items() if key != "params" and _plain(value)},
        op=None if origin is None else origin.op,
        inputs=() if origin is None else tuple(asdict(item) for item in origin.inputs),
        state=tuple(sorted({name for _, name in states})),
        gradient_limits=limits,
        chain=() if origin is None else origin.chain,
    )


def _plain(value: Any) -> bool:
    return isinstance(value, (int, float, bool, str)) or (
        isinstance(value, tuple) and all(isinstance(item, (int, float)) for item in value)
    )


def _nonfinite_state(optimizer: torch.optim.Optimizer) -> list[tuple[torch.Tensor, str]]:
    return [
        (parameter, name)
        for parameter, entry in optimizer.state.items()
        if isinstance(entry, dict)
        for name, value in entry.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point() and any(nonfinite_counts(value))
    ]


def _repeat(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> Origin | None:
    """The operation that makes a non-finite value when the update is done again on copies."""
    if parameter.grad is None:
        return None
    twin = parameter.detach().clone().requires_grad_(True)
    state = {
        name: value.detach().clone() if isinstance(value, torch.Tensor) else copy.copy(value)
        for name, value in optimizer.state.get(parameter, {}).items()
    }
    with torch.no_grad():
        for value in (twin, *state.values()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value.copy_(torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0))
    twin.grad = parameter.grad.detach().clone()
    group = next(g for g in optimizer.param_groups if any(item is parameter for item in g["params"]))
    # a shallow copy of the optimiser: its own class's step, on one parameter and no foreach or fused kernel
    again = copy.copy(optimizer)
    again.__dict__ = {**optimizer.__dict__}
    again.__dict__.pop("step", None)
    again.param_groups = [{**group, "params": [twin], "foreach": False, "fused": False}]
    again.state = type(optimizer.state)(dict)
    if state:
        again.state[twin] = state
    trace = OpTrace(stop=sys._getframe())
    try:
        with trace:
            getattr(type(again).step, "__wrapped__", type(again).step)(again)
        origin = trace.origin_of(twin)
        if origin is None:
            for value in again.state[twin].values():
                if isinstance(value, torch.Tensor) and origin is None:
                    origin = trace.origin_of(value)
    except Exception:  # noqa: BLE001 - an optimiser that can't be copied leaves the op unknown
        return None
    return None if origin is None or origin.op is None else origin
