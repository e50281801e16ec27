"""data.conflicting-labels: equal inputs carry different class ids, so that the loss has a floor above zero.

Found in two ways. Exactly: fingerprints of everything that a pass was given beside its target, compared within one pass
over the data; the entropy of the different labels of equal inputs is the floor, and the loss must have come to rest
near it. And through augmentation: samples arrive mirrored or upside down under one label, and of all classes one pair
is told apart no better than by a coin while the others are right: each is the other's mirror image.
"""

from __future__ import annotations

import math

from unstuck.diagnosis.received import CLASSES, at_frame, judged, last_loss, plain_target, stalled
from unstuck.findings import Finding, Severity
from unstuck.record.batches import BatchesRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "data.conflicting-labels"

TORN = 0.08
"""Part of the samples whose input has several labels."""

FLOOR = 0.03
"""Nats below which a floor doesn't matter."""

NEAR = 3.0
"""A loss has come down to the floor when it is at most so many times as high."""

EVEN = (0.3, 0.7)
"""Part of a pair's samples that are taken for the other class, where nothing tells them apart."""

SURE = 0.8
"""Mean probability of the chosen class above which a model isn't undecided."""

OTHERS = 0.1
"""Part of all other samples that may be wrong."""

MIRRORED = 4
"""Samples of one index that must have been seen in both forms."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per backward call."""
    found = []
    for record in judged(recording):
        finding = _equal_inputs(recording, record) or _redrawn(recording, record) or _mirrored(recording, record)
        if finding is not None:
            found.append(finding)
    return found


def _equal_inputs(recording: Recording, record: BatchesRecord) -> Finding | None:
    target, pairs, last = plain_target(record), record.pairs, last_loss(recording)
    if target is None or target.kind not in (*CLASSES, "bce", "bce with logits") or not target.given or last is None:
        return None
    if record.inputs.discrete or pairs.torn < 8 or pairs.torn_samples < TORN * pairs.samples:
        return None
    if pairs.inputs < 16 or pairs.floor < FLOOR or last > NEAR * pairs.floor + FLOOR:
        return None
    loader = record.loader
    where = None if loader is None else loader.item_at or loader.source_at or loader.dataset_at
    evidence: dict[str, object] = {
        "inputs with several labels": pairs.torn,
        "samples": pairs.torn_samples,
        "of samples": pairs.samples,
        "floor of the loss": pairs.floor,
        "last loss": last,
    }
    if pairs.row is not None:
        evidence["example: labels"] = f"{pairs.row[2]} and {pairs.row[3]}"
    return Finding(
        CODE,
        Severity.WARNING,
        f"{pairs.torn} inputs come with different labels within one pass over the data "
        f"({100 * pairs.torn_samples / pairs.samples:.0f} % of the samples): no model gets below a loss of "
        f"{pairs.floor:.2g}, this one is at {last:.2g}",
        at_frame(where, loader.made_at if loader is not None else record.inputs.read_at),
        evidence,
        "find where equal inputs get different labels (merged sources, shortened or rounded inputs), and keep one "
        "label for each",
    )


def _redrawn(recording: Recording, record: BatchesRecord) -> Finding | None:
    """Some inputs get another label at each pass over the data."""
    target, index, last = plain_target(record), record.index, last_loss(recording)
    if target is None or target.kind not in CLASSES or not target.given or index is None or last is None:
        return None
    loader, changed = record.loader, index.again - index.same_target
    if loader is None or index.again < 200 or index.same < 0.95 * index.again or changed < TORN * index.again:
        return None
    if target.shape[-1] != 1:
        return None  # not one id per sample
    if last < 0.5 * changed / index.again:
        return None  # such a loss can't be had with labels that change
    expected = (1.0 - record.pairs.chance) * index.again
    if changed > 0.8 * expected:
        return None  # all of them: inputs and targets are shuffled apart
    return Finding(
        CODE,
        Severity.WARNING,
        f"the same index comes with the same input and another label in {changed} of {index.again} cases: the loss "
        f"can't fall to zero, it is at {last:.2g}",
        at_frame(loader.random_at or loader.item_at, loader.made_at),
        {"came again": index.again, "with another label": changed, "last loss": last},
        "make a sample's label once, not each time that it is fetched",
    )


def _mirrored(recording: Recording, record: BatchesRecord) -> Finding | None:
    target, index, last = plain_target(record), record.index, last_loss(recording)
    if target is None or index is None or last is None or not record.confused or not stalled(recording):
        return None
    loader, pair = record.loader, record.confused[0]
    if loader is None or record.right is None or target.kind not in CLASSES or (target.classes or 0) < 3:
        return None
    how, turned = max(index.turned.items(), key=lambda item: item[1], default=("", 0))
    if turned < MIRRORED or index.upright + index.same < MIRRORED // 2 or index.same > 0.8 * index.again:
        return None
    total = sum(target.counts.values())
    part = (target.counts.get(pair.a, 0) + target.counts.get(pair.b, 0)) / total if total else 0.0
    wrong = pair.wrong / pair.samples if pair.samples else 0.0
    rest = 1.0 - record.right - part * wrong
    if not EVEN[0] <= wrong <= EVEN[1] or pair.sure > SURE or rest > OTHERS * (1.0 - part):
        return None
    floor = part * math.log(2.0)
    if not 0.5 * floor <= last <= 1.6 * floor:
        return None
    return Finding(
        CODE,
        Severity.WARNING,
        f"samples come turned {how} at random under one label, and classes {pair.a} and {pair.b} are told apart no "
        f"better than by a coin ({100 * wrong:.0f} % wrong, all others {100 * rest:.0f} %): turned, one looks like the "
        f"other; the loss can't fall below {floor:.2g}, it is at {last:.2g}",
        at_frame(loader.dataset_at or loader.random_at or loader.item_at, loader.made_at),
        {
            "classes": f"{pair.a} and {pair.b}",
            "taken for each other": wrong,
            "other samples wrong": rest,
            "mean probability of the choice": pair.sure,
            "pairs of samples seen turned": turned,
            "pairs seen upright": index.upright,
            "floor of the loss": floor,
            "last loss": last,
        },
        "leave this augmentation out, or change the label with the image",
    )
