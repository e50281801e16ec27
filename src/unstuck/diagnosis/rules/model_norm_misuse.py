"""model.norm-misuse: a normalisation layer that can't work as it is set.

Each check reports only what has an effect:

- the statistics are taken over so few values that little but a sign is left of them: batch normalisation of one or two
  samples without a spatial extent, groups of one channel, a layer normalisation over one feature; or only in the last
  batch of each epoch, and the loss shows it;
- the running statistics of a batch normalisation follow too slowly to be right by the end of the run (a momentum of
  0.001 or 0: torch's is the weight of the new value, others' that of the old one), or follow a single small batch
  (0.99), so that evaluation sees another network than training;
- it normalises along another axis than that of its features: time steps, positions;
- its eps outweighs the variance that it divides by;
- it brings each channel of a sample to mean 0, and a mean over the same places follows: nothing is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from unstuck.diagnosis.layers import Graph, graphs_of
from unstuck.diagnosis.optimizing import at_line, middle
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.anatomy import ModelPart, Op, Value
from unstuck.record.batch_sizes import BatchSizes
from unstuck.record.batches import BatchesRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "model.norm-misuse"

FEWEST, FEW = 2.0, 4.0
"""Values per statistic: at most so many leave a sign only; at most so many more leave little."""

SMALL_MOMENTUM, LARGE_MOMENTUM = 0.02, 0.9
STILL_INITIAL = 0.25
"""Part of the running statistics that is still that of the new layer at the end of the run."""

SHIFT, SCALE = 0.5, 1.5
"""How far evaluation must lie from training, in standard deviations or as a factor."""

NOISE = 0.12
"""Standard error of running statistics, in standard deviations, that is reported for a large momentum."""

LARGE_EPS, PASSED = 1e-2, 0.1
"""An eps beyond every default, and what it must leave of unit variance at most."""

LOSS_GROWTH = 1.3
"""Loss of passes with few samples over that of their neighbours."""

VANISHED = 1e-4
"""What a mean leaves of the deviation of what it is taken of, where nothing is left."""

FEWEST_SMALL = 3
"""Times that a small batch came."""


@dataclass(frozen=True)
class Norm:
    """One normalisation in one pass."""

    graph: Graph
    index: int
    part: ModelPart | None

    @property
    def op(self) -> Op:
        """Its operation."""
        return self.graph.anatomy.ops[self.index]

    @property
    def values(self) -> float | None:
        """Values per statistic."""
        return self.op.measured.get("values per statistic")

    @property
    def name(self) -> str:
        """How to call it."""
        return (self.part.path if self.part is not None else self.op.module) or self.op.name

    @property
    def lines(self) -> tuple[Frame, ...]:
        """The user's lines down to its construction, else to its call."""
        path = self.part.path if self.part is not None else None
        return self.graph.made(path) or self.graph.anatomy.chain(self.op.chain)


def rule(recording: Recording) -> list[Finding]:
    """At most one finding: the worst, with how many layers it concerns."""
    graphs = graphs_of(recording)
    if not graphs:
        return []
    early = list(_norms(graphs[0]))
    last = list(_norms(graphs[-1]))
    checks = (
        _few_values(early),
        _slow_statistics(recording, early, last),
        _small_batches(recording, early),
        _jumping_statistics(recording, early),
        _wrong_axis(early),
        _large_eps(early),
        _erased(early),
    )
    found = [finding for finding in checks if finding is not None]
    return sorted(found, key=lambda item: item.severity.rank)[:1]


def _norms(graph: Graph) -> Iterator[Norm]:
    """Normalisations in training of the first anatomy's passes that reach a loss."""
    for index, op in graph.anatomy.forward():
        if op.grad_mode and op.name in ("batch_norm", "layer_norm", "group_norm") and op.measured:
            yield Norm(graph, index, graph.module(op.module))


def _finding(
    severity: Severity, norms: list[Norm], said: str, evidence: dict[str, object], remedy: str, step: int | None = None
) -> Finding:
    first = norms[0]
    names = list(dict.fromkeys(norm.name for norm in norms))
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return Finding(
        CODE,
        severity,
        f"{first.name}{more} {said}",
        at_line(first.lines, step=step, module=first.part.path if first.part is not None else first.op.module),
        {**evidence, "layers": names[:64]},
        remedy,
    )


def _few_values(norms: list[Norm]) -> Finding | None:
    most: dict[str, float] = {}
    for norm in norms:
        most[norm.name] = max(most.get(norm.name, 0.0), norm.values or math.inf)
    few = [norm for norm in norms if most[norm.name] <= (FEW if _over_samples(norm) else FEWEST)]
    if not few:
        return None
    values = most[few[0].name]
    if few[0].op.name == "batch_norm":
        remedy = (
            "use larger batches, or a normalisation that looks at one sample alone (GroupNorm, LayerNorm)"
            if not _is_instance(few[0])
            else "leave the normalisation out where the map is that small"
        )
    else:
        remedy = "normalise over more features: fewer groups, or the whole feature dimension"
    what = "leaves nothing of its input" if values <= 1 else "leaves little but signs"
    if values > FEWEST:
        what = "are too few for a mean and a variance"
    return _finding(
        Severity.ERROR if values <= FEWEST else Severity.WARNING,
        few,
        f"normalises over {values:.0f} value{'s' if values > 1 else ''} at a time, which {what}",
        {"values per statistic": values, "shape": list(few[0].op.inputs[0].shape)},
        remedy,
    )


def _over_samples(norm: Norm) -> bool:
    return norm.op.name == "batch_norm" and not _is_instance(norm)


def _is_instance(norm: Norm) -> bool:
    return norm.part is not None and norm.part.kind.startswith("InstanceNorm")


def _small_batches(recording: Recording, norms: list[Norm]) -> Finding | None:
    """Batches of a few samples that come now and then: the rest of an epoch."""
    batch_norms = [norm for norm in norms if _over_samples(norm) and norm.values]
    if not batch_norms:
        return None
    tight = min(batch_norms, key=lambda norm: norm.values or math.inf)
    for sizes in recording.all(BatchSizes):
        usual = sizes.usual
        if not usual or not sizes.counts:
            continue
        smallest = min(sizes.counts)
        values = (tight.values or math.inf) * smallest / usual
        times = sizes.counts[smallest]
        if values > FEW or smallest * 4 > usual or not FEWEST_SMALL <= times <= sizes.passes // 3:
            continue
        steps = sizes.steps.get(smallest, [])
        there, around = _losses_at(recording, steps)
        if there is None or around is None or not there > LOSS_GROWTH * around > 0.0:
            continue
        lines = next((item.loader.made_at for item in recording.all(BatchesRecord) if item.loader), ())
        finding = _finding(
            Severity.WARNING,
            [tight],
            f"normalises over {values:.0f} values in {times} of {sizes.passes} passes, those with {smallest} samples "
            f"instead of {usual}: their loss is {there:.3g} where their neighbours' is {around:.3g}",
            {"samples": smallest, "usual samples": usual, "times": times, "loss": there, "loss around": around},
            "leave the rest of an epoch out (drop_last=True), or choose a batch size without such a rest",
            step=steps[0] if steps else None,
        )
        return finding if not lines else _at(finding, lines)
    return None


def _at(finding: Finding, lines: tuple[Frame, ...]) -> Finding:
    where = at_line(lines, step=finding.where.step, module=finding.where.module)
    return Finding(finding.code, finding.severity, finding.summary, where, finding.evidence, finding.remedy)


def _losses_at(recording: Recording, steps: list[int]) -> tuple[float | None, float | None]:
    """(middle loss of these steps, middle of those right before and after them)."""
    losses = {item.start: item.last[0] for item in recording.loss_series if item.start == item.end}
    there = [losses[step] for step in steps if step in losses]
    around = [
        losses[near] for step in steps for near in range(step - 3, step + 4) if near not in steps and near in losses
    ]
    return middle(there), middle(around)


def _slow_statistics(recording: Recording, early: list[Norm], last: list[Norm]) -> Finding | None:
    steps = max([item.steps for item in recording.optimizers], default=0)
    if not last or last[0].graph.anatomy.step < 10:
        return None
    slow = []
    for norm in last:
        momentum = _momentum(norm)
        if momentum is None or momentum > SMALL_MOMENTUM or (1.0 - momentum) ** steps < STILL_INITIAL:
            continue
        shift = norm.op.measured.get("evaluation shift", 0.0)
        scale = norm.op.measured.get("evaluation scale", 1.0)
        if shift >= SHIFT or scale >= SCALE:
            slow.append(norm)
    if not slow:
        return None
    momentum = _momentum(slow[0]) or 0.0
    numbers = slow[0].op.measured
    left = (1.0 - momentum) ** steps
    made = {norm.name: norm for norm in early}
    return _finding(
        Severity.ERROR,
        [made.get(norm.name, norm) for norm in slow],
        f"has a momentum of {momentum:.2g}: after {steps} steps its running statistics are still {left:.0%} those of "
        f"a new layer, and evaluation shifts its result by {numbers.get('evaluation shift', 0.0):.2g} standard "
        f"deviations and scales it by {numbers.get('evaluation scale', 1.0):.2g}",
        {
            "momentum": momentum,
            "steps": steps,
            "part of the initial statistics": left,
            "evaluation shift": numbers.get("evaluation shift"),
            "evaluation scale": numbers.get("evaluation scale"),
            "step": slow[0].graph.anatomy.step,
        },
        "use torch's default momentum of 0.1: it is the weight of the new batch, 1 - decay in other libraries' terms",
    )


def _jumping_statistics(recording: Recording, norms: list[Norm]) -> Finding | None:
    jumping = []
    for norm in norms:
        momentum = _momentum(norm)
        if momentum is None or momentum < LARGE_MOMENTUM or "evaluation shift" not in norm.op.measured:
            continue
        if norm.values and math.sqrt(momentum / (2.0 - momentum) / norm.values) >= NOISE:
            jumping.append(norm)
    if not jumping:
        return None
    momentum, values = _momentum(jumping[0]) or 0.0, jumping[0].values or 1.0
    noise = math.sqrt(momentum / (2.0 - momentum) / values)
    return _finding(
        Severity.WARNING,
        jumping,
        f"has a momentum of {momentum:.3g}: its running statistics are those of the last batch alone, {values:.0f} "
        f"values, and so uncertain by {noise:.2g} standard deviations",
        {"momentum": momentum, "values per statistic": values, "standard error": noise},
        "use torch's default momentum of 0.1: it is the weight of the new batch, 1 - decay in other libraries' terms",
    )


def _momentum(norm: Norm) -> float | None:
    """Weight of the new batch; None where there are no running statistics, or they are averages over all batches."""
    if norm.op.name != "batch_norm" or norm.part is None or _is_instance(norm):
        return None
    momentum = norm.part.settings.get("momentum")
    tracked = norm.part.settings.get("track_running_stats", True)
    return float(momentum) if isinstance(momentum, (int, float)) and tracked else None


def _large_eps(norms: list[Norm]) -> Finding | None:
    large = [
        norm
        for norm in norms
        if float(norm.op.settings.get("eps") or 0.0) >= LARGE_EPS and norm.op.measured.get("passed", 1.0) <= PASSED
    ]
    if not large:
        return None
    eps, passed = float(large[0].op.settings["eps"]), large[0].op.measured["passed"]
    return _finding(
        Severity.WARNING,
        large,
        f"has an eps of {eps:.3g}, far above the variance of what it takes: {passed:.1%} of unit variance are left",
        {"eps": eps, "passed": passed},
        "use torch's default eps of 1e-5",
    )


def _erased(norms: list[Norm]) -> Finding | None:
    """Normalisations of single samples whose result is averaged over what they have brought to mean 0."""
    erased = []
    for norm in norms:
        if _over_samples(norm):
            continue
        source = norm.op.outputs[0]
        for user in norm.graph.users(norm.index):
            op = norm.graph.anatomy.ops[user]
            made = op.outputs[0] if op.outputs else None
            if op.name != "mean" or made is None or made.std is None or made.mean is None or len(made.shape) < 2:
                continue
            if (source.std or 0.0) > 0.1 and abs(made.mean) + made.std <= VANISHED * (source.std or 0.0):
                erased.append(norm)
    if not erased:
        return None
    return _finding(
        Severity.ERROR,
        erased,
        "brings every channel of each sample to mean 0, and the mean over the same places that follows is then 0 for "
        "every sample",
        {"shape": list(erased[0].op.inputs[0].shape)},
        "put an activation between the two, or normalise over the batch or over all channels instead",
    )


def _wrong_axis(norms: list[Norm]) -> Finding | None:
    wrong = [norm for norm in norms if _along_positions(norm)]
    if not wrong:
        return None
    shape = list(wrong[0].op.inputs[0].shape)
    if wrong[0].op.name == "batch_norm":
        said = (
            f"normalises dimension 1 of its input {shape}, the positions; the features lie along the last one: each "
            "position is brought to mean 0 over all features, and lengths can't vary"
        )
        remedy = "transpose(1, 2) before and after the batch normalisation, or use LayerNorm over the features"
    else:
        said = (
            f"normalises over the last dimension of its input {shape}, the places; the channels lie along dimension 1: "
            "each channel loses its mean and its size in every sample"
        )
        remedy = "normalise over the channels: transpose(1, 2) before and after, or GroupNorm(1, channels)"
    return _finding(Severity.WARNING, wrong, said, {"shape": shape}, remedy)


def _along_positions(norm: Norm) -> bool:
    """Whether it normalises along places of a sequence where the layer before has its features along another axis."""
    source, ops = norm.op.inputs[0], norm.graph.anatomy.ops
    if len(source.shape) != 3 or min(source.shape[1:]) < 2:
        return False
    maker = _maker(norm.graph, source)
    if norm.op.name == "batch_norm":
        if _is_instance(norm) or source.shape[1] == source.shape[2]:
            return False
        return (
            maker is not None
            and maker in norm.graph.layers
            and norm.graph.layers[maker].kind
            in (
                "linear",
                "embedding",
                "recurrent",
            )
        )
    if norm.op.name == "layer_norm":
        over = norm.op.settings.get("normalized_shape")
        return maker is not None and ops[maker].name == "convolution" and isinstance(over, list) and len(over) == 1
    return False


_KEEPING = frozenset(
    (
        "view",
        "reshape",
        "unsafe_view",
        "detach",
        "alias",
        "clone",
        "contiguous",
        "dropout",
        "add",
        "mul",
        "relu",
        "gelu",
    )
) | {"silu", "tanh", "sigmoid", "leaky_relu", "elu"}
"""Operations that leave the features along the axis on which they lie."""


def _maker(graph: Graph, value: Value) -> int | None:
    """The layer that made a value, its axes in the same order; None if there are others on the way."""
    for _ in range(8):
        if value.op is None:
            return None
        if value.op in graph.layers:
            return value.op
        op = graph.anatomy.ops[value.op]
        if op.name not in _KEEPING or not op.inputs:
            return None
        value = op.inputs[0]
    return None
