"""optim.exploding-gradient: gradient norms grow until steps destroy the weights.

Long products of Jacobians (recurrent networks, deep stacks), a rate too high or an outlier without clipping: the
gradient grows by orders of magnitude and one step is as large as the weights themselves. What follows is a loss that
never comes back, then NaN.

Three courses are told apart. *Growth*: over many steps norm and loss rise far above everything seen in the first half
of the run. *Spike*: one step's norm is a thousand times the usual one, that step is larger than the weights, and the
loss doesn't come back or turns non-finite. *Start*: the very first steps are many times larger than the weights and
the run is non-finite after a few. In each, what counts is the gradient that the step has taken, after clipping.

A large gradient alone is no fault: norms rise when a plateau ends, with a harder curriculum, in adversarial and
reinforcement learning. Therefore growth needs a loss that grows with it and steps that are large against the weights.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.optimizing import (
    at_line,
    first_nonfinite_step,
    largest_parameter,
    losses_between,
    middle,
    relative_step,
    rows_of,
)
from unstuck.findings import Finding, Severity
from unstuck.record.gradients import TOTAL, OptimizerRecord
from unstuck.record.recording import Recording
from unstuck.record.series import Bucket

__all__ = ["CODE", "rule"]

CODE = "optim.exploding-gradient"

GROWTH = 30.0
"""Norms of the last rows over the usual one of the first half."""

DEPARTURE = 3.0
"""Norm over the usual one with which growth is said to begin."""

LOSS_GROWTH = 5.0
"""Losses of the last steps over the largest of the first half."""

LARGE_STEP = 0.05
"""A growing run's steps over the weights."""

TAIL = 3
"""Last rows and losses that must all have grown."""

FEWEST = 6
"""Rows from which on growth can be told."""

SPIKE = 1000.0
"""Norm of one step over the usual one before it."""

DESTROYING = 1.0
"""A step over the weights that leaves nothing of them."""

BEFORE = 8
"""Rows that must lie before a spike, so that there is a usual norm."""

SOON = 3
"""Steps after a spike within which it must show."""

START, START_STEP = 6, 5.0
"""Steps that count as the start, and a first step over the weights that can't be meant."""

START_CHANGE = 1.0
"""What that step changes a weight by, on average."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per optimiser."""
    found = []
    broken = first_nonfinite_step(recording)
    for index, record in enumerate(recording.optimizers):
        # a run that goes on after a non-finite value shows its consequences, which explode as well
        rows = [row for row in rows_of(record) if broken is None or row.start < broken]
        finding = _growth(recording, record, rows) or _spike(recording, record, rows) or _start(recording, record, rows)
        if finding is not None:
            clipped = any(index in item.optimizers and item.fresh for item in recording.clips)
            found.append(_finding(record, finding, clipped))
    return found


class _Course:
    """How it went: ``row`` is where it began, ``reference`` the rows before."""

    def __init__(self, kind: str, row: Bucket, reference: list[Bucket], evidence: dict[str, float], said: str) -> None:
        self.kind, self.row, self.reference, self.evidence, self.said = kind, row, reference, evidence, said


def _usual(rows: list[Bucket]) -> float | None:
    usual = middle([row.last[TOTAL] for row in rows])
    return usual if usual is not None and usual > 0.0 else None


def _growth(recording: Recording, record: OptimizerRecord, rows: list[Bucket]) -> _Course | None:
    if len(rows) < FEWEST:
        return None
    head, tail = rows[: len(rows) // 2], rows[-TAIL:]
    usual = _usual(head)
    now = min(row.last[TOTAL] for row in tail)
    if usual is None or not now >= GROWTH * usual:
        return None
    middle_step = head[-1].end
    early = [value for value in losses_between(recording, 0, middle_step + 1) if math.isfinite(value)]
    broken = first_nonfinite_step(recording)
    late = [item.last[0] for item in recording.loss_series if broken is None or item.start <= broken][-TAIL:]
    if not early or len(late) < TAIL or not (max(early) > 0.0 and min(late) >= LOSS_GROWTH * max(early)):
        return None
    steps = [ratio for row in tail if (ratio := relative_step(record, row)) is not None]
    if not steps or not max(steps) >= LARGE_STEP:
        return None
    # a run that grows from its first step on has no usual norm but its first ones
    usual = min(usual, _usual(rows[: max(1, len(rows) // 8)]) or usual)
    begin = len(rows) - 1
    while begin > 1 and rows[begin - 1].last[TOTAL] > DEPARTURE * usual:
        begin -= 1
    row, end = rows[begin], rows[-1]
    calm = middle(losses_between(recording, 0, row.start)) or max(early)
    finite = [item for item in rows[begin:] if math.isfinite(item.last[TOTAL])] or [end]
    passed = max(1, finite[-1].end - rows[begin - 1].end)
    factor = (finite[-1].last[TOTAL] / usual) ** (1.0 / passed)
    return _Course(
        "growth",
        row,
        rows[:begin],
        {
            "usual norm": usual,
            "last norm": end.last[TOTAL],
            "growth per step": factor,
            "loss before": calm,
            "last loss": late[-1],
            "step over weights": max(steps),
        },
        f"the gradient's norm grew from {usual:.3g} to {end.last[TOTAL]:.3g}, by {factor:.3g} per step from step "
        f"{row.start} on, and the loss from {calm:.3g} to {late[-1]:.3g}",
    )


def _spike(recording: Recording, record: OptimizerRecord, rows: list[Bucket]) -> _Course | None:
    broken = first_nonfinite_step(recording)
    for index in range(BEFORE, len(rows)):
        row = rows[index]
        usual = _usual(rows[:index])
        if usual is None or not row.high[TOTAL] >= SPIKE * usual:
            continue
        size = relative_step(record, row)
        if size is None or not size >= DESTROYING:
            continue
        before = middle(losses_between(recording, 0, row.start))
        after = losses_between(recording, row.end + 1, row.end + 1 + SOON + 1)
        soon = broken is not None and row.start <= broken <= row.end + SOON
        lost = before is not None and before > 0.0 and len(after) >= SOON and min(after) >= LOSS_GROWTH * before
        if not soon and not lost:
            continue
        then = (
            f"the run was non-finite at step {broken}"
            if soon
            else f"the loss went from {before:.3g} to {after[-1]:.3g}"
        )
        return _Course(
            "spike",
            row,
            rows[:index],
            {
                "usual norm": usual,
                "norm": row.high[TOTAL],
                "growth": row.high[TOTAL] / usual,
                "step over weights": size,
            },
            f"the gradient's norm jumped from {usual:.3g} to {row.high[TOTAL]:.3g} at step {row.start}, that step was "
            f"{size:.3g} times as large as the weights, and {then}",
        )
    return None


def _start(recording: Recording, record: OptimizerRecord, rows: list[Bucket]) -> _Course | None:
    broken = first_nonfinite_step(recording)
    if broken is None or broken > START or not rows or rows[0].start >= broken:
        return None
    sizes = [size for row in rows if (size := relative_step(record, row)) is not None]
    if not sizes or not sizes[0] >= START_STEP:
        return None
    # weights that begin near zero have a large first step too; such a step is small in itself
    weight = next(iter(record.weights)).last[0]
    if not sizes[0] * weight / math.sqrt(max(1, sum(record.sizes))) >= START_CHANGE:
        return None
    return _Course(
        "start",
        rows[0],
        [],
        {"norm": rows[0].high[TOTAL], "step over weights": sizes[0]},
        f"the first gradient has a norm of {rows[0].high[TOTAL]:.3g}, its step was {sizes[0]:.3g} times as large as "
        f"the weights, and the run was non-finite at step {broken}",
    )


def _finding(record: OptimizerRecord, course: _Course, clipped: bool) -> Finding:
    module, parameter = largest_parameter(record, course.row, course.reference)
    usual = course.evidence.get("usual norm")
    advice = f"clip to about the usual norm ({usual:.1g})" if usual is not None else "clip the gradient's norm"
    remedy = {
        "spike": f"{advice} between backward and step: torch.nn.utils.clip_grad_norm_; look at that step's batch",
        "growth": f"lower the learning rate, or {advice} between backward and step",
        "start": "initialise the layers so that activations keep their size, or lower the learning rate; "
        "normalise inputs and targets",
    }[course.kind]
    if clipped:
        remedy = "lower the learning rate or the clipping limit: what clipping leaves is still too large a step"
    return Finding(
        CODE,
        Severity.ERROR,
        course.said,
        at_line(record.step_at, step=course.row.start, module=module, parameter=parameter),
        {**course.evidence, "optimizer": record.kind, "lr": record.settings.get("lr")},
        remedy,
    )
