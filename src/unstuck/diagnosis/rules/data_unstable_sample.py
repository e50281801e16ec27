"""data.unstable-sample: in an overfit test the same index gives another sample each time.

A test whether a model can memorise a few samples says nothing when they change from step to step: augmentation was left
on. Everywhere else changing samples are augmentation, and fine.

Found from the indices that the loader's sampler gave and fingerprints of what arrived. It is taken for an overfit test
when a few samples, all of them in one or two batches, are gone through dozens of times, and they are a small part cut
out of a larger dataset, or nothing is evaluated beside them.
"""

from __future__ import annotations

from unstuck.diagnosis.received import at_frame, first_loss, judged, last_loss
from unstuck.findings import Finding, Severity
from unstuck.record.batches import BatchesRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "data.unstable-sample"

FEW = 256
"""Samples that are at most memorised for a test."""

ROUNDS = 25
"""Times that they are gone through at least."""

CUT = 4
"""A subset is so many times smaller than its dataset at least."""

STABLE = 0.05
"""Part of the samples that may come again as they were."""

MEMORISED = 0.02
"""Part of the first loss below which the test has succeeded anyway."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per backward call."""
    return [item for record in judged(recording) if (item := _judge(recording, record)) is not None]


def _judge(recording: Recording, record: BatchesRecord) -> Finding | None:
    index, loader = record.index, record.loader
    if index is None or loader is None or not _is_overfit_test(record):
        return None
    if index.same > STABLE * index.again:
        return None
    first, last = first_loss(recording), last_loss(recording)
    if first is None or last is None or last < MEMORISED * first:
        return None
    where = loader.random_at or loader.dataset_at or loader.item_at
    return Finding(
        CODE,
        Severity.WARNING,
        f"the same {index.indices} indices are gone through again and again, and give "
        f"another sample each time ({index.same} of {index.again} came again as they were): they can't be memorised, "
        f"the loss stays at {last:.3g}",
        at_frame(where, loader.made_at),
        {
            "indices": index.indices,
            "came again": index.again,
            "the same": index.same,
            "same target": index.same_target,
            "first loss": first,
            "last loss": last,
        },
        "switch the augmentation off for a test of memorising a few samples; it is right for the training itself",
    )


def _is_overfit_test(record: BatchesRecord) -> bool:
    loader, index = record.loader, record.index
    if loader is None or index is None or loader.size is None or not loader.batches:
        return False
    if index.indices > FEW or index.again < 0.8 * ROUNDS * index.indices:
        return False
    if loader.base_size is not None and loader.base_size >= CUT * index.indices:
        return True
    return loader.size <= FEW and loader.batches == 1 and not record.evaluated
