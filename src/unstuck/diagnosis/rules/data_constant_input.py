"""data.constant-input: the samples of a batch, or the batches, are all the same.

A dataset that ignores its index, a function made in a loop that reads the loop's variable when it is called, a buffer
that every sample is written into, a conversion that rounds everything to zero, a new iteration of the loader at every
step that takes its first batch: the model can learn how frequent each target is and nothing else.

Found from fingerprints of what the model was given: all samples of (nearly) all batches are bit for bit the same
although their targets differ, or although the dataset's indices differ.
"""

from __future__ import annotations

from unstuck.diagnosis.received import at_frame, judged
from unstuck.findings import Finding, Severity
from unstuck.record.batches import BatchesRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "data.constant-input"

FEWEST = 8
"""Batches, and indices, below which nothing is said."""

ALWAYS = 0.95
"""Part of the batches that must be so."""

NEARLY = 1e-5
"""Deviation between samples over their size below which they are as good as the same in single precision."""

REPEATED = 20
"""Steps that take the same batch again, from which on this isn't a trial."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per backward call."""
    return [item for record in judged(recording) for item in (_same_samples(record), _same_batches(record)) if item]


def _same_samples(record: BatchesRecord) -> Finding | None:
    inputs, target, index, loader = record.inputs, record.target, record.index, record.loader
    if inputs.compared < FEWEST or loader is None:
        return None
    same = inputs.constant >= ALWAYS * inputs.compared
    nearly = not same and inputs.dtype.startswith("float") and inputs.spread < NEARLY and not inputs.discrete
    few = index is not None and index.indices >= 8 * FEWEST and inputs.distinct == 1
    if not (same or nearly or few):
        return None
    varied = target is not None and (target.variance > 0.0 or len(target.counts) > 1)
    several = index is not None and index.indices >= FEWEST
    by_batch = same and inputs.distinct >= FEWEST
    if not (varied or several or by_batch):
        return None
    number = index.indices if index is not None else 0
    what = "are all the same" if same or few else f"differ by {inputs.spread:.1e} of their size only"
    summary = f"the samples of a batch {what}, in {inputs.constant or inputs.compared} of {inputs.compared} batches"
    if number:
        summary += f": {number} indices of the dataset gave {inputs.distinct} different inputs"
    made = loader.source_at if loader.indexed else None
    where = loader.late_at or made or loader.item_at or loader.source_at or loader.dataset_at
    remedy = "look at two samples of the dataset side by side; its __getitem__ must depend on the index"
    if loader.late_at is not None:
        remedy = (
            "bind the loop's variable when the function is made (lambda item=item: ...): all of them read its last "
            "value when they are called"
        )
    return Finding(
        CODE,
        Severity.ERROR,
        summary,
        at_frame(where, loader.made_at),
        {
            "batches": inputs.compared,
            "batches of equal samples": inputs.constant,
            "different inputs": inputs.distinct,
            "indices": number or None,
            "deviation over size": inputs.spread,
            "low": inputs.low,
            "high": inputs.high,
        },
        remedy,
    )


def _same_batches(record: BatchesRecord) -> Finding | None:
    inputs, loader = record.inputs, record.loader
    if loader is None or not loader.drawn_at or loader.batches is None:
        return None  # a Trainer's loop begins anew where it is told to: its overfit test
    if loader.batches < 4 or inputs.looks < REPEATED:
        return None
    if inputs.again < ALWAYS * (inputs.looks - 1) or loader.iterations < ALWAYS * record.passes:
        return None
    return Finding(
        CODE,
        Severity.WARNING,
        f"every step takes the same batch, the first of {loader.batches}: the loader's iteration is begun anew for "
        f"each of {record.passes} steps",
        at_frame(None, loader.drawn_at),
        {"steps": record.passes, "iterations begun": loader.iterations, "batches of the loader": loader.batches},
        "iterate over the loader (for batch in loader), or keep one iterator and begin a new one when it is spent",
    )
