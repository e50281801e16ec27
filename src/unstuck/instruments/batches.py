"""What the training loop really receives: every batch at first, then as many as a share of the step's time allows.

A pass is looked at when its gradients are about to be computed: then its inputs (what the first module was called with,
what the loaders gave) are still there, and the loss's graph tells prediction and target, however the loss is written.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np
import torch
from torch.utils.data import SequentialSampler, Subset

from unstuck.instruments.batch_probes import Arrays, count_turned, depends_on_tokens, probe_pairing, probe_scale
from unstuck.instruments.batch_tables import Confusions, Indices, Inputs, Kept, Lags, Look, Order, Pairs, Targets
from unstuck.instruments.drawn_indices import DrawnIndices
from unstuck.instruments.guard import Guard
from unstuck.instruments.pace import Pace
from unstuck.measure.fingerprints import fingerprints, rows_of
from unstuck.measure.graph_loss import GraphLoss, losses_of
from unstuck.places import Frame, is_user_file, user_chain, user_frame
from unstuck.program.data_places import argument_line, array_source, construction_of, input_source
from unstuck.program.dataset_lines import collate_sort, item_lines
from unstuck.program.shuffles import separate_shuffles
from unstuck.record.batches import BatchesRecord, LoaderPart
from unstuck.record.recording import Recording
from unstuck.signals import Rest

__all__ = ["Batches"]

_FIRST = 64
"""First passes that are all looked at."""

_ORDERED = 100
"""First passes of which the targets' order is noted, if nothing else."""

_EARLY = (200, 0.04)
"""Up to so many passes, as many as this share of a step's time allows."""

_PART = 0.5
"""Part of the usual share afterwards."""

_LOADERS = 32
_PLACES = 4
"""Backward calls of a program that are told apart."""

_ROWS = 512
"""Samples of a batch that are looked at."""

_LEAVES = 16
_DEVICE_FIRST, _DEVICE_INTERVAL = 8, 64
"""Passes whose tensors lie on another device are looked at first, and then one in so many: each look waits for it."""

_COMPARED = 1 << 16
"""Elements up to which a target is compared with the loader's tensors by value."""

_Call = tuple[torch.nn.Module, Any, Any, FrameType]
"""The first module call of a pass: module, arguments, keyword arguments, frame."""


@dataclass
class _Iteration:
    """One iterator of a loader.

    Attributes:
        kind: what tells its loader from others.
        part: what is known of that.
        dataset: of it, behind all subsets.
        epoch: number of iterations of all loaders begun before.
        drawn: batches given so far.
    """

    kind: Any = None
    part: LoaderPart | None = None
    dataset: ref[Any] | None = None
    epoch: int = 0
    drawn: int = 0


@dataclass
class _Draw:
    """A batch that a loader gave for the present step."""

    batch: Any
    iteration: _Iteration
    position: int
    indices: list[int] | None


class _Told(NamedTuple):
    """What a pass was given (``given``), what the loaders gave for it (``drawn``, ``last``), what its loss tells."""

    given: list[torch.Tensor]
    drawn: list[torch.Tensor]
    last: _Draw | None
    samples: int
    parts: list[GraphLoss]
    main: GraphLoss | None
    target: torch.Tensor | None


@dataclass
class _Place:
    """A backward call of the program, and what was seen there."""

    record: BatchesRecord
    iteration: _Iteration | None = None
    inputs: Inputs = field(default_factory=Inputs)
    targets: Targets = field(default_factory=Targets)
    order: Order = field(default_factory=Order)
    pairs: Pairs = field(default_factory=Pairs)
    indices: Indices = field(default_factory=Indices)
    lags: Lags = field(default_factory=Lags)
    confusions: Confusions = field(default_factory=Confusions)
    kept: Kept = field(default_factory=Kept)
    arrays: Arrays = field(default_factory=Arrays)
    file: str | None = None
    passes: int = 0
    asked: bool = False


class Batches:
    """The instrument.

    Args:
        recording: where the records go.
        guard: counts the steps and has read the loss.
    """

    name = "batches"

    def __init__(self, recording: Recording, guard: Guard) -> None:
        self._recording = recording
        self._guard = guard
        self._pace = Pace(_FIRST, _PART, early=_EARLY)
        self._due = True
        self._made_at: WeakKeyDictionary[Any, tuple[Frame, ...]] = WeakKeyDictionary()
        self._iterations: WeakKeyDictionary[Any, _Iteration] = WeakKeyDictionary()
        self._drawn = DrawnIndices()
        self._begun = 0
        self._loaders: Counter[Any] = Counter()  # iterations by where the loader was constructed
        self._parts: dict[Any, LoaderPart] = {}
        self._draws: list[_Draw] = []
        self._call: _Call | None = None
        self._read_at: tuple[Frame, ...] = ()
        self._read_place: tuple[CodeType, int] | None = None
        self._stepped = False
        self._drawn_at: tuple[Frame, ...] = ()
        self._drawn_frames = 0
        self._places: dict[tuple[int, int], _Place] = {}
        self._codes: list[CodeType] = []  # their identities are keys
        self._passes = 0  # that were told
        self._looked_at = 0
        self.rest = Rest(("forward_begins", "backward_begins", "step_ended"), self._woken)

    @property
    def wants_calls(self) -> bool:
        """Whether the first module call of the next pass is needed."""
        return self._due or self._early

    @property
    def _early(self) -> bool:
        return self._guard.passes < _ORDERED

    # -- signals -----------------------------------------------------------------------------------------------------

    def loader_created(self, loader: Any, frame: FrameType) -> None:
        self._made_at[loader] = user_chain(frame)

    def epoch_begins(self, iterator: Any, loader: Any) -> None:
        epoch = self._begun
        self._begun += 1
        kind = self._kind(loader)
        self._loaders[kind] += 1
        if kind not in self._parts and len(self._parts) < _LOADERS:
            self._parts[kind] = self._loader_part(loader)
        begun = self._iterations.get(iterator)
        if begun is None:
            begun = self._iterations[iterator] = _Iteration()
        begun.kind, begun.part, begun.epoch, begun.drawn = kind, self._parts.get(kind), epoch, 0
        with contextlib.suppress(TypeError):  # a list can't be referred to weakly
            begun.dataset = ref(base_dataset(loader.dataset))

    def _kind(self, loader: Any) -> Any:
        """What tells a program's loaders apart where it makes a new one for each pass over the data."""
        made_at = self._made_at.get(loader)
        return made_at[-1] if made_at else id(loader)

    def indices_drawn(self, iterator: Any, indices: Any) -> None:
        self._drawn.note(iterator, indices)

    def batch_drawn(self, iterator: Any, batch: Any, frame: FrameType) -> None:
        known = self._iterations.get(iterator)
        if known is None:
            return
        position = known.drawn
        known.drawn += 1
        indices = self._drawn.take(iterator)
        if self._stepped:
            self._stepped = False
            self._draws.clear()
        if not self.wants_calls:
            return
        if len(self._draws) >= 8:
            del self._draws[0]  # an evaluation draws many
        self._draws.append(_Draw(batch, known, position, indices))
        if self._drawn_frames < 4:
            self._drawn_frames += 1
            # where a library draws (a Trainer's overfit test), beginning anew is meant
            self._drawn_at = user_chain(frame) if is_user_file(frame.f_code.co_filename) else ()

    def forward_begins(self, module: torch.nn.Module, args: Any, kwargs: Any, frame: FrameType) -> None:
        if self._call is None and self.wants_calls:
            self._call = (module, args, kwargs, frame)
            caller = user_frame(frame)
            if caller is not None and self._read_place != (caller.f_code, caller.f_lasti):
                self._read_place = (caller.f_code, caller.f_lasti)
                self._read_at = user_chain(caller)

    def backward_begins(self, tensors: Any, frame: FrameType) -> None:
        place = self._place(frame)
        if place is None:
            return
        place.passes += 1
        self._passes += 1
        call, self._call = self._call, None
        if call is None:
            return
        if not self._due:
            self._glance(place, tensors, call)
        else:
            begin = time.perf_counter()
            if self._look(place, tensors, call):
                self._looked_at = self._guard.passes
                place.record.looks += 1
                if place.record.looks == 1:
                    self._meet(place, frame)
                elif place.record.looks == _ASKED:
                    _ask(place, call)
            self._pace.spent(time.perf_counter() - begin, self._guard.step_seconds)

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._stepped = True
        self._call = None
        self._due = self._pace.due()
        if not self.wants_calls:
            self._draws.clear()
            self.rest.begin(self._pace.skip())

    def _woken(self) -> None:
        self._stepped, self._call = True, None
        self._due = self._pace.due()

    def fetch(self) -> None:
        """Bring the records up to date."""
        for place in self._places.values():
            self._sum_up(place)

    def run_ends(self) -> None:
        self._draws.clear()
        self._call = None
        self.fetch()
        for place in self._places.values():
            _probe(place)

    # -- one look ----------------------------------------------------------------------------------------------------

    def _place(self, frame: FrameType) -> _Place | None:
        caller = user_frame(frame)
        code, at = (frame.f_code, 0) if caller is None else (caller.f_code, caller.f_lasti)
        known = self._places.get((id(code), at))
        if known is None and len(self._places) < _PLACES:
            record = BatchesRecord(first_step=self._guard.steps, loss_at=user_chain(frame))
            self._recording.keep(record)
            self._codes.append(code)
            known = self._places[id(code), at] = _Place(record)
        return known

    def _look(self, place: _Place, tensors: Any, call: _Call) -> bool:
        loss = tensors[0] if tensors else None
        if not isinstance(loss, torch.Tensor):
            return False
        passes = self._guard.passes
        if loss.device.type != "cpu" and passes > _DEVICE_FIRST and passes - self._looked_at < _DEVICE_INTERVAL:
            return False
        with torch.no_grad():
            look = self._seen(loss, call)
        if look is None:
            return False
        place.record.inputs.read_at = place.record.inputs.read_at or self._read_at
        place.inputs.part.read_at = place.record.inputs.read_at
        with np.errstate(all="ignore"):  # squares may overflow
            place.inputs.add(look)
            place.targets.add(look)
            place.order.add(look)
        place.pairs.add(look)
        place.indices.add(look)
        place.lags.add(look)
        place.confusions.add(look)
        place.kept.add(look)
        if place.iteration is None and self._draws:
            place.iteration = self._draws[-1].iteration
        return True

    def _glance(self, place: _Place, tensors: Any, call: _Call) -> None:
        """Note only in which order targets come."""
        loss = tensors[0] if tensors else None
        if not isinstance(loss, torch.Tensor) or loss.device.type != "cpu":
            return
        with torch.no_grad():
            told = self._told(loss, call)
            if told is not None and told.target is not None:
                with np.errstate(all="ignore"):
                    place.order.add(self._look_at(told))

    def _told(self, loss: torch.Tensor, call: _Call) -> _Told | None:
        """The tensors that a pass was given, and its target."""
        _, args, kwargs, _ = call
        given = [item for item in _leaves((args, dict(kwargs) if kwargs else {})) if item.dim() > 0]
        if not given:
            return None
        drawn = [item for draw in self._draws for item in _leaves(draw.batch) if item.dim() > 0]
        last = self._draws[-1] if self._draws else None
        count = _samples(given, last, drawn)
        parts = losses_of(loss)
        main = _main(parts)
        target = _target(main, count)
        if target is None and main is not None and main.difference is not None:
            target = _by_difference(main.difference, drawn, given, count)
        return _Told(given, drawn, last, count, parts, main, target)

    def _look_at(self, told: _Told) -> Look:
        """What is known of a pass without its inputs."""
        last, kept = told.last, min(told.samples, _ROWS)
        indices = last.indices if last is not None and last.indices is not None else None
        return Look(
            step=self._guard.steps,
            loss=self._guard.present_loss,
            epoch=last.iteration.epoch if last is not None else 0,
            position=last.position if last is not None else None,
            count=kept,
            indices=indices[:kept] if indices is not None and len(indices) == told.samples else None,
            parts=told.parts,
            main=told.main,
            target=None if told.target is None else told.target[:kept].cpu(),
        )

    def _seen(self, loss: torch.Tensor, call: _Call) -> Look | None:
        told = self._told(loss, call)
        if told is None:
            return None
        given, drawn, count, target = told.given, told.drawn, told.samples, told.target
        look = self._look_at(told)
        others = [item for item in given if not _same(item, target)] or given
        for item in others:
            row = _rows(item, count)
            if row is not None:
                look.shape = look.shape or (count, *item.shape[1:])
                look.rows.append(row[: look.count].cpu())
        if not look.rows:
            return None
        known = [row for row in (_rows(item, count) for item in drawn if not _same(item, target)) if row is not None]
        known = [row[: look.count].cpu() for row in known]
        numbered = _Numbers()
        look.numbers = numbered.joined(look.rows, look.count)
        look.context = numbered.joined([*look.rows, *known], look.count)
        if look.indices is not None and known:
            look.given = numbered.joined(known, look.count)
        if drawn:
            look.from_batch = any(_same(item, target) for item in drawn)
            if target is not None and look.count == count:
                look.torn = _torn(look.rows[0], target, drawn, numbered)
        return look

    def _meet(self, place: _Place, frame: FrameType) -> None:
        """What is remembered of the program around the first look."""
        iteration = place.iteration
        dataset = None if iteration is None or iteration.dataset is None else iteration.dataset()
        caller = user_frame(frame)
        place.arrays.look(caller, dataset)
        while caller is not None and caller.f_code.co_name != "<module>":
            caller = user_frame(caller.f_back)
        if caller is not None and is_user_file(caller.f_code.co_filename):
            place.file = caller.f_code.co_filename
        if iteration is not None and iteration.part is not None:
            place.record.loader = iteration.part
            iteration.part.drawn_at = self._drawn_at

    # -- the record --------------------------------------------------------------------------------------------------

    def _sum_up(self, place: _Place) -> None:
        record = place.record
        # those that weren't told are shared out as those that were
        record.passes = round(place.passes * self._guard.passes / max(1, self._passes))
        if not record.looks:
            return
        record.inputs = place.inputs.close()
        record.target = place.targets.close()
        record.order = place.order.close()
        record.pairs = place.pairs.close(passes_known=place.iteration is not None)
        record.index = place.indices.close()
        record.lag = place.lags.close()
        record.confused = place.confusions.close()
        record.right = place.confusions.right()
        if record.loader is not None:
            record.loader.iterations = self._loaders[place.iteration.kind] if place.iteration is not None else 0
        record.evaluated = len(self._loaders) > 1
        file = place.file or (record.loss_at[0].file if record.loss_at else None)
        record.shuffles = separate_shuffles(file) if file is not None else ()
        if record.inputs.read_at:
            record.source_at = array_source(record.inputs.read_at[-1])
            record.rows_at = argument_line(record.inputs.read_at[-1])

    def _loader_part(self, loader: Any) -> LoaderPart:
        dataset = loader.dataset
        base = base_dataset(dataset)
        sampler = getattr(loader, "sampler", None)
        made_at = self._made_at.get(loader, ())
        kind = type(base).__name__
        lines = item_lines(base)
        return LoaderPart(
            made_at=made_at,
            dataset=type(base).__name__,
            size=_length(dataset),
            base_size=_length(base),
            batches=_length(loader),
            batch_size=loader.batch_size,
            sampler=type(sampler).__name__,
            in_order=isinstance(sampler, SequentialSampler),
            collate_at=collate_sort(getattr(loader, "collate_fn", None)),
            dataset_at=construction_of(made_at[-1], kind) if made_at else None,
            item_at=lines.item,
            random_at=lines.random,
            target_at=lines.target,
            indexed=lines.indexed,
            late_at=lines.late,
            source_at=lines.source or (input_source(made_at[-1], kind) if made_at else None),
        )


_ASKED = 12
"""Looks after which a model that is given token ids and asked for the same is tried."""


def _ask(place: _Place, call: _Call) -> None:
    """Try a copy of the model where its target is its input, moved on by less than one place."""
    part = place.lags.close()
    if part is None or part.inputs != 1:
        return
    if any(share > 0.999 for lag, share in part.shares.items() if lag - part.skipped <= 0):
        told = depends_on_tokens(call[0], call[1], call[2] or {})
        if told is not None:
            part.causal, part.direct = told


def _probe(place: _Place) -> None:
    """What is found out at the end; a fraction of a second each."""
    record = place.record
    if not record.looks or record.target is None or record.target.positions:
        return
    tokens = not record.inputs.dtype.startswith(("float", "bfloat", "uint8"))
    record.scale = probe_scale(place.kept, tokens)
    record.pairing = probe_pairing(place.kept, tokens, place.arrays.tables())
    if record.index is not None:
        count_turned(place.indices.variants(), record.index)


def base_dataset(dataset: Any) -> Any:
    """The dataset behind all subsets."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def _leaves(tree: Any, depth: int = 4) -> list[torch.Tensor]:
    """Tensors in nested containers, at most a few."""
    found: list[torch.Tensor] = []
    for item in _walk(tree, depth):
        found.append(item)
        if len(found) >= _LEAVES:
            break
    return found


def _walk(tree: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        if not tree.is_meta and not tree.is_sparse and not tree.is_nested:
            yield tree
    elif depth and isinstance(tree, dict):
        for item in list(tree.values())[:64]:
            yield from _walk(item, depth - 1)
    elif depth and isinstance(tree, (list, tuple)):
        for item in tree[:64]:
            yield from _walk(item, depth - 1)


def _samples(given: list[torch.Tensor], last: _Draw | None, leaves: list[torch.Tensor]) -> int:
    """How many samples a pass works on."""
    first = given[0]
    if last is not None and last.indices is not None:
        return len(last.indices)
    if leaves and leaves[0].shape[0] in first.shape[:2]:
        return leaves[0].shape[0]
    return first.shape[0]


def _rows(item: torch.Tensor, count: int) -> torch.Tensor | None:
    """A tensor as (samples, elements), where it has ``count`` samples along its first or second dimension."""
    if item.dim() and item.shape[0] == count:
        return rows_of(item)
    if item.dim() > 1 and item.shape[1] == count:
        return rows_of(item.transpose(0, 1))
    return None


def _main(parts: list[GraphLoss]) -> GraphLoss | None:
    """The part of a loss whose target is the samples' target; None where several could be meant."""
    sorts = [item for item in parts if item.kind in ("nll", "gather", "index", "multi margin")]
    if not sorts:
        sorts = [item for item in parts if item.target is not None and item.kind != "ctc"]
    if not sorts:
        sorts = [item for item in parts if item.difference is not None]
    return sorts[0] if len(sorts) == 1 else None


def _target(main: GraphLoss | None, count: int) -> torch.Tensor | None:
    if main is None or main.target is None or main.target.requires_grad:
        return None
    return rows_of(main.target, count) if main.target.dim() else None


def _by_difference(
    difference: torch.Tensor, leaves: list[torch.Tensor], given: list[torch.Tensor], count: int
) -> torch.Tensor | None:
    """The loader's tensor that a hand-written difference was taken from: the only one of its size that isn't input."""
    fitting = [
        item for item in leaves if item.numel() == difference.numel() and not any(_same(item, other) for other in given)
    ]
    return rows_of(fitting[0], count) if len(fitting) == 1 else None


def _same(item: torch.Tensor, target: torch.Tensor | None) -> bool:
    """Whether a tensor is the target, in whatever shape and number format."""
    if target is None or item.numel() != target.numel() or not item.numel():
        return False
    if item.device == target.device and item.dtype == target.dtype and item.data_ptr() == target.data_ptr():
        return True
    if item.numel() > _COMPARED or item.is_complex() or target.is_complex():
        return False
    return bool((item.reshape(-1).to(target.device, torch.float64) == target.reshape(-1).to(torch.float64)).all())


class _Numbers:
    """Fingerprints of tensors, each computed once in a look."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, torch.Size, torch.dtype], list[int]] = {}
        self._held: list[torch.Tensor] = []  # so that no other tensor gets the address of one

    def of(self, rows: torch.Tensor) -> list[int]:
        """One number per row, as :func:`fingerprints`."""
        key = (rows.data_ptr(), rows.shape, rows.dtype)
        if key not in self._known:
            self._held.append(rows)
            self._known[key] = fingerprints(rows)
        return self._known[key]

    def joined(self, tables: list[torch.Tensor], count: int) -> list[int]:
        """One number per sample, equal where all its elements are."""
        numbers = [self.of(item) for item in tables]
        if len(numbers) == 1:
            return numbers[0]
        return [hash(item) for item in zip(*numbers, strict=True)] if numbers else [0] * count


def _torn(row: torch.Tensor, target: torch.Tensor, leaves: list[torch.Tensor], numbered: _Numbers) -> float | None:
    """Part of the samples whose target isn't the one that the loader gave with their input.

    Args:
        row: inputs as the model got them, (samples, elements).
        target: as the loss got it, (samples, values).
        leaves: the loader's tensors.
        numbered: fingerprints that are known.

    Returns:
        None where the inputs aren't among the loader's tensors, or the target isn't one of them in whatever order.
    """
    count = row.shape[0]
    tables = [rows for leaf in leaves if (rows := _rows(leaf, count)) is not None]
    if any(_is(row, rows) for rows in tables) and any(_is(target, rows) for rows in tables):
        return 0.0
    wanted = fingerprints(target.cpu().to(torch.float32))
    numbers = numbered.of(row)
    given = label = None
    for rows in tables:
        if rows.is_complex():
            continue
        rows = rows.cpu()
        if rows.dtype == row.dtype and rows.shape[1] == row.shape[1] and given is None:
            found = numbered.of(rows)
            given = found if len(set(found)) == count and set(found) == set(numbers) else None
        if rows.shape[1] == target.shape[1] and label is None:
            found = fingerprints(rows.to(torch.float32))
            label = found if sorted(found) == sorted(wanted) else None
    if given is None or label is None:
        return None
    at = {number: place for place, number in enumerate(given)}
    return sum(label[at[number]] != value for number, value in zip(numbers, wanted, strict=True)) / count


def _is(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are the same memory."""
    return a.data_ptr() == b.data_ptr() and a.dtype == b.dtype and a.numel() == b.numel()
