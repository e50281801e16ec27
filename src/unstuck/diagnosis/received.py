"""What the rules on data share: which batches are judged, what a guess would cost, how the loss went, and places."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from unstuck.findings import Where
from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy, Op, Value
from unstuck.record.batches import BatchesRecord, TargetPart
from unstuck.record.recording import Recording

__all__ = [
    "CLASSES",
    "at_frame",
    "chance",
    "first_loss",
    "from_batch",
    "judged",
    "last_loss",
    "loss_frame",
    "made_by",
    "pass_loss",
    "plain_target",
    "stalled",
    "target_frame",
]

CLASSES = ("nll", "gather", "index", "multi margin")
"""Losses whose target holds class ids."""

_LOSS_OPS = {
    "nll": ("nll_loss", "nll_loss2d", "nll_loss_nd"),
    "bce": ("binary_cross_entropy",),
    "bce with logits": ("binary_cross_entropy_with_logits",),
    "mse": ("mse_loss",),
    "smooth l1": ("smooth_l1_loss",),
    "huber": ("huber_loss",),
    "soft margin": ("soft_margin_loss",),
    "gather": ("gather",),
    "index": ("index",),
}
_TARGETS = {"gather": "index", "index": "indices"}
_SHARE = 0.1


def judged(recording: Recording) -> list[BatchesRecord]:
    """Backward calls whose batches were looked at."""
    return [item for item in recording.all(BatchesRecord) if item.looks]


def plain_target(record: BatchesRecord) -> TargetPart | None:
    """The target of a record, where the loss compares with it alone, unweighted, and no model made it."""
    target = record.target
    if target is None or not target.whole or target.positions or target.looks < 4:
        return None
    return target


def _losses(recording: Recording) -> list[float]:
    """Losses of the only backward call of a program; none where several share the curve."""
    if len(judged(recording)) != 1:
        return []
    values = [item.last[0] for item in recording.loss_series]
    return [value for value in values if math.isfinite(value)]


def last_loss(recording: Recording) -> float | None:
    """Median of the last tenth of the losses."""
    values = _losses(recording)
    return median(values[-max(5, int(_SHARE * len(values))) :]) if len(values) >= 10 else None


def pass_loss(recording: Recording, batches: int) -> float | None:
    """Mean of the losses of the last pass over the data."""
    values = _losses(recording)[-batches:]
    return sum(values) / batches if len(values) == batches else None


def first_loss(recording: Recording) -> float | None:
    """Median of the first three losses."""
    values = _losses(recording)
    return median(values[:3]) if len(values) >= 10 else None


def stalled(recording: Recording) -> bool:
    """Whether the loss hardly fell any more over the last third of the run."""
    values = _losses(recording)
    third = len(values) // 3
    if third < 10:
        return False
    return median(values[-third // 2 :]) > 0.85 * median(values[-third : -third // 2])


def chance(target: TargetPart) -> float | None:
    """Mean loss of the best constant prediction: entropy of the class ids in nats, or variance for a square loss."""
    if target.kind in ("nll", "gather", "index", "bce", "bce with logits") and target.counts:
        counts = [count for label, count in target.counts.items() if label != target.ignored]
        if target.kind.startswith("bce") and not set(target.counts) <= {0, 1}:
            return None
        total = sum(counts)
        return -sum(count / total * math.log(count / total) for count in counts) if total else None
    if target.kind in ("mse", "square"):
        return target.variance
    return None


def at_frame(frame: Frame | None, chain: Sequence[Frame] = (), **more: object) -> Where:
    """The place of a finding at one line, or at the innermost line of a chain where there is none."""
    if frame is None:
        frame = chain[-1] if chain else None
    whole = tuple(chain) if chain and chain[-1] == frame else (() if frame is None else (frame,))
    return Where(file=frame.file if frame else None, line=frame.line if frame else None, chain=whole, **more)  # type: ignore[arg-type]


def made_by(anatomy: Anatomy, value: Value, names: Sequence[str]) -> Op | None:
    """The nearest operation with one of these names behind a value, along first inputs."""
    for _ in range(24):
        if value.op is None:
            return None
        op = anatomy.ops[value.op]
        if op.name in names:
            return op
        if not op.inputs:
            return None
        value = op.inputs[0]
    return None


def target_frame(recording: Recording, target: TargetPart, names: Sequence[str] = ()) -> tuple[Frame, ...]:
    """The user's lines of the operation that made a loss's target, as the first steps were traced.

    Args:
        recording: of the run.
        target: which loss.
        names: operations that are looked for, the nearest that made the target; empty for the last one of all.

    Returns:
        The chain, empty if it isn't known: the target came with the batch as it is, or no step was traced.
    """
    for anatomy, value, _ in _targets(recording, target):
        if value.op is None:
            continue  # it was made before the trace began
        made = made_by(anatomy, value, names) if names else anatomy.ops[value.op]
        return anatomy.chain(made.chain) if made is not None else ()
    return ()


def loss_frame(recording: Recording, target: TargetPart) -> tuple[Frame, ...]:
    """The user's lines of the operation that computes the loss, empty where no step was traced."""
    return next((anatomy.chain(op.chain) for anatomy, _, op in _targets(recording, target)), ())


def from_batch(recording: Recording, target: TargetPart) -> bool:
    """Whether a loss's target was made from the batch, sample by sample."""
    return any(value.samples == "apart" for _, value, _ in _targets(recording, target))


def _targets(recording: Recording, target: TargetPart) -> Iterator[tuple[Anatomy, Value, Op]]:
    """What losses of this sort took as their target in the traced steps."""
    wanted = _LOSS_OPS.get(target.kind, ())
    for anatomy in recording.all(Anatomy):
        for _, op in anatomy.forward():
            value = op.taken(_TARGETS.get(target.kind, "target")) if op.name in wanted else None
            if value is not None:
                yield anatomy, value, op
