"""data.unshuffled: training batches come sorted by class or target.

A dataset that is stored class by class and read in its order gives batches of one class each: the model turns to
whatever it sees and forgets the rest, pass after pass.

Found from the class ids of each batch and the loader's sampler. Reported only if it shows: the loss jumps at each
change of class, or what a linear model reaches on the same samples in random order is far better.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.received import at_frame, chance, judged, last_loss, pass_loss, plain_target
from unstuck.findings import Finding, Severity
from unstuck.record.batches import BatchesRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "data.unshuffled"

FEWEST = 8
"""Batches below which nothing is said."""

ONE_CLASS = 0.75
"""Part of the batches in which one class has nearly all samples."""

REPEATED = 0.95
"""Part of the batches that have the class that the pass before had at their place, for samplers that are unknown."""

PARTLY = 0.4
"""The same where the batches are sorted by class through the whole pass."""

JUMP = 1.5
"""How much higher the loss is after a change of class than before."""

HIGH = 0.15
"""A loss above this part of a guess's has something left to learn."""

SORTED, NARROW = 0.97, 0.25
"""Rank correlation of batch means with their place, and spread within batches over all, of a sorted target."""

BETTER = 4.0
"""How many times lower the loss of a linear model on shuffled samples is, where nothing but the order is wrong."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per backward call."""
    return [item for record in judged(recording) if (item := _judge(recording, record)) is not None]


def _judge(recording: Recording, record: BatchesRecord) -> Finding | None:
    order, target, loader = record.order, plain_target(record), record.loader
    if target is None or order.batches < FEWEST:
        return None
    if loader is not None and not loader.in_order and order.repeated < REPEATED:
        return None
    if loader is not None and order.epochs < 2:
        return None
    needed = PARTLY if loader is not None and abs(order.rise) >= SORTED else ONE_CLASS
    if order.classes >= 2 and order.one_class >= needed * order.batches:
        in_order = loader is not None and loader.in_order
        if not in_order and order.changes > 0.5 * order.one_class:
            return None
        return _by_class(recording, record)
    return _by_value(recording, record) if loader is not None and loader.in_order else None


def _by_class(recording: Recording, record: BatchesRecord) -> Finding | None:
    order, target, loader = record.order, record.target, record.loader
    last = last_loss(recording)
    guess = chance(target) if target is not None else None
    if target is None or last is None or guess is None:
        return None
    jumps = order.before is not None and order.after is not None and order.after > JUMP * order.before
    if not (jumps and order.after is not None and order.after > HIGH * guess) and not last > 0.8 * guess:
        return None
    summary = f"{order.one_class} of {order.batches} batches hold samples of one class only"
    if order.before is not None and order.after is not None and jumps:
        summary += f"; the loss jumps from {order.before:.2g} to {order.after:.2g} when the class changes"
    made_at = loader.made_at if loader is not None else record.inputs.read_at
    line = record.rows_at if loader is None else None
    return Finding(
        CODE,
        Severity.ERROR if order.one_class >= 0.9 * order.batches else Severity.WARNING,
        summary,
        at_frame(line, made_at),
        {
            "batches": order.batches,
            "of one class": order.one_class,
            "changes of class": order.changes,
            "loss before a change": order.before,
            "loss after it": order.after,
            "loss of a guess": guess,
        },
        "shuffle the training data: DataLoader(..., shuffle=True), or a new random order for each pass over the arrays",
    )


def _by_value(recording: Recording, record: BatchesRecord) -> Finding | None:
    order, target, scale, loader = record.order, record.target, record.scale, record.loader
    last = pass_loss(recording, loader.batches) if loader is not None and loader.batches else None
    if target is None or target.kind not in ("mse", "square") or scale is None or last is None:
        return None
    if abs(order.rise) < SORTED or order.inner > NARROW or not math.isfinite(last):
        return None
    if last < HIGH * target.variance or last < BETTER * scale.loss:
        return None
    made_at = record.loader.made_at if record.loader is not None else ()
    return Finding(
        CODE,
        Severity.WARNING,
        f"batches come sorted by target (rank correlation {order.rise:.2f}, a batch spans "
        f"{100 * order.inner:.0f} % of the spread): the loss of a pass stays at {last:.3g}, a linear model on the same "
        f"samples in random order reaches {scale.loss:.3g}",
        at_frame(None, made_at),
        {
            "rank correlation": order.rise,
            "spread within a batch": order.inner,
            "last loss": last,
            "variance of the target": target.variance,
            "loss of a linear model": scale.loss,
        },
        "shuffle the training data: DataLoader(..., shuffle=True)",
        confirmed=True,
    )
