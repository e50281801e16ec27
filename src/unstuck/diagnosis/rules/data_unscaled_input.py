"""data.unscaled-input: inputs of a scale that the model can't start from, and it shows.

Raw pixels of 0..255, columns of a table that span orders of magnitude, or inputs that have been divided twice: the
first layer's outputs and gradients are as large as the inputs, units die or saturate, and one rate can't suit all
columns.

Found from the values that the first layer with weights really takes, after whatever the model does before it, from
deviations of single columns, and from the loss. Reported only if it shows: the loss starts far above that of a guess or
hardly leaves it, while a linear model on the same samples, standardised, learns them.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.received import at_frame, chance, first_loss, judged, last_loss, plain_target
from unstuck.findings import Finding, Severity
from unstuck.record.anatomy import Anatomy, Value
from unstuck.record.batches import BatchesRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "data.unscaled-input"

LARGE = 15.0
"""Root mean square from which on inputs are large."""

SMALL = 0.02
"""Deviation up to which they are small."""

RATIO = 100.0
"""Largest over smallest deviation of columns from which on they span orders of magnitude."""

STUCK = 0.5
"""Part of a guess's loss above which a training hasn't learned much."""

SLOW, FAR_BETTER = 0.15, 0.25
"""The same where a linear model is far better."""

BETTER = 0.6
"""Part of the last loss that a linear model on standardised samples must stay below."""

SKILL = 0.3
"""Skill of that model at least."""

_LAYERS = ("addmm", "mm", "linear", "convolution", "bmm", "matmul", "lstm", "gru", "rnn_tanh", "rnn_relu", "baddbmm")
_NORMALISING = ("native_batch_norm", "batch_norm", "cudnn_batch_norm", "native_layer_norm", "layer_norm", "group_norm")
_PASSING = (
    "view",
    "reshape",
    "clone",
    "transpose",
    "permute",
    "t",
    "unsqueeze",
    "squeeze",
    "cat",
    "stack",
    "div",
    "mul",
    "sub",
    "add",
    "to_copy",
    "slice",
    "select",
    "expand",
    "contiguous",
    "alias",
    "detach",
    "index",
    "flatten",
    "constant_pad_nd",
)


def rule(recording: Recording) -> list[Finding]:
    """At most one finding."""
    return [item for record in judged(recording) if (item := _judge(recording, record)) is not None]


def _judge(recording: Recording, record: BatchesRecord) -> Finding | None:
    target, scale = plain_target(record), record.scale
    guess = chance(target) if target is not None else None
    blown = _blown_up(recording, record)
    first, last = first_loss(recording), last_loss(recording)
    if blown:
        first, last = first if first is not None else recording.loss_series.buckets[0].last[0], math.inf
    if target is None or scale is None or guess is None or first is None or last is None or guess <= 0.0:
        return None
    taken = _taken(recording)
    if taken is None:
        return None
    what = _wrong_scale(record, taken)
    if what is None:
        return None
    stuck = last >= STUCK * guess and scale.loss <= BETTER * last
    slow = last >= SLOW * guess and scale.loss <= FAR_BETTER * last
    if scale.skill < SKILL or not (stuck or slow):
        return None
    loader = record.loader
    where = record.source_at if loader is None else loader.source_at or loader.item_at or loader.dataset_at
    return Finding(
        CODE,
        Severity.ERROR if blown else Severity.WARNING,
        f"{what}: the loss went from {first:.3g} to {last:.3g} (a guess has {guess:.3g}), a linear model on the same "
        f"samples, standardised, reaches {scale.loss:.3g}",
        at_frame(where, loader.made_at if loader is not None else record.inputs.read_at),
        {
            "low": taken.low,
            "high": taken.high,
            "largest deviation of a column": max(record.inputs.std, default=None),
            "smallest deviation of a column": min(_spreads(record), default=None),
            "first loss": first,
            "last loss": last,
            "loss of a guess": guess,
            "loss of a linear model on standardised inputs": scale.loss,
        },
        "standardise the inputs with mean and deviation of the training samples (pixels: divide by 255), or begin the "
        "model with a normalisation",
        confirmed=True,
    )


def _blown_up(recording: Recording, record: BatchesRecord) -> bool:
    """Whether plain gradient descent ended in a value that isn't finite, at a rate that suits standardised inputs.

    The curvature of a square loss along a linear layer's weights is about the mean square norm of its inputs, and a
    step diverges where rate times curvature exceeds 2.
    """
    if not recording.incidents or not recording.loss_series.buckets or len(recording.optimizers) != 1:
        return False
    optimizer, inputs = recording.optimizers[0], record.inputs
    rate = optimizer.settings.get("lr")
    if optimizer.kind != "SGD" or not isinstance(rate, (int, float)) or not inputs.rms:
        return False
    elements = math.prod(inputs.shape[1:])
    square = sum(value * value for value in inputs.rms) * elements / len(inputs.rms)
    return bool(rate * elements <= 1.0 and rate * square >= 8.0)


def _spreads(record: BatchesRecord) -> list[float]:
    return [value for value in record.inputs.std if value > 0.0]


def _wrong_scale(record: BatchesRecord, taken: Value) -> str | None:
    """What is wrong with the values that the first layer takes; None if nothing is."""
    low, high, mean, std = taken.low, taken.high, taken.mean, taken.std
    if low is None or high is None or mean is None or std is None:
        return None
    size = (mean * mean + std * std) ** 0.5
    inputs = record.inputs
    unchanged = abs(low) <= 1.01 * max(abs(inputs.low), abs(inputs.high)) and high >= 0.2 * inputs.high
    spreads = _spreads(record)
    if size >= LARGE:
        if unchanged and len(spreads) > 1 and max(spreads) > RATIO * min(spreads):
            return (
                f"columns of the inputs span orders of magnitude (deviations of {min(spreads):.2g} to "
                f"{max(spreads):.3g})"
            )
        return f"the first layer takes values from {low:.3g} to {high:.3g}"
    if std <= SMALL and size <= 1.0:
        return f"the first layer takes values that hardly differ (from {low:.3g} to {high:.3g}, deviation {std:.1e})"
    return None


def _taken(recording: Recording) -> Value | None:
    """The value that the first layer with weights takes, where only plain operations lie before it."""
    for anatomy in recording.all(Anatomy):
        for _, op in anatomy.forward():
            if op.name in _NORMALISING:
                return None
            weights = [item for item in op.inputs if item.leaf == "parameter" or _of_parameter(anatomy, item)]
            if op.name not in _LAYERS or not weights:
                continue
            for value in op.inputs:
                if value.dtype.startswith(("float", "bfloat")) and _from_batch(anatomy, value):
                    return value
            return None
    return None


def _of_parameter(anatomy: Anatomy, value: Value) -> bool:
    for _ in range(4):
        if value.op is None:
            return value.leaf == "parameter"
        op = anatomy.ops[value.op]
        if op.name not in ("t", "transpose", "permute", "view", "expand") or not op.inputs:
            return False
        value = op.inputs[0]
    return False


def _from_batch(anatomy: Anatomy, value: Value) -> bool:
    """Whether a value comes from the batch through operations that have no weights."""
    for _ in range(16):
        if value.op is None:
            return value.leaf in ("batch", "constant")
        op = anatomy.ops[value.op]
        if op.name not in _PASSING or not op.inputs:
            return False
        if op.name in ("cat", "stack"):
            return any(_from_batch(anatomy, item) for item in op.inputs)
        value = op.inputs[0]
    return False
