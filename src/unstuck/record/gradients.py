"""What optimisers took and did, how gradients were clipped, and what loss scalers did: plain data, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from unstuck.places import Frame
from unstuck.record.series import Series

__all__ = ["APPLIED", "FIRST_PARAMETER", "TOTAL", "ClipRecord", "OptimizerRecord", "ScalerRecord", "decoded", "encoded"]

TOTAL, APPLIED, FIRST_PARAMETER = 0, 1, 2
"""Columns of :attr:`OptimizerRecord.norms`: all gradients as one vector before clipping; the same after it; the first
parameter's own, before clipping."""


@dataclass
class OptimizerRecord:
    """One optimiser and the gradients that it took.

    Attributes:
        kind: class name.
        settings: plain hyper-parameters of the first group when it was first seen.
        made_at: the user's lines that constructed it.
        step_at: the user's lines that called ``step``.
        variable: name that holds the only model, None for several.
        names: dotted paths of its parameters, in its order.
        sizes: their numbers of elements.
        dims: their numbers of dimensions.
        steps: steps that it took.
        norms: 2-norms of unscaled gradients by step; for the columns see the constants of this module.
        rates: learning rate (the largest of the groups) at the steps of ``norms``.
        updates: change by one step over weight, both as 2-norms of a sample of elements: overall, then per parameter.
        weights: 2-norm of the weights, estimated from the sample: overall, then per parameter.
        moved: per parameter the change from the first sample to the last one over the first one, as 2-norms of a
            sample of elements; empty if unknown.
    """

    kind: str
    settings: dict[str, Any]
    made_at: tuple[Frame, ...]
    step_at: tuple[Frame, ...]
    variable: str | None
    names: list[str]
    sizes: list[int]
    dims: list[int]
    norms: Series
    rates: Series
    updates: Series
    weights: Series
    steps: int = 0
    moved: list[float] = field(default_factory=list)

    def cut(self, step: int) -> OptimizerRecord:
        """As it was before ``step``; what is known of the whole run only is left out."""
        tables = {name: getattr(self, name).cut(step) for name in ("norms", "rates", "updates", "weights")}
        return replace(self, **tables, steps=min(self.steps, step), moved=[])


@dataclass
class ClipRecord:
    """One line that clips gradients.

    Attributes:
        at: the user's lines down to the call.
        kind: ``norm`` or ``value``.
        limit: the last limit that was given.
        optimizers: indices of the optimisers that hold clipped parameters.
        calls: times it was called.
        fresh: calls after a backward pass since the optimiser's last step: those that can act.
        stale: calls between a step and the next backward pass: they act on gradients that were taken, or on none.
        cleared: of those, calls after gradients were cleared.
        empty: calls without any parameter.
        bare: calls in which no parameter had a gradient.
        strange: calls with parameters that no optimiser holds.
        scaled: calls on gradients that a loss scaler had still scaled; the numbers below are of those.
        scaled_acted: of those, how often the limit was exceeded.
        scaled_step: step of the first one.
        scale: scale at that one.
        scaled_low: smallest limit over scale, i.e. the limit that really held.
        scaled_high: the largest.
        norms: norm before clipping and limit, by step (kind ``norm``); or before, after (kind ``value``), as measured.
    """

    at: tuple[Frame, ...]
    kind: str
    limit: float
    optimizers: list[int] = field(default_factory=list)
    calls: int = 0
    fresh: int = 0
    stale: int = 0
    cleared: int = 0
    empty: int = 0
    bare: int = 0
    strange: int = 0
    scaled: int = 0
    scaled_acted: int = 0
    scaled_step: int | None = None
    scale: float | None = None
    scaled_low: float | None = None
    scaled_high: float | None = None
    norms: Series = field(default_factory=lambda: Series(2))

    def cut(self, step: int) -> ClipRecord:
        """With the norms as they were before ``step``; counts stay those of the whole run."""
        return replace(self, norms=self.norms.cut(step))


@dataclass
class ScalerRecord:
    """One loss scaler.

    Attributes:
        scaled_at: the user's lines that scaled the loss.
        step_at: the user's lines that called the scaler's ``step``; for steps without it, the optimiser's.
        attempts: calls of its ``step``.
        skipped: how many it skipped.
        longest: longest run of skipped steps.
        longest_step: step before which that run began.
        longest_scale: scale at its end.
        running: skips in a row at the end.
        first_scale: scale at the first attempt.
        scale: at the last one.
        bypassed: optimiser steps that took gradients while they were scaled.
        bypassed_step: the first of them.
        bypassed_at: the user's lines of such a step.
        bypassed_kind: class of that optimiser.
        scales: scale by attempt.
        made_anew: how many scalers have taken its place at the same line.
        by_hand: [norm that backward left, norm at the scaler's step, scale] of the first steps whose gradients were
            still scaled, and that no call of torch's had clipped.
    """

    scaled_at: tuple[Frame, ...] = ()
    step_at: tuple[Frame, ...] = ()
    attempts: int = 0
    skipped: int = 0
    longest: int = 0
    longest_step: int = 0
    longest_scale: float = 0.0
    running: int = 0
    first_scale: float = 0.0
    scale: float = 0.0
    bypassed: int = 0
    bypassed_step: int | None = None
    bypassed_at: tuple[Frame, ...] = ()
    bypassed_kind: str | None = None
    scales: Series = field(default_factory=lambda: Series(1))
    made_anew: int = 0
    by_hand: list[list[float]] = field(default_factory=list)


_KINDS: Mapping[str, type[Any]] = {"optimizer": OptimizerRecord, "clip": ClipRecord, "scaler": ScalerRecord}


def encoded(record: OptimizerRecord | ClipRecord | ScalerRecord) -> dict[str, Any]:
    """Strict-JSON form but for floats that aren't finite."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(record, cls))
    found: dict[str, Any] = {"kind_of_record": kind}
    for item in fields(record):
        value = getattr(record, item.name)
        if isinstance(value, Series):
            found[item.name] = value.encode()
        elif isinstance(value, tuple):
            found[item.name] = [asdict(frame) for frame in value]
        else:
            found[item.name] = value
    return found


def decoded(event: dict[str, Any]) -> OptimizerRecord | ClipRecord | ScalerRecord:
    """The record that :func:`encoded` has written."""
    values = dict(event)
    cls = _KINDS[values.pop("kind_of_record")]
    for name, value in values.items():
        if isinstance(value, dict) and "columns" in value and "starts" in value:
            values[name] = Series.decode(value)
        elif name.endswith("_at") or name == "at":
            values[name] = tuple(Frame(**frame) for frame in value)
        elif isinstance(value, str) and value in ("nan", "inf", "-inf"):
            values[name] = float(value)
        elif name == "moved":
            values[name] = [float(item) for item in value]
    return cls(**values)  # type: ignore[no-any-return]
