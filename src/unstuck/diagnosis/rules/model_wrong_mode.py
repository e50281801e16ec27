"""model.wrong-mode: a model trains in eval mode or is evaluated in train mode, where that has an effect.

In eval mode dropout is off and batch norm neither uses nor learns the statistics of the batch; a model that ``eval()``
put there for validation, or that a loader returned in it, stays there until somebody calls ``train()``. In train mode
predictions are random and depend on what else is in the batch.

Found from the ``training`` flag of dropout and batch norm layers at the steps of the optimiser that trains them, and at
calls of a trained model without gradients. Not reported: a model without such layers, layers that were put into eval
mode one by one or that are frozen, batch norm with statistics that were learnt before, repeated predictions of the same
input (their spread is wanted), train mode that the evaluating function sets itself, and predictions at every step.
"""

from __future__ import annotations

from statistics import median

from unstuck.diagnosis.wiring import connections, place, uncalled
from unstuck.findings import Finding, Severity, Where
from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy
from unstuck.record.connections import Connections, Statement
from unstuck.record.modes import EvaluationRecord, ModeRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "model.wrong-mode"

FEWEST = 8
"""Steps in eval mode below which it may be an accident."""

SHARE = 0.5
"""Share of all steps from which a model that once was in train mode counts as left in eval mode."""

MANY = 30
"""Or so many steps in a row up to the end."""

APART = 5
"""Steps that usually lie between two evaluations; predictions that a step itself uses come more often."""


def rule(recording: Recording) -> list[Finding]:
    """One finding for training, one for evaluation."""
    modes = recording.all(ModeRecord)
    off = [item for item in modes if _left_off(item)]
    record = connections(recording)
    forgotten = {} if record is None else {name: uncalled(record, name) for name in ("train", "eval")}
    found = [_training(off, forgotten.get("train"))] if off else []
    return [*found, *_evaluation(recording, forgotten.get("eval")), *_always_dropping(recording, record)]


# -- eval mode in training --------------------------------------------------------------------------------------------


def _left_off(item: ModeRecord) -> bool:
    if item.off_since is None or item.off < FEWEST or not item.trains:
        return False
    if item.on:
        # it was trained in train mode before, and everything around it was switched off together
        return item.whole and (item.off >= SHARE * (item.on + item.off) or item.off >= MANY)
    if item.kind == "batch norm":
        return item.fresh  # statistics that were learnt before may be kept on purpose
    return not item.itself and bool(item.set_at)


def _training(off: list[ModeRecord], forgotten: Statement | None) -> Finding:
    first = off[0]
    kinds = sorted({item.kind for item in off})
    names = "the model" if first.whole else first.within
    before = max(item.on for item in off)
    effect = {
        "dropout": "dropout is off",
        "batch norm": "batch norm doesn't use the statistics of the batch",
    }
    since = f"since step {first.off_since}" if before else "from the first step on"
    return Finding(
        CODE,
        Severity.WARNING,
        f"{names} trains in eval mode {since} ({max(item.off for item in off)} steps): "
        + " and ".join(effect[kind] for kind in kinds),
        _at(forgotten) or place(_set_at(first), first.within),
        {
            "steps in eval mode": max(item.off for item in off),
            "steps in train mode": before,
            "layers": len(off),
            "kinds": kinds,
        },
        "call model.train() before the training loop, and again after every evaluation"
        if before or first.whole
        else f"call train() on {names} before training",
    )


def _at(statement: Statement | None) -> Where | None:
    return None if statement is None else Where(file=statement.file, line=statement.line)


def _set_at(item: ModeRecord) -> tuple[Frame, ...]:
    chain = item.set_at or item.made_at
    if item.returned and len(chain) > 1:
        return chain[:-1]  # who got it from there is to switch it on
    return chain


# -- train mode in evaluation -----------------------------------------------------------------------------------------


def _evaluation(recording: Recording, forgotten: Statement | None) -> list[Finding]:
    every = recording.all(EvaluationRecord)
    still = {item.path for item in every if item.still}
    found = [item for item in every if item.active and item.path not in still and _evaluates(item)]
    return [_finding(found, forgotten)] if found else []


def _evaluates(item: EvaluationRecord) -> bool:
    if item.repeated or item.forced or not item.kinds:
        return False
    gaps = [after - before for before, after in zip(item.steps, item.steps[1:], strict=False)]
    return median(gaps) >= APART if gaps else item.steps[0] >= MANY


def _finding(found: list[EvaluationRecord], forgotten: Statement | None) -> Finding:
    first = found[0]
    kinds = sorted({kind for item in found for kind in item.kinds})
    effect = {
        "dropout": "dropout makes its predictions random",
        "batch norm": "batch norm normalises by the evaluated batch and learns from it",
    }
    return Finding(
        CODE,
        Severity.WARNING,
        f"{first.path} is evaluated in train mode: " + " and ".join(effect[kind] for kind in kinds),
        _at(forgotten) or place(first.at),
        {"evaluations": sum(item.active for item in found), "kinds": kinds, "steps": first.steps[:8]},
        "call model.eval() before evaluating, and model.train() after it",
    )


# -- dropout that no mode turns off -----------------------------------------------------------------------------------


def _always_dropping(recording: Recording, record: Connections | None) -> list[Finding]:
    """Functional dropout without ``training``, in a model that is evaluated in eval mode."""
    if record is None or not any(item.still and len(item.steps) > 1 for item in recording.all(EvaluationRecord)):
        return []
    used = {
        (frame.file, frame.line): chain
        for anatomy in recording.all(Anatomy)
        for _, op in anatomy.forward()
        if ("dropout" in op.name or op.name == "bernoulli") and (chain := anatomy.chain(op.chain))
        for frame in chain[-1:]
    }
    lines = [item for item in record.statements if item.kind == "dropout" and (item.file, item.line) in used]
    if not lines:
        return []
    return [
        Finding(
            CODE,
            Severity.WARNING,
            "functional dropout without training=self.training drops in evaluation too: eval() doesn't reach it",
            place(used[lines[0].file, lines[0].line]),
            {"lines": [item.line for item in lines]},
            "pass training=self.training, or use nn.Dropout",
        )
    ]
