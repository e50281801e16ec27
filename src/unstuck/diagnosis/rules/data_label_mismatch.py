"""data.label-mismatch: labels don't fit the head or the loss.

Found from what the loss was really called with, read from its autograd graph: targets outside of 0..1 for a binary
cross entropy, targets of 0 and 1 for a loss that wants -1 and 1, one value only over all batches of a loader, and for
token ids by how many places the target is the input moved on. A language model's target is its input moved on by one;
by two when loss and dataset both move it; by none when neither does, which is told from an autoencoder by trying on a
copy whether the model looks ahead.
"""

from __future__ import annotations

from unstuck.diagnosis.received import CLASSES, at_frame, from_batch, judged, loss_frame, plain_target, target_frame
from unstuck.findings import Finding, Severity, Where
from unstuck.places import Frame
from unstuck.record.batches import BatchesRecord, TargetPart
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "data.label-mismatch"

FEWEST = 8
"""Batches below which nothing is said of what is the same in all."""

SAMPLES = 64
"""The same for samples."""

ALL = 0.999
"""Part of the tokens that must agree."""

DROPPED = 0.03
"""Part of the samples that a loss leaves out, one class of several."""

OUTSIDE = 0.01
"""Part of the values outside of what a loss takes."""

_NUMBERS = ("mse", "square", "smooth l1", "huber", "absolute", "bce", "bce with logits")


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per backward call."""
    found = []
    for record in judged(recording):
        finding = _out_of_range(recording, record) or _one_value(recording, record) or _moved(recording, record)
        finding = finding or _ignored(recording, record)
        if finding is not None:
            found.append(finding)
    return found


def _where(recording: Recording, record: BatchesRecord, target: TargetPart) -> Where:
    """The line that made the target; the dataset's where the loader gave it as it is."""
    chain = target_frame(recording, target)
    loader = record.loader
    frame: Frame | None = chain[-1] if chain else None
    if frame is None and loader is not None:
        frame = loader.target_at or loader.dataset_at
    return at_frame(frame, chain or loss_frame(recording, target) or record.loss_at)


def _out_of_range(recording: Recording, record: BatchesRecord) -> Finding | None:
    target = record.target
    if target is None or target.looks < 2:
        return None
    if target.kind in ("bce", "bce with logits") and target.outside > OUTSIDE * target.values:
        wants, fits = "0..1", "divide them by their largest value" if target.high > 2.0 else "map them to 0 and 1"
        if target.high > 2.0 and target.integral and set(target.counts) != {0, int(target.high)}:
            fits = "map them to 0 and 1, or take cross_entropy for class ids"
    elif target.kind == "soft margin" and target.integral and set(target.counts) == {0, 1}:
        wants, fits = "-1 and 1", "map 0 to -1 (2 * target - 1)"
    else:
        return None
    return Finding(
        CODE,
        Severity.ERROR,
        f"targets lie in {target.low:g}..{target.high:g}, but the loss ({target.kind}) takes {wants}",
        _where(recording, record, target),
        {
            "low": target.low,
            "high": target.high,
            "values outside": target.outside,
            "of values": target.values,
            "dtype": target.dtype,
        },
        f"{fits} before the loss",
    )


def _one_value(recording: Recording, record: BatchesRecord) -> Finding | None:
    target, loader = plain_target(record), record.loader
    if target is None or loader is None or target.looks < FEWEST or not (target.given or from_batch(recording, target)):
        return None
    samples = record.pairs.samples
    if samples < SAMPLES or target.low != target.high or record.inputs.constant >= 0.5 * max(1, record.inputs.compared):
        return None
    if target.kind in CLASSES:
        if (target.classes or 0) < 2:
            return None
    elif target.kind not in _NUMBERS:
        return None
    return Finding(
        CODE,
        Severity.ERROR,
        f"every target is {target.low:g} ({samples} samples, {target.dtype}): there is nothing to tell apart",
        _where(recording, record, target),
        {"value": target.low, "samples": samples, "dtype": target.dtype, "classes of the head": target.classes},
        "look at how labels are read and converted (a comparison that is never true, numbers cut to whole ones, a "
        "division that was made already)",
    )


def _ignored(recording: Recording, record: BatchesRecord) -> Finding | None:
    """A class of the data, one id per sample, is the one that the loss leaves out."""
    target = plain_target(record)
    if target is None or not target.given or not target.single or target.kind != "nll" or len(target.shape) != 2:
        return None
    ignored, classes = target.ignored, target.classes
    if target.shape[1] != 1 or ignored is None or classes is None or not 0 <= ignored < classes:
        return None
    dropped, total = target.counts.get(ignored, 0), sum(target.counts.values())
    if record.pairs.samples < SAMPLES or dropped < DROPPED * total or len(target.counts) < classes:
        return None
    return Finding(
        CODE,
        Severity.WARNING,
        f"the loss leaves class {ignored} out (ignore_index), which {100 * dropped / total:.0f} % of the samples have",
        at_frame(None, loss_frame(recording, target) or record.loss_at),
        {"ignored class": ignored, "its samples": dropped, "of samples": total, "classes of the head": classes},
        "leave ignore_index out, or give it an id that is no class",
    )


def _moved(recording: Recording, record: BatchesRecord) -> Finding | None:
    lag, target = record.lag, record.target
    if lag is None or target is None or not target.whole or lag.looks < FEWEST or lag.inputs != 1:
        return None
    by = [places for places, share in lag.shares.items() if share >= ALL]
    if len(by) != 1:
        return None  # a text that repeats itself says nothing
    ahead = by[0] - lag.skipped
    if ahead == 1 or (ahead < 1 and not (lag.causal and lag.direct)):
        return None
    if ahead >= 2:
        summary = f"the target is the input moved on by {ahead} tokens: the model learns to skip {ahead - 1}"
        remedy = "move labels once: in the dataset or in the loss, not in both"
    else:
        summary = (
            f"the target is the input moved on by {ahead} tokens: a model that doesn't look ahead sees the answer at "
            "its own place and learns nothing of the next token"
        )
        remedy = "compare the output at a place with the next token: logits[:, :-1] with labels[:, 1:]"
    chain = target_frame(recording, target, ("slice", "roll"))
    frame = chain[-1] if chain else None
    if frame is None and ahead >= 2 and record.loader is not None:
        frame = record.loader.item_at
    return Finding(
        CODE,
        Severity.ERROR,
        summary,
        at_frame(frame, chain or loss_frame(recording, target) or record.loss_at),
        {
            "moved on by": ahead,
            "tokens that agree": lag.shares[by[0]],
            "by one": lag.shares.get(1 + lag.skipped),
            "batches": lag.looks,
            "length": lag.length,
        },
        remedy,
        confirmed=ahead < 1,
    )
