"""An incident as plain data: a non-finite value that a step was about to take, or has made, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unstuck.places import Frame
from unstuck.record.origin import Origin

__all__ = ["IncidentRecord", "PrecisionRecord", "SkippedStep", "UnderflowRecord", "UpdateRecord"]


@dataclass(frozen=True)
class UpdateRecord:
    """What explains a parameter that an update made non-finite.

    Attributes:
        parameter: dotted path of the first such parameter.
        dtype: its number format.
        count: its non-finite elements; ``total``: all its elements.
        parameters: number of parameters concerned.
        optimizer: class name.
        settings: the group's plain hyper-parameters (rate, betas, eps, ...).
        op: operation of the update that made it, from a repetition on copies; None if the repetition stayed finite.
        inputs: statistics of that operation's inputs, as dictionaries.
        state: names of optimiser state that is non-finite.
        gradient_limits: smallest and largest absolute value of the parameter's gradient, None without one.
        chain: the lines of that operation in an optimiser of the user's own, from its ``step`` down; empty for others.
    """

    parameter: str | None
    dtype: str
    count: int
    total: int
    parameters: int
    optimizer: str
    settings: dict[str, Any]
    op: str | None = None
    inputs: tuple[Any, ...] = ()
    state: tuple[str, ...] = ()
    gradient_limits: tuple[float, float] | None = None
    chain: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class PrecisionRecord:
    """What a step that was computed in half precision gives in float32.

    Attributes:
        formats: of half precision that took part: ``float16``, ``bfloat16``.
        finite: loss and gradients are finite in float32.
        loss: in float32.
        largest: largest absolute value of any result of each layer in float32, by module path; the largest of them.
    """

    formats: tuple[str, ...]
    finite: bool
    loss: float | None = None
    largest: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class IncidentRecord:
    """One incident.

    Attributes:
        kind: ``loss``, ``gradient``, ``parameter`` or ``state``.
        step: optimiser steps complete before the one concerned; None if it can't be told.
        late: at most so many steps passed before it was noticed.
        batch: index of the batch within the epoch.
        loss: the loss of the backward call concerned.
        chain: the user's lines at the step or backward call.
        origin: where the value came from, if a replay could tell.
        replayed: whether a replay reproduced the step.
        reasons: why not, one sentence each.
        update: for ``parameter`` and ``state``.
        draw_chain: the user's lines that drew the batch.
        batch_sample: first sample of the drawn batch that holds NaN or infinity.
        batch_key: where in the batch.
        indices: the dataset's indices of the batch's samples, where its loader has told them.
        folder: where the incident was saved.
        precision: the same step in float32, where anything of it was computed in half precision.
        reworked_at: the line that made gradients non-finite between backward, which left finite ones, and the step.
        extra: what a trainer knows of its position.
    """

    kind: str
    step: int | None
    late: int = 0
    batch: int | None = None
    loss: float | None = None
    chain: tuple[Frame, ...] = ()
    origin: Origin | None = None
    replayed: bool = False
    reasons: tuple[str, ...] = ()
    update: UpdateRecord | None = None
    draw_chain: tuple[Frame, ...] = ()
    batch_sample: int | None = None
    batch_key: str | None = None
    indices: list[int] | None = None
    folder: str | None = None
    precision: PrecisionRecord | None = None
    reworked_at: tuple[Frame, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SkippedStep:
    """A step that a loss scaler has skipped, and that isn't finite without its scale either.

    Attributes:
        incident: the step run again with scale 1.
        scale: of the scaler.
    """

    incident: IncidentRecord
    scale: float


@dataclass
class UnderflowRecord:
    """Gradients that half precision has flushed to zero, found by running steps again in float32.

    Attributes:
        step: of the last look.
        chain: the user's lines that called backward.
        format: ``float16`` or ``bfloat16``.
        looks: steps that were run again.
        share: smallest share, over these, of gradient elements that are zero although float32 has numbers for them.
        nonzero: elements that aren't zero in float32.
        largest: largest gradient of each parameter in float32, by dotted path; the largest of them.
    """

    step: int
    chain: tuple[Frame, ...]
    format: str
    looks: int
    share: float
    nonzero: int
    largest: dict[str, float] = field(default_factory=dict)

    def add(self, other: UnderflowRecord) -> None:
        """Take in a later look; the smaller share is kept."""
        self.looks += other.looks
        self.step, self.largest = other.step, other.largest
        self.share, self.nonzero = min((self.share, self.nonzero), (other.share, other.nonzero))
