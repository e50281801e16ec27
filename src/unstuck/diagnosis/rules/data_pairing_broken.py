"""data.pairing-broken: inputs and targets are paired wrongly.

Shuffled apart once, a training memorises at best; shuffled apart at every pass, it doesn't even do that.

Found with proof only. Either the same input comes with another target at each pass over the data, about as often as
random pairing would have it. Or the targets can't be told from the inputs as they are paired, neither by a linear
model nor by nearest neighbours, while they can with another pairing: targets moved on by a few places, or the targets
that stand beside the same inputs in the program's own arrays. Or they can't be told at all and the program shuffles
inputs and targets by different random orders. Or the elements of a traced step show that outputs are compared with
targets of other samples of the batch.
"""

from __future__ import annotations

from unstuck.diagnosis.dimensions import comparisons
from unstuck.diagnosis.objective import MOVES, Objective, objectives
from unstuck.diagnosis.received import CLASSES, at_frame, chance, judged, last_loss, plain_target, target_frame
from unstuck.diagnosis.suspicion import course_of
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.anatomy import Value
from unstuck.record.batches import BatchesRecord, PairingProbe, TargetPart
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "data.pairing-broken"

LEARNT = 0.4
"""Part of a guess's loss below which a training learns."""

FEWEST, MOVED = 20, 0.9
"""Batches that were compared with the loader's, and the part of them in which targets stood beside other inputs."""

TURNED = 5
"""Pairs of samples of one index, of which one is turned and its target isn't."""

AGAIN = 100
"""Samples whose input has come again, below which nothing is said of their targets."""

RANDOM = 0.8
"""Part of the targets that change, over the part that random pairing would change."""

CLOSED = 0.95
"""Part of the later targets that have been there before: the same targets are dealt out again."""

NOTHING = 0.12
"""Skill up to which targets have nothing to do with their inputs."""

CLEAR = 0.4
"""Skill of another pairing from which on it is the right one."""

STRANGERS, SEEN = 0.5, 2
"""Share of the targets that belong to other samples, and the losses in which that was seen."""

LEARNS = 0.6
"""Part of the first loss that a run with the targets of other samples can't lose."""

SAMPLES = 128
"""Samples from which on no skill at all says something by itself."""


def rule(recording: Recording) -> list[Finding]:
    """At most one finding per backward call."""
    found = []
    for record in judged(recording):
        finding = _moved_in_loop(recording, record) or _dealt_again(recording, record)
        finding = finding or _turned_apart(record) or _paired_otherwise(recording, record)
        if finding is not None:
            found.append(finding)
    return found or _with_strangers(recording)


def _target_place(recording: Recording, record: BatchesRecord) -> tuple[Frame, ...]:
    target = record.target
    if record.shuffles:
        return record.shuffles[-1:]
    if record.loader is not None and record.loader.collate_at is not None:
        return (record.loader.collate_at,)
    if target is not None:
        chain = target_frame(recording, target)
        if chain:
            return chain
    loader = record.loader
    if loader is not None:
        frame = loader.item_at or loader.source_at or loader.dataset_at
        return (frame,) if frame is not None else loader.made_at
    return record.inputs.read_at


def _learns(recording: Recording, target: TargetPart) -> bool:
    """Whether the loss is far below that of a guess."""
    guess, last = chance(target), last_loss(recording)
    return guess is not None and last is not None and last < LEARNT * guess


def _moved_in_loop(recording: Recording, record: BatchesRecord) -> Finding | None:
    target, pairs = plain_target(record), record.pairs
    if target is None or pairs.compared < FEWEST or pairs.moved < MOVED * pairs.compared:
        return None
    if _learns(recording, target):
        return None
    chain = target_frame(recording, target)
    frame = chain[-1] if chain else record.rows_at
    return Finding(
        CODE,
        Severity.ERROR,
        f"the loss compares outputs with the targets of other samples of the batch, in {pairs.moved} of "
        f"{pairs.compared} batches: the loader had paired them otherwise",
        at_frame(frame, chain or record.inputs.read_at),
        {"batches": pairs.compared, "paired otherwise": pairs.moved},
        "change the order of inputs and targets together, by one permutation",
        confirmed=True,
    )


def _with_strangers(recording: Recording) -> list[Finding]:
    """The order of the samples changes on the way from the inputs to the loss: sorted and not put back, for one."""
    compared: list[tuple[Objective, int, Value, Value, float]] = []
    for objective in objectives(recording):
        for index, output, target in comparisons(objective):
            share = objective.op(index).measured.get("other samples")
            leaf = objective.source(target)[1]
            if share is None or leaf.leaf != "batch" or _is_read(objective, index, leaf.name):
                continue
            compared.append((objective, index, output, target, share))
    strange = [item for item in compared if item[4] >= STRANGERS]
    course = course_of(recording)
    if len(strange) < SEEN or len(strange) < len(compared) or course is None or course.fell > LEARNS:
        return []
    objective, index, output, target, share = strange[0]
    chain = _reordered(objective, output) or _reordered(objective, target) or objective.line(index)
    return [
        Finding(
            CODE,
            Severity.ERROR,
            f"the loss compares outputs with the targets of other samples of the batch ({100 * share:.0f} % of them): "
            "on the way to the loss the order of the samples changes",
            at_frame(None, chain),
            {"losses seen": len(strange), "compared with another sample's target": share},
            "put the outputs back into the order of the batch before they are compared (order.argsort()), or give the "
            "targets the same order",
            confirmed=True,
        )
    ]


def _is_read(objective: Objective, index: int, name: str | None) -> bool:
    """Whether an output was computed from the tensor that it is compared with: a series and its future."""
    behind = objective.anatomy.behind(index)
    return any(
        value.leaf == "batch" and value.name == name
        for at in behind
        if at != index and objective.op(at).name not in MOVES
        for value in objective.op(at).inputs
    )


def _reordered(objective: Objective, value: Value) -> tuple[Frame, ...]:
    """The last line on the way to a value that picks rows in another order."""
    behind = [] if value.op is None else [*objective.anatomy.behind(value.op, through=False), value.op]
    for index in sorted(behind, reverse=True):
        op = objective.op(index)
        if op.name not in ("index", "index_select", "flip", "roll", "sort", "take_along_dim", "gather"):
            continue
        taken = op.inputs[0]
        if taken.samples == "apart" and taken.shape and taken.over and op.outputs[0].shape == taken.shape:
            return objective.line(index)
    return ()


def _turned_apart(record: BatchesRecord) -> Finding | None:
    """Images are mirrored or turned at random, and the images that they are compared with aren't."""
    index, loader = record.index, record.loader
    if index is None or loader is None or index.apart < TURNED or index.together > 0.1 * index.apart:
        return None
    how = max(index.turned, key=index.turned.__getitem__)
    return Finding(
        CODE,
        Severity.ERROR,
        f"inputs come turned {how} at random, and their targets, images of the same size, are not turned with them "
        f"({index.apart} of {index.apart + index.together} pairs of samples of one index)",
        at_frame(loader.random_at or loader.item_at or loader.dataset_at, loader.made_at),
        {"turned without their target": index.apart, "turned with it": index.together, "not turned": index.upright},
        "draw once how a sample is turned, and turn input and target alike",
        confirmed=True,
    )


def _dealt_again(recording: Recording, record: BatchesRecord) -> Finding | None:
    target, pairs = plain_target(record), record.pairs
    if target is None or not pairs.even or pairs.inputs < 32 or pairs.again < AGAIN or target.given is False:
        return None
    if record.inputs.discrete and record.inputs.distinct < 64:
        return None
    if _learns(recording, target):
        return None  # which it can't if its targets change
    expected = 1.0 - pairs.chance
    if expected < 0.1 or pairs.changed < RANDOM * expected * pairs.again or pairs.closed < CLOSED:
        return None
    chain = _target_place(recording, record)
    return Finding(
        CODE,
        Severity.ERROR,
        f"the same input comes with another target each time: {pairs.changed} of {pairs.again} times, which is what "
        f"dealing the targets out at random would give ({100 * expected:.0f} %)",
        at_frame(None, chain),
        {
            "inputs": pairs.inputs,
            "came again": pairs.again,
            "with another target": pairs.changed,
            "expected at random": expected * pairs.again,
        },
        "shuffle inputs and targets by the same order: one dataset of pairs, or one permutation for both",
        confirmed=True,
    )


def _paired_otherwise(recording: Recording, record: BatchesRecord) -> Finding | None:
    target, probe = plain_target(record), record.pairing
    if target is None or probe is None or target.given is False or probe.skill > max(NOTHING, probe.noise):
        return None
    if target.kind not in (*CLASSES, "mse", "square", "smooth l1", "huber", "bce", "bce with logits"):
        return None
    proof = probe.other is not None and probe.other >= CLEAR and probe.other > probe.noise + 0.25
    apart = bool(record.shuffles) and probe.samples >= SAMPLES
    if not (proof or apart):
        return None
    return Finding(
        CODE,
        Severity.ERROR,
        f"targets can't be told from the inputs that they are paired with (skill {max(0.0, probe.skill):.2f} on "
        f"{probe.samples} samples){_told(probe, proof)}",
        at_frame(None, _target_place(recording, record)),
        {
            "skill as paired": probe.skill,
            "largest skill of random pairings": probe.noise,
            "skill of another pairing": probe.other if proof else None,
            "that pairing": (probe.named or probe.pairing) if proof else None,
            "samples": probe.samples,
        },
        "pair each input with its own target: shuffle, filter and sort both by the same order",
        confirmed=proof,
    )


def _told(probe: PairingProbe, proof: bool) -> str:
    if not proof or probe.other is None:
        return ", and the program shuffles inputs and targets by different random orders"
    how = f"as {probe.named} stand in the program" if probe.named else f"with targets {probe.pairing}"
    return f", but very well {how} (skill {probe.other:.2f})"
