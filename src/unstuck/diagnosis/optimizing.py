"""What the rules on gradients share: how large steps were, how losses went, and how a layer is named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from unstuck.findings import Where
from unstuck.places import Frame
from unstuck.record.gradients import APPLIED, FIRST_PARAMETER, TOTAL, ClipRecord, OptimizerRecord
from unstuck.record.recording import Recording
from unstuck.record.series import Bucket

__all__ = [
    "ADAPTIVE",
    "acting_clips",
    "at_line",
    "first_nonfinite_step",
    "largest_parameter",
    "losses_between",
    "middle",
    "part_left",
    "relative_step",
    "rows_of",
]

ADAPTIVE = frozenset(
    {"Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "Adafactor"}
)
"""Optimisers whose step hardly depends on the gradient's size."""

_NEAR = 32
"""A measured update stands for steps at most so many away."""


def rows_of(record: OptimizerRecord) -> list[Bucket]:
    """The rows of an optimiser's norms in which it had gradients."""
    return [bucket for bucket in record.norms if bucket.last[TOTAL] == bucket.last[TOTAL]]


def first_nonfinite_step(recording: Recording) -> int | None:
    """Step of the first incident."""
    steps = [item.step - item.late for item in recording.incidents if item.step is not None]
    return min(steps) if steps else None


def relative_step(record: OptimizerRecord, row: Bucket) -> float | None:
    """Size of the step taken at a row over the size of the weights; None if it isn't known.

    For plain gradient descent from rate, gradient and weights; else from the measured updates nearby.
    """
    measured = [
        (abs(step - row.start), ratio)
        for step, ratio in record.updates.lasts(0)
        if abs(step - row.start) <= _NEAR and math.isfinite(ratio)
    ]
    if record.kind == "SGD":
        before = [value for step, value in record.weights.lasts(0) if step <= row.start and math.isfinite(value)]
        rate = next((value for step, value in reversed(record.rates.lasts(0)) if step <= row.start), None)
        if before and rate is not None and before[-1] > 0.0:
            return rate * row.high[APPLIED] / before[-1]
        return None
    return min(measured)[1] if measured else None


def losses_between(recording: Recording, start: int, end: int) -> list[float]:
    """Losses of the steps from ``start`` up to, not including, ``end``."""
    return [item.last[0] for item in recording.loss_series if start <= item.start and item.end < end]


def largest_parameter(
    record: OptimizerRecord, row: Bucket, reference: Sequence[Bucket]
) -> tuple[str | None, str | None]:
    """(module, parameter) whose gradient has grown most from the reference rows to ``row``, among those that matter."""
    best, grown = None, 0.0
    total = row.high[TOTAL]
    for index, name in enumerate(record.names):
        column = FIRST_PARAMETER + index
        now = row.high[column]
        if not now > 0.1 * total:
            continue
        before = middle([item.last[column] for item in reference])
        growth = now / before if before is not None and before > 0.0 else math.inf
        if best is None or growth > grown:
            best, grown = name, growth
    if best is None or best.startswith("parameter "):
        return None, None
    return best.rpartition(".")[0] or None, best


def middle(values: Sequence[float]) -> float | None:
    """Median of the finite values, None if there is none."""
    finite = [value for value in values if math.isfinite(value)]
    return median(finite) if finite else None


def part_left(recording: Recording) -> float | None:
    """Loss at the end of the run over that at its start; None where that tells nothing (too few, not positive)."""
    losses = [item.last[0] for item in recording.loss_series]
    first, last = middle(losses[:8]), middle(losses[-max(8, len(losses) // 4) :])
    return last / first if first is not None and last is not None and first > 0.0 else None


def acting_clips(recording: Recording, optimizer: int) -> list[ClipRecord]:
    """Lines whose clipping acts on the gradients that an optimiser takes."""
    return [item for item in recording.clips if optimizer in item.optimizers and item.fresh > item.stale]


def at_line(chain: tuple[Frame, ...], **more: object) -> Where:
    """The place of a finding at the innermost line of a chain."""
    last = chain[-1] if chain else None
    return Where(file=last.file if last else None, line=last.line if last else None, chain=chain, **more)  # type: ignore[arg-type]
