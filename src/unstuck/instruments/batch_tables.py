"""Running tables over the batches of a training: scales, targets, order, what comes again.

Each takes one :class:`Look` at a time and sums up what it has seen in a part of the record. All of them are bounded.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from unstuck.measure.fingerprints import fingerprints
from unstuck.measure.graph_loss import GraphLoss
from unstuck.record.batches import (
    ConfusedPair,
    IndexPart,
    InputPart,
    LagPart,
    OrderPart,
    PairPart,
    TargetPart,
)

__all__ = ["Confusions", "Indices", "Inputs", "Kept", "Lags", "Look", "Order", "Pairs", "Targets", "Variant"]

_KNOWN = 20_000
"""Inputs, or indices, that are remembered."""

_VALUES = 1024
"""Different target values that are counted."""

_SCALE_LOOKS = 32
_CLOSE_LOOKS = 32
"""First looks whose target values, and lags, are all counted; later those of every fourth step."""

_COLUMNS, _SPREAD_COLUMNS = 512, 256
_ORDER = 4096
_LATE = 48
"""Last looks at which the model's choices are remembered."""

_ONE_CLASS = 0.9
"""Part of a batch that one class has for a batch to count as one of that class."""

_LAGS = (-2, -1, 0, 1, 2, 3)
_DISCRETE = 16
"""Different values in a batch up to which inputs count as discrete."""

_KEPT, _KEPT_ELEMENTS = 1024, 512
_VARIANTS, _VARIANT_INDICES, _VARIANT_ELEMENTS = 6, 48, 1 << 14

Numbers = npt.NDArray[np.float64]


@dataclass
class Look:
    """One training pass as it was looked at; tensors are the program's own and live no longer than the look.

    Attributes:
        step: optimiser steps that were complete.
        loss: the total.
        epoch: number of the loader's pass over the data, 0 without one.
        position: batches that it had given in this one; None without a loader.
        count: samples.
        rows: what the first module was given, (samples, elements) each, without what equals the target.
        shape: of the first of these as it was given.
        numbers: per sample a number that is equal where ``rows`` are.
        context: per sample a number that is equal where everything is that the pass was given beside the target.
        given: numbers of the samples as the loader gave them, without the target; None without indices.
        indices: the dataset's indices of the samples.
        parts: the loss's parts.
        main: the one that the target belongs to.
        target: (samples, values), on the CPU.
        torn: part of the samples whose target isn't the one that the loader gave with their input; None if unknown.
        from_batch: whether the target is a tensor of the loader's batch; None without a loader.
    """

    step: int
    loss: float | None
    epoch: int
    position: int | None
    count: int
    parts: list[GraphLoss]
    main: GraphLoss | None
    target: torch.Tensor | None
    indices: list[int] | None = None
    rows: list[torch.Tensor] = field(default_factory=list)
    shape: tuple[int, ...] = ()
    numbers: list[int] = field(default_factory=list)
    context: list[int] = field(default_factory=list)
    given: list[int] | None = None
    from_batch: bool | None = None
    torn: float | None = None

    @property
    def classes(self) -> list[int] | None:
        """One class id per sample, where the target is such."""
        main, target = self.main, self.target
        if main is None or target is None or target.shape[1] != 1:
            return None
        if main.kind in ("nll", "gather", "index", "multi margin"):
            return target[:, 0].tolist()
        if main.kind in ("bce", "bce with logits", "soft margin"):
            values = target[:, 0].tolist()
            if all(value in (0.0, 1.0, -1.0) for value in values):
                return [int(value) for value in values]
        return None

    def target_numbers(self) -> list[int]:
        """One number per sample, equal for equal targets; places that don't count, as padding, don't count here."""
        target, ignored = self.target, None if self.main is None else self.main.ignored
        if target is None:
            return []
        if ignored is not None and not target.dtype.is_floating_point:
            target = target.masked_fill(target == ignored, 0)
        return fingerprints(target)


def _numbers(table: torch.Tensor) -> Numbers:
    """Real numbers in double precision, 0 for those that aren't finite; for a few values numpy is the faster one."""
    numbers: Numbers = table.to(torch.float64).numpy()
    finite = np.isfinite(numbers)
    return numbers if finite.all() else np.where(finite, numbers, 0.0)


class Inputs:
    """Scales of the inputs, and whether samples or batches are all the same."""

    def __init__(self) -> None:
        self.part = InputPart()
        self._sums: tuple[Numbers, Numbers] | None = None
        self._values = 0
        self._first: list[int] | None = None
        self._seen: set[int] = set()
        self._discrete = True
        self._spreads: list[float] = []

    def add(self, look: Look) -> None:
        """Take a look."""
        part, numbers = self.part, look.numbers
        part.looks += 1
        if look.count > 1:
            part.compared += 1
            part.constant += len(set(numbers)) == 1
        if self._first is None:
            self._first = numbers
        elif numbers == self._first:
            part.again += 1
        if len(self._seen) < _KNOWN:
            self._seen.update(numbers)
        if part.looks <= _SCALE_LOOKS and look.rows:
            self._measure(look.rows[0], look.shape)

    def _measure(self, rows: torch.Tensor, shape: tuple[int, ...]) -> None:
        part = self.part
        part.shape, part.dtype = shape, str(rows.dtype).removeprefix("torch.")
        if rows.is_complex():
            return
        values = _numbers(rows[:, :: -(-rows.shape[1] // _COLUMNS)])
        between = values
        if rows.shape[1] > _SPREAD_COLUMNS:
            between = _numbers(rows[:, :: -(-rows.shape[1] // _SPREAD_COLUMNS)])
        values = values[:, :_COLUMNS] if len(shape) == 2 else values.reshape(-1, 1)
        squares = np.square(values)
        part.low, part.high = min(part.low, float(values.min())), max(part.high, float(values.max()))
        if rows.shape[0] > 1:
            size = math.sqrt(squares.mean())
            self._spreads.append(float(between.std(0, ddof=1).mean()) / size if size > 0.0 else 0.0)
        if self._discrete:
            self._discrete = rows.shape[1] < 4 or len(set(values.ravel()[:512].tolist())) <= _DISCRETE
        sums = values.sum(0), squares.sum(0)
        if self._sums is None:
            self._sums = sums
        elif self._sums[0].shape == sums[0].shape:
            self._sums = self._sums[0] + sums[0], self._sums[1] + sums[1]
        else:
            return
        self._values += values.shape[0]

    def close(self) -> InputPart:
        """What was seen."""
        part = self.part
        part.distinct = len(self._seen)
        part.discrete = self._discrete
        part.spread = float(np.median(self._spreads)) if self._spreads else 1.0
        if self._sums is not None and self._values:
            mean, square = self._sums[0] / self._values, self._sums[1] / self._values
            part.features = mean.shape[0]
            part.rms = np.sqrt(square).tolist()
            part.std = np.sqrt(np.maximum(square - np.square(mean), 0.0)).tolist()
        return part


class Targets:
    """Values of the targets."""

    def __init__(self) -> None:
        self.part = TargetPart()
        self._counts: Counter[float] = Counter()
        self._columns: tuple[Numbers, Numbers] | None = None
        self._rows = 0
        self._positions = True

    def add(self, look: Look) -> None:
        """Take a look."""
        main, target = look.main, look.target
        if main is None or target is None or target.is_complex():
            return
        part = self.part
        if not part.looks:
            part.kind, part.dtype = main.kind, str(target.dtype).removeprefix("torch.")
            part.ignored = main.ignored
        elif part.kind != main.kind:
            return
        part.looks += 1
        part.shape = tuple(target.shape)
        part.whole = part.whole and main.whole
        part.single = part.single and len(look.parts) == 1
        if look.from_batch is not None:
            part.given = look.from_batch if part.given is None else part.given and look.from_batch
        if main.prediction is not None and main.kind in ("nll", "gather", "index") and main.prediction.dim() > 1:
            part.classes = main.prediction.shape[1 if main.kind == "nll" else -1]
        values = target[:, :: -(-target.shape[1] // 4096)]
        small = values.numel() <= 4096
        if part.looks <= (_CLOSE_LOOKS if small else 4) or look.step % (4 if small else 8) == 0:
            self._measure(values, look)

    def _measure(self, values: torch.Tensor, look: Look) -> None:
        part = self.part
        numbers = _numbers(values)
        part.low, part.high = min(part.low, float(numbers.min())), max(part.high, float(numbers.max()))
        part.integral = part.integral and bool((numbers == np.rint(numbers)).all())
        part.values += numbers.size
        if part.kind in ("bce", "bce with logits"):
            part.outside += int(((numbers < -1e-6) | (numbers > 1.0 + 1e-6)).sum())
        if not part.many:
            self._counts.update(numbers.ravel()[:8192].tolist())
            part.many = len(self._counts) > _VALUES
        if values.shape[1] == 1 and self._positions:
            self._positions = values[:, 0].tolist() == list(range(values.shape[0]))
        elif values.shape[1] != 1:
            self._positions = False
        if numbers.shape[1] <= _COLUMNS:
            sums = numbers.sum(0), np.square(numbers).sum(0)
            if self._columns is None:
                self._columns = sums
            elif self._columns[0].shape == sums[0].shape:
                self._columns = self._columns[0] + sums[0], self._columns[1] + sums[1]
            else:
                return
            self._rows += numbers.shape[0]

    def close(self) -> TargetPart | None:
        """What was seen, None for nothing."""
        part = self.part
        if not part.looks:
            return None
        part.positions = self._positions
        part.counts = {}
        if part.integral and not part.many:
            part.counts = {int(value): count for value, count in sorted(self._counts.items())}
        if self._columns is not None and self._rows:
            mean, square = self._columns[0] / self._rows, self._columns[1] / self._rows
            part.mean = float(mean.mean())
            part.variance = float(np.maximum(square - np.square(mean), 0.0).mean())
        return part


class Order:
    """In which order class ids, or target values, come."""

    def __init__(self) -> None:
        self._epochs: set[int] = set()
        self._batches: list[tuple[int, int, float, float, float | None]] = []
        self._classes: list[int | None] = []
        self._steps: list[int] = []
        self._squares = 0.0
        self._sums = 0.0
        self._values = 0

    def add(self, look: Look) -> None:
        """Take a look."""
        if look.target is None or look.count < 4 or look.target.shape[1] != 1 or len(self._batches) >= _ORDER:
            return
        if look.target.is_complex():
            return
        # for so few numbers plain Python is as fast as anything; differences keep a large mean from hiding their spread
        values = look.target[:, 0].tolist()
        count, start = len(values), values[0]
        moved = [value - start for value in values]
        total, squares = sum(moved), sum(map(mul, moved, moved))
        mean, inner = start + total / count, squares / count - (total / count) ** 2
        self._sums += count * mean
        self._squares += count * (inner + mean * mean)
        self._values += count
        self._epochs.add(look.epoch)
        self._steps.append(look.step)
        self._batches.append((look.epoch, look.position or 0, mean, inner, look.loss))
        classes = look.classes
        main = None
        if classes is not None:
            label, count = Counter(classes).most_common(1)[0]
            main = label if count >= _ONE_CLASS * len(classes) else None
        self._classes.append(main)

    def close(self) -> OrderPart:
        """What was seen."""
        part = OrderPart(batches=len(self._batches), epochs=len(self._epochs))
        if not self._batches:
            return part
        told = [item for item in self._classes if item is not None]
        part.one_class, part.classes = len(told), len(set(told))
        before, after = [], []
        previous = None
        for index, label in enumerate(self._classes):
            if label is not None and previous is not None and label != previous:
                part.changes += 1
                losses = self._batches[index - 1][4], self._batches[index][4]
                # what was learnt between two batches that don't follow each other blurs the jump
                follows = self._steps[index] - self._steps[index - 1] <= 1
                if follows and losses[0] is not None and losses[1] is not None:
                    before.append(losses[0])
                    after.append(losses[1])
            previous = label if label is not None else previous
        # what is left of it once the model has begun to learn
        half = len(before) // 2
        part.before = float(np.median(before[half:])) if before else None
        part.after = float(np.median(after[half:])) if after else None
        part.repeated = self._repeated()
        total = self._squares / self._values - (self._sums / self._values) ** 2
        inner = sum(item[3] for item in self._batches) / len(self._batches)
        part.inner = math.sqrt(inner / total) if total > 0.0 else 1.0
        first = min(self._epochs)
        means = [item[2] for item in self._batches if item[0] == first]
        part.rise = _rank_correlation(means)
        return part

    def _repeated(self) -> float:
        """Part of the later batches that have the class of the first pass's batch at the same place."""
        first = min(self._epochs)
        known = {
            batch[1]: label
            for batch, label in zip(self._batches, self._classes, strict=True)
            if batch[0] == first and label is not None
        }
        later = [
            known[batch[1]] == label
            for batch, label in zip(self._batches, self._classes, strict=True)
            if batch[0] != first and label is not None and batch[1] in known
        ]
        return sum(later) / len(later) if later else 0.0


def _rank_correlation(values: list[float]) -> float:
    """Spearman's correlation of values with their places; 0 for fewer than four."""
    count = len(values)
    if count < 4 or len(set(values)) < 3:
        return 0.0
    ranks = [0.0] * count
    order = sorted(range(count), key=values.__getitem__)
    start = 0
    while start < count:
        end = start
        while end + 1 < count and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in range(start, end + 1):
            ranks[order[place]] = (start + end) / 2
        start = end + 1
    middle = (count - 1) / 2
    over = sum((place - middle) * (rank - middle) for place, rank in enumerate(ranks))
    under = math.sqrt(
        sum((place - middle) ** 2 for place in range(count)) * sum((rank - middle) ** 2 for rank in ranks)
    )
    return over / under if under > 0.0 else 0.0


@dataclass(slots=True)
class _Input:
    """An input that was seen: its first target and position, how often, with which different targets and when."""

    target: int
    position: int
    epoch: int
    visits: int = 1
    others: dict[int, int] | None = None
    inside: bool = False
    torn: bool = False
    other: tuple[int, int] | None = None

    def targets(self) -> dict[int, int]:
        """How often with which target."""
        return {self.target: self.visits} if self.others is None else self.others

    def visit(self, value: int) -> None:
        """It has come again."""
        if self.others is None and value != self.target:
            self.others = {self.target: self.visits}
        self.visits += 1
        others = self.others
        if others is not None and (len(others) < 16 or value in others):
            others[value] = others.get(value, 0) + 1


class Pairs:
    """Which inputs come again, and whether their targets are the same then."""

    def __init__(self) -> None:
        self._known: dict[int, _Input] = {}
        self._targets: Counter[int] = Counter()
        self._many = False
        self._samples = self._again = self._changed = 0
        self._classes = True
        self._usual = self._moved = self._compared = 0

    def add(self, look: Look) -> None:
        """Take a look."""
        if look.target is None or len(look.context) != look.count:
            return
        if look.torn is not None:
            self._compared += 1
            self._moved += look.torn > 0.2
        classes = look.classes
        if classes is None:
            self._classes = False
            target = look.target_numbers()
        else:
            target = classes
        self._samples += look.count
        inputs, epoch = self._known, look.epoch
        for position, (number, value) in enumerate(zip(look.context, target, strict=True)):
            known = inputs.get(number)
            if known is None:
                if len(inputs) >= _KNOWN:
                    continue
                inputs[number] = _Input(value, position, epoch)
                self._count(value)
                continue
            self._again += 1
            self._usual += value in self._targets
            self._count(value)
            known.visit(value)
            if value != known.target:
                self._changed += 1
                if known.other is None:
                    known.other = (position, value)
            if epoch == known.epoch:
                known.inside = True
                known.torn = known.torn or value != known.target

    def _count(self, value: int) -> None:
        if not self._many or value in self._targets:
            self._targets[value] += 1
            self._many = len(self._targets) > _KNOWN

    def close(self, passes_known: bool) -> PairPart:
        """What was seen; ``passes_known``: a loader told where its passes over the data begin."""
        part = PairPart(len(self._known), self._samples, self._again, self._changed)
        part.moved, part.compared = self._moved, self._compared
        total = sum(self._targets.values())
        if total:
            part.chance = sum((count / total) ** 2 for count in self._targets.values())
        visits = [item.visits for item in self._known.values()]
        if visits:
            part.even = max(visits) <= 2 * min(visits) + 2 and max(visits) >= 2
        part.copies = sum(item.inside for item in self._known.values())
        loss = 0.0
        for item in self._known.values():
            torn = item.torn if passes_known else len(item.targets()) > 1
            if not torn:
                continue
            part.torn += 1
            part.torn_samples += item.visits
            targets = item.targets()
            seen = sum(targets.values())
            loss -= sum(count * math.log(count / seen) for count in targets.values())
            if part.row is None and item.other is not None and self._classes:
                part.row = (item.position, item.other[0], item.target, item.other[1])
        if self._samples and self._classes:
            part.floor = loss / self._samples
        part.closed = self._usual / self._again if self._again else 0.0
        return part


Variant = tuple[torch.Tensor, torch.Tensor | None]
"""An image (channels, height, width), and its target where that is one of the same height and width."""


@dataclass
class _Index:
    number: int
    target: int | None
    variants: list[Variant]


class Indices:
    """Whether a dataset's index gives the same sample each time."""

    def __init__(self) -> None:
        self._known: dict[int, _Index] = {}
        self.part = IndexPart()
        self._kept = 0

    def add(self, look: Look) -> None:
        """Take a look."""
        if look.indices is None or look.given is None or not len(look.indices) == len(look.given) == look.count:
            return
        target: list[Any] = [None] * look.count
        if look.target is not None:
            target = look.classes or look.target_numbers()
        part = self.part
        for place, (index, number, value) in enumerate(zip(look.indices, look.given, target, strict=True)):
            known = self._known.get(index)
            if known is None:
                if len(self._known) < _KNOWN:
                    self._known[index] = _Index(number, value, self._image(look, place))
                continue
            part.again += 1
            part.same += number == known.number
            part.same_target += value == known.target
            if known.variants and len(known.variants) < _VARIANTS and number != known.number:
                known.variants += self._image(look, place, more=True)

    def _image(self, look: Look, place: int, more: bool = False) -> list[Variant]:
        """A copy of a sample that is an image, for a few indices."""
        if len(look.shape) != 4 or not look.rows or (self._kept >= _VARIANT_INDICES and not more):
            return []
        row = look.rows[0][place]
        if row.numel() > _VARIANT_ELEMENTS or not row.dtype.is_floating_point:
            return []
        self._kept += not more
        image = row.reshape(look.shape[1:]).to(torch.float32, copy=True)
        height, width = image.shape[-2:]
        if look.target is None or look.target.shape[1] % (height * width) or look.target.is_complex():
            return [(image, None)]
        return [(image, look.target[place].reshape(-1, height, width).to(torch.float32, copy=True))]

    def variants(self) -> list[list[Variant]]:
        """Samples of one index as they came at different times, for a few indices of which there are several."""
        return [item.variants for item in self._known.values() if len(item.variants) > 1]

    def close(self) -> IndexPart | None:
        """What was seen, None without indices."""
        self.part.indices = len(self._known)
        return self.part if self._known else None


class Lags:
    """By how many places a target of token ids is the input moved on."""

    def __init__(self) -> None:
        self._equal: Counter[int] = Counter()
        self._all: Counter[int] = Counter()
        self.part = LagPart()

    def add(self, look: Look) -> None:
        """Take a look."""
        main = look.main
        tokens = [row for row in look.rows if not row.dtype.is_floating_point and row.dtype is not torch.bool]
        if main is None or look.target is None or not tokens or main.kind not in ("nll", "gather", "index"):
            return
        given, target = tokens[0], look.target
        if given.shape[1] < 4 or abs(target.shape[1] - given.shape[1]) > 3 or target.dtype.is_floating_point:
            return
        part = self.part
        part.looks += 1
        # labels that the model is given as well may be the same ids once more
        others = [row for row in tokens[1:] if not torch.equal(row, given)]
        part.length, part.inputs, part.skipped = given.shape[1], 1 + len(others), main.skipped
        counted = target != (main.ignored if main.ignored is not None else -100)
        for lag in _LAGS:
            low, high = max(0, -lag), min(target.shape[1], given.shape[1] - lag)
            if high - low < 2:
                continue
            used = counted[:, low:high]
            equal = (target[:, low:high] == given[:, low + lag : high + lag]) & used
            self._equal[lag] += int(equal.sum())
            self._all[lag] += int(used.sum())

    def close(self) -> LagPart | None:
        """What was seen, None where there are no sequences of token ids."""
        if not self.part.looks:
            return None
        self.part.shares = {lag: self._equal[lag] / count for lag, count in self._all.items() if count}
        return self.part


class Confusions:
    """Which classes the model takes for each other on the last batches."""

    def __init__(self) -> None:
        self._last: deque[tuple[list[int], list[int], list[float]]] = deque(maxlen=_LATE)

    def add(self, look: Look) -> None:
        """Take a look."""
        main, classes = look.main, look.classes
        if main is None or classes is None or main.prediction is None:
            return
        prediction = main.prediction.detach()
        if main.kind == "nll" and prediction.dim() == 2 and prediction.shape[0] == look.count:
            top = prediction.max(1)
            chosen, sure = top.indices.tolist(), top.values.exp().tolist()
        elif main.kind in ("bce", "bce with logits") and prediction.numel() == look.count:
            flat = prediction.reshape(-1).float()
            share = flat.sigmoid() if main.kind == "bce with logits" else flat
            chosen, sure = (share > 0.5).long().tolist(), torch.maximum(share, 1 - share).tolist()
        else:
            return
        self._last.append((classes, chosen, sure))

    def right(self) -> float | None:
        """Share of samples that were classified rightly."""
        pairs = [pair for classes, chosen, _ in self._last for pair in zip(classes, chosen, strict=True)]
        return sum(a == b for a, b in pairs) / len(pairs) if pairs else None

    def close(self) -> list[ConfusedPair]:
        """Pairs of classes, the most confused first, at most eight."""
        wrong: Counter[tuple[int, int]] = Counter()
        of: Counter[int] = Counter()
        sure: Counter[int] = Counter()
        for classes, chosen, probabilities in self._last:
            for label, choice, probability in zip(classes, chosen, probabilities, strict=True):
                of[label] += 1
                sure[label] += probability  # type: ignore[assignment]
                if label != choice:
                    wrong[min(label, choice), max(label, choice)] += 1
        return [
            ConfusedPair(a, b, of[a] + of[b], count, (sure[a] + sure[b]) / (of[a] + of[b]))
            for (a, b), count in wrong.most_common(8)
            if of[a] and of[b]
        ]


class Kept:
    """Copies of a few samples, for what can only be told at the end."""

    def __init__(self) -> None:
        self._rows: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        self.indices: list[int] = []
        self._known: set[int] = set()
        self._width: tuple[int, int] | None = None
        self.classes = True

    def __len__(self) -> int:
        return len(self._known)

    def add(self, look: Look) -> None:
        """Take a look."""
        if len(self._known) >= _KEPT or look.target is None or not look.rows or look.target.shape[1] > 64:
            return
        rows = look.rows[0]
        if rows.is_complex():
            return
        rows = rows[:, :: -(-rows.shape[1] // _KEPT_ELEMENTS)]
        if self._width is None:
            self._width = rows.shape[1], look.target.shape[1]
        if self._width != (rows.shape[1], look.target.shape[1]):
            return
        new = [place for place, number in enumerate(look.context) if number not in self._known]
        if not new:
            return
        self._known.update(look.context)
        self.classes = self.classes and look.classes is not None
        self._rows.append(rows[new].to(torch.float32, copy=True))
        self._targets.append(look.target[new].to(torch.float32, copy=True))
        if look.indices is not None and len(look.indices) == look.count:
            self.indices += [look.indices[place] for place in new]

    def tables(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Inputs (samples, elements) and targets (samples, values); None for fewer than 32 samples."""
        if sum(item.shape[0] for item in self._rows) < 32:
            return None
        return torch.cat(self._rows), torch.cat(self._targets)
