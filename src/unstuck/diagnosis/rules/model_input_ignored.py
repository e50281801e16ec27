"""model.input-ignored: the output doesn't depend on the input.

A variable is computed and another one used, a gate is 0, an input is cast to integers that are all the same: the
loss falls to what a constant output reaches, and stays.

Found by walking back from what the loss compares with the targets: if that ends at parameters, buffers and what the
model makes by itself, never at the batch, the output is the same whatever the input is. A walk also stops at a result
that is one and the same number everywhere, if an operation made it so that destroys values (a product with 0, a cast,
a normalisation over a single number); not at units that are off, which is another cause. Data of unknown origin (a
round trip through numpy, numbers drawn by the loop) is taken for the input. With several inputs: one that goes into
layers whose results reach no loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from unstuck.diagnosis.objective import Objective, made, objectives, source, user_line
from unstuck.diagnosis.optimizing import at_line
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy, Op, Value
from unstuck.record.recording import Recording
from unstuck.record.trials import DependenceTrial

__all__ = ["CODE", "rule"]

CODE = "model.input-ignored"

FEWEST = 2
"""Losses in which it was seen: a gate or a head that starts at 0 opens with the first step."""

_COMPARING = frozenset(
    (
        *(
            "mse_loss",
            "smooth_l1_loss",
            "huber_loss",
            "sub",
            "binary_cross_entropy",
            "binary_cross_entropy_with_logits",
        ),
        *("nll_loss", "nll_loss2d"),
    )
)
_VALUES_UNREAD = frozenset(
    (
        *("zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty"),
        *("new_empty_strided", "zero", "fill", "rand_like", "randn_like", "randint_like"),
    )
)
"""Operations that read no values of what they take."""

_OVERWRITING = frozenset(("normal", "uniform", "random", "exponential", "bernoulli"))
"""Operations that draw numbers into what they take, where they work in place."""

_DESTROYING = frozenset(
    (
        *("mul", "to_copy", "layer_norm", "group_norm", "sub", "masked_fill", "where", "floor", "round", "trunc"),
        *("softmax", "clamp", "copy", "zero", "fill", "div"),
    )
)
"""Operations that, where their result is the same number everywhere, have lost what they took."""

_LAYERS = frozenset(("addmm", "mm", "bmm", "linear", "convolution", "lstm", "gru", "rnn", "embedding"))


@dataclass(frozen=True)
class Walk:
    """Where the values of an output come from.

    Attributes:
        reaches_data: it may depend on the batch.
        lost_at: operations at which the input's values were lost.
        visited: operations in its history.
    """

    reaches_data: bool
    lost_at: tuple[int, ...]
    visited: frozenset[int]


def rule(recording: Recording) -> list[Finding]:
    """At most one finding: of the whole input, else of those inputs that reach no loss."""
    anatomies = [item for item in recording.all(Anatomy) if _has_batch(item)]
    blind: list[tuple[Objective, Value, Walk]] = []
    last: dict[int, bool] = {}
    for objective in objectives(recording):
        if not any(item is objective.anatomy for item in anatomies):
            continue
        verdict = _blind_output(objective)
        if verdict is None:
            continue
        output, walk = verdict
        ignored = not walk.reaches_data
        last[id(objective.anatomy)] = ignored
        if ignored:
            blind.append((objective, output, walk))
    trial = next(iter(recording.all(DependenceTrial)), None)
    if blind and last and all(last.values()) and len(blind) >= FEWEST:
        if trial is not None and trial.model and trial.depends:
            return []
        return [_finding(*blind[-1], len(blind), trial)]
    return _unused(anatomies) if anatomies else []


def _has_batch(anatomy: Anatomy) -> bool:
    return any(value.leaf == "batch" for op in anatomy.ops for value in op.inputs)


# -- the whole input ---------------------------------------------------------------------------------------------------


def _blind_output(objective: Objective) -> tuple[Value, Walk] | None:
    """The output that the loss compares with targets, and where it comes from; None where it compares none.

    An output that depends on the input is preferred: one is enough.
    """
    found: tuple[Value, Walk] | None = None
    for output in _outputs(objective):
        walk = _walk(objective.anatomy, output)
        if walk.reaches_data:
            return output, walk
        if found is None or len(walk.visited) > len(found[1].visited):
            found = (output, walk)
    return found


def _outputs(objective: Objective) -> Iterator[Value]:
    """What the loss compares with data of the batch, or with data of its size."""
    size = objective.anatomy.batch_size
    for index in objective.members:
        op = objective.op(index)
        if op.name not in _COMPARING or len(op.inputs) < 2 or not objective.is_output(index):
            continue
        one, other = op.inputs[:2]
        if bool(one.grad) == bool(other.grad):
            continue
        output, target = (one, other) if one.grad else (other, one)
        if not size or not target.shape or not output.shape or objective.parameter(output) is not None:
            continue
        likelihood = op.name in ("nll_loss", "nll_loss2d")
        if target.shape[0] % size if likelihood else (target.shape[0] != size or output.shape != target.shape):
            continue
        if _walk(objective.anatomy, target).reaches_data:
            yield output


def _walk(anatomy: Anatomy, value: Value) -> Walk:
    waiting, seen = [value], set[int]()
    reaches = False
    lost: list[int] = []
    while waiting:
        here = waiting.pop()
        if here.op is None:
            reaches = reaches or here.leaf == "batch" or (here.leaf == "constant" and math.prod(here.shape) > 1)
            continue
        if here.op in seen:
            continue
        seen.add(here.op)
        op = anatomy.ops[here.op]
        if op.name in _VALUES_UNREAD or (op.in_place and op.name in _OVERWRITING) or _is_one_number(anatomy, here, op):
            lost.append(here.op)
        else:
            waiting.extend(op.inputs)
            reaches = reaches or _brings_in(anatomy, here, op)
    return Walk(reaches, tuple(item for item in lost if _had_data(anatomy, item)), frozenset(seen))


def _brings_in(anatomy: Anatomy, value: Value, op: Op) -> bool:
    """Whether an operation makes numbers out of nothing that may stand for data: outside of all modules, or random."""
    if op.inputs:
        return False
    result = made(anatomy, value)
    return result.low != result.high and (op.running is None or op.name.startswith("rand"))


def _is_one_number(anatomy: Anatomy, value: Value, op: Op) -> bool:
    result = made(anatomy, value)
    return (
        op.name in _DESTROYING
        and math.prod(result.shape) > 1
        and result.low is not None
        and result.low == result.high
        and any(math.prod(item.shape) > 1 for item in op.inputs)
    )


def _had_data(anatomy: Anatomy, index: int) -> bool:
    """Whether an operation took something that comes from the batch."""
    waiting, seen = list(anatomy.ops[index].inputs), set[int]()
    while waiting:
        here = waiting.pop()
        if here.leaf == "batch":
            return True
        if here.op is not None and here.op not in seen:
            seen.add(here.op)
            waiting.extend(anatomy.ops[here.op].inputs)
    return False


def _finding(objective: Objective, output: Value, walk: Walk, count: int, trial: DependenceTrial | None) -> Finding:
    anatomy = objective.anatomy
    lost = max(walk.lost_at, default=None)
    if lost is not None:
        result = anatomy.ops[lost].outputs[0] if anatomy.ops[lost].outputs else output
        how = (
            f"{anatomy.ops[lost].name} has made it {result.low:g} everywhere"
            if result.low is not None
            else "it is lost"
        )
        at, remedy = lost, "let the values of the input pass here"
    else:
        at, how = _place(objective, walk)
        remedy = "use what is computed from the input"
    chain = user_line(anatomy, at)
    module = anatomy.ops[at].module
    return Finding(
        CODE,
        Severity.ERROR,
        f"the output doesn't depend on the input: {how}",
        at_line(chain, module=module or None, op=anatomy.ops[at].name if lost is not None else None),
        {"losses seen": count, "output": "x".join(map(str, output.shape)), **_shown(trial)},
        remedy,
    )


def _shown(trial: DependenceTrial | None) -> dict[str, str]:
    if trial is None or trial.depends:
        return {}
    return {"tried": f"no output moves when all {trial.samples} samples change places"}


def _place(objective: Objective, walk: Walk) -> tuple[int, str]:
    """The operation that takes something else than what was computed from the input, and what is wrong with it."""
    anatomy = objective.anatomy
    unused = _last_unused(objective)
    if unused is not None:
        result = anatomy.ops[unused].outputs[0]
        siblings = {_root_of(anatomy, value) for value in anatomy.ops[unused].inputs}
        later = [index for index in sorted(walk.visited) if index > unused]
        for index in later:
            if any(
                value.shape == result.shape and _root_of(anatomy, value) in siblings
                for value in anatomy.ops[index].inputs
            ):
                return index, "a value from before the input was brought in is used, and the one with it never is"
        for index in later:
            op = anatomy.ops[index]
            if op.name in _LAYERS and any(value.shape == result.shape for value in op.inputs):
                return index, "another value is used, and what is computed from the input never is"
        return unused, "what is computed from it is never used"
    layers = [index for index in sorted(walk.visited) if anatomy.ops[index].name in _LAYERS]
    return (layers[0] if layers else objective.root), "nothing of the batch goes into it"


def _root_of(anatomy: Anatomy, value: Value) -> tuple[int | None, str | None]:
    index, here = source(anatomy, value)
    return index, here.name if index is None else None


def _last_unused(objective: Objective) -> int | None:
    """The last operation on data of the batch, in the same pass, whose result nobody takes."""
    anatomy = objective.anatomy
    begin = max(
        (mark.at for mark in anatomy.marks if mark.kind in ("step", "batch") and mark.at < objective.root), default=0
    )
    taken = {value.op for op in anatomy.ops for value in op.inputs}
    for index in range(objective.root, begin - 1, -1):
        op = anatomy.ops[index]
        if not op.backward and op.grad_mode and index not in taken and _is_computed(anatomy, index):
            return index
    return None


def _is_computed(anatomy: Anatomy, index: int) -> bool:
    op = anatomy.ops[index]
    return (
        bool(op.outputs)
        and bool(op.outputs[0].shape)
        and any(value.grad for value in op.inputs)
        and _had_data(anatomy, index)
    )


# -- one of several inputs ---------------------------------------------------------------------------------------------


def _unused(anatomies: list[Anatomy]) -> list[Finding]:
    """A finding about inputs that layers work on without a result that reaches a loss."""
    anatomy = anatomies[0]
    if not anatomy.whole or len(anatomy.losses()) < FEWEST:
        return []
    reached: set[str] = set()
    read: dict[str, int] = {}
    origins = _origins(anatomy)
    for _, root in anatomy.losses():
        if root is None:
            return []
        reached |= origins[root]
    last = max(mark.at for mark, _ in anatomy.losses())
    for index, op in anatomy.forward():
        if index >= last or not op.grad_mode or op.name not in _LAYERS:
            continue
        if any(value.leaf == "parameter" or _is_parameter(anatomy, value) for value in op.inputs):
            for name in origins[index]:
                read.setdefault(name, index)
    ignored = {name: index for name, index in read.items() if name not in reached}
    if not ignored or not reached:
        return []
    name, index = next(iter(ignored.items()))
    chain = _dropped(anatomy, origins, set(ignored), index, last) or user_line(anatomy, index)
    return [
        Finding(
            CODE,
            Severity.WARNING,
            f"the input {name} of the batch goes into {anatomy.ops[index].module or 'a layer'}, but nothing of it "
            "reaches a loss",
            at_line(chain, module=anatomy.ops[index].module or None),
            {"inputs": sorted(ignored)},
            "use what is computed from this input",
        )
    ]


def _dropped(
    anatomy: Anatomy, origins: list[frozenset[str]], names: set[str], read: int, last: int
) -> tuple[Frame, ...]:
    """The last line that computes something from these inputs alone, which then nobody takes.

    Args:
        anatomy: of the first steps.
        origins: what each operation's results depend on.
        names: of the inputs.
        read: the operation of a layer that reads them.
        last: where the last loss was made.
    """
    taken = {value.op for op in anatomy.ops for value in op.inputs}
    ends = [
        index
        for index, op in anatomy.forward()
        if read <= index < last and op.grad_mode and index not in taken and origins[index] and origins[index] <= names
    ]
    if not ends:
        return ()
    chain, reading = anatomy.chain(anatomy.ops[ends[-1]].chain), anatomy.chain(anatomy.ops[read].chain)
    if not chain or not reading:
        return chain
    # a helper's result is dropped by its caller, where the layer was called as well
    caller = (reading[-1].file, reading[-1].function)
    same = [place for place, frame in enumerate(chain) if (frame.file, frame.function) == caller]
    return chain[: same[-1] + 1] if same else chain


def _is_parameter(anatomy: Anatomy, value: Value) -> bool:
    index, here = source(anatomy, value)
    return index is None and here.leaf == "parameter"


def _origins(anatomy: Anatomy) -> list[frozenset[str]]:
    """For each operation the batch's tensors that its results may depend on."""
    found: list[frozenset[str]] = []
    nothing: frozenset[str] = frozenset()
    for op in anatomy.ops:
        names = nothing
        for value in op.inputs:
            if value.leaf == "batch" and value.name is not None:
                names |= {value.name}
            elif value.op is not None and value.op < len(found):
                names |= found[value.op]
        found.append(names)
    return found
