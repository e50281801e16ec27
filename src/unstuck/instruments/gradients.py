"""The norm of every gradient before clipping, how large updates are, and the sizes of weights: cheaply.

Per optimiser one fused sweep over its gradients at the moment of the step; values stay tensors until a block of them is
fetched at once. How often is left to a share of the step's time, unless every step is asked for. What clipping has done
to the gradients is undone in the numbers, so that nothing is measured twice.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from unstuck.instruments.clipping import Clipping
from unstuck.instruments.guard import Guard, StepCount, skips_itself
from unstuck.instruments.inventory import Inventory, find_models, parameter_names
from unstuck.instruments.moments import Moments
from unstuck.instruments.pace import Pace
from unstuck.measure.gradient_norms import norms_of
from unstuck.places import user_chain
from unstuck.record.gradients import FIRST_PARAMETER, OptimizerRecord
from unstuck.record.recording import Recording
from unstuck.record.series import Series
from unstuck.signals import Rest

__all__ = ["Gradients"]

_FIRST = 16
"""First steps at which everything is measured, whatever it costs."""

_FIRST_SAMPLES = 4
"""The same for samples of the weights, which cost more."""

_BLOCK, _BLOCK_NORMS = 64, 8192
"""Sweeps, and norms, that wait on the device before they are fetched together."""

_BLOCK_SECONDS = 5.0
"""How long a sweep may wait."""

_CELLS = 1 << 18
"""Numbers that the table of an optimiser's norms may hold."""

_SAMPLE = 64
"""Elements of each parameter that are followed."""

_SAMPLE_CAPACITY = 512
"""Rows of the tables that are made from samples."""

_EXTRA = 256
"""Sweeps in a run that aren't due, but made because a loss has jumped."""

_LONG_PAUSE = 4
"""Steps without a measurement from which on it is worth while not to be told of them."""


@dataclass
class _Layout:
    """Parameters of an optimiser as they were last seen; ``columns``: the table's column of each."""

    ends: tuple[weakref.ref[torch.Tensor], weakref.ref[torch.Tensor]] | None
    count: int
    columns: list[int]
    uniform: bool


@dataclass
class _Sweep:
    """Norms that wait to be fetched: of the parameters in ``columns``, and what clipping did before they were taken.

    Those that were given by somebody else (``is_given``) were taken before clipping: ``later_clips`` is what it did.
    """

    step: int
    rate: float
    columns: Sequence[int]
    norms: torch.Tensor
    clips: list[tuple[torch.Tensor, float, list[int] | None]]
    scale: torch.Tensor | None
    after: torch.Tensor | None = None
    is_given: bool = False
    later_clips: list[tuple[torch.Tensor, float, list[int] | None]] = field(default_factory=list)


@dataclass
class _Sampled:
    """Per parameter the 2-norm of its sample before a step, and of the change by it: shape (2, parameters)."""

    step: int
    norms: torch.Tensor


@dataclass
class _Followed:
    """What is kept of one optimiser."""

    index: int
    record: OptimizerRecord
    optimizer: weakref.ref[torch.optim.Optimizer]
    pace: Pace
    sample_pace: Pace
    layout: _Layout
    lengths: list[int]
    taken: StepCount
    taken_before: int
    sweeps: list[_Sweep] = field(default_factory=list)
    samples: list[_Sampled] = field(default_factory=list)
    before: torch.Tensor | None = None
    sample_seconds: float = 0.0
    first: torch.Tensor | None = None
    padding: torch.Tensor | None = None
    closure: bool = False
    given: bool = False
    pause: int = 0
    swept_pass: int = -1
    views: list[torch.Tensor] = field(default_factory=list)
    pointers: list[int] = field(default_factory=list)
    fetched_at: float = 0.0


class Gradients:
    """The instrument.

    Args:
        recording: where the numbers go.
        guard: counts the steps and has read the loss.
        moments: hold the module of the present forward pass.
        inventory: knows where optimisers were made.
        clipping: knows what was done to the present gradients.
        every_step: measure norms at every step.
    """

    name = "gradients"

    def __init__(
        self,
        recording: Recording,
        guard: Guard,
        moments: Moments,
        inventory: Inventory,
        clipping: Clipping,
        every_step: bool = False,
    ) -> None:
        self._recording = recording
        self._guard = guard
        self._moments = moments
        self._inventory = inventory
        self._clipping = clipping
        self._every_step = every_step
        self._followed: dict[int, _Followed] = {}
        self._jumped = False
        self._extra = 0
        self.rest = Rest(("step_begins", "step_ended"), self._rested)

    # -- signals -----------------------------------------------------------------------------------------------------

    def clip_begins(self, parameters: Any, kind: str, limit: Any, frame: FrameType) -> None:
        # What clipping by value does can't be undone in the numbers, so they are taken before it.
        if kind != "value":
            return
        for optimizer in list(self._guard.optimizers.values()):
            known = self._followed.get(id(optimizer))
            waits = known is not None and (known.pause > 0 or known.pace.ahead > 0)
            if known is not None and (waits or known.swept_pass == self._clipping.passes):
                continue
            if self._clipping.covers(parameters, optimizer):
                self._sweep(known or self._follow(optimizer, frame), optimizer, frame)

    def gradients_clipped(self, parameters: Any, kind: str, limit: Any, norm: Any) -> None:
        if kind != "value":
            return
        for followed in self._followed.values():
            if followed.swept_pass == self._clipping.passes and followed.sweeps:
                optimizer = followed.optimizer()
                if optimizer is not None:
                    gradients = [item.grad for item in _parameters(optimizer) if item.grad is not None]
                    followed.sweeps[-1].after = _norms(gradients, followed.layout)

    def loss_jumped(self) -> None:
        """The present loss is so far above its usual size that its gradient should be seen now."""
        if self._extra < _EXTRA:
            self._jumped = True
            self._end_rest()

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._end_rest()

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: Any, frame: FrameType) -> None:
        jumped, self._jumped = self._jumped, False
        followed = self._followed.get(id(optimizer))
        if followed is None or followed.optimizer() is not optimizer:
            if any(is_lazy(item) for item in _parameters(optimizer)):
                return  # a closure's first pass, which gives parameters their shapes, is still to come
            followed = self._follow(optimizer, frame)
        if not followed.record.step_at:
            followed.record.step_at = user_chain(frame)
        followed.closure = closure is not None
        if followed.pause > 0:
            followed.pause -= 1
            if jumped and not followed.closure and followed.swept_pass != self._clipping.passes:
                self._sweep_extra(followed, optimizer, frame)
            return
        if followed.sample_pace.due():
            begin = time.perf_counter()
            followed.before = self._sample(followed, optimizer)
            followed.sample_seconds = time.perf_counter() - begin
        if followed.closure or followed.swept_pass == self._clipping.passes:
            return
        if followed.pace.due():
            if not skips_itself(optimizer):
                self._sweep(followed, optimizer, frame)
        elif jumped:
            self._sweep_extra(followed, optimizer, frame)

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        followed = self._followed.get(id(optimizer))
        if followed is None:
            return
        followed.record.steps = followed.taken.count - followed.taken_before
        if followed.swept_pass == self._clipping.passes:
            if followed.sweeps and followed.sweeps[-1].is_given:
                followed.sweeps[-1].later_clips = self._clipping.present(optimizer)
        elif followed.closure and followed.pace.due():
            self._sweep(followed, optimizer, frame, has_stepped=True)
        if followed.before is not None:
            self._end_sample(followed, optimizer)
        if followed.pause <= 0 and not followed.closure:
            # in short steps even to ask whether something is due counts
            followed.pause = min(followed.pace.ahead, followed.sample_pace.ahead)
            followed.pace.pass_over(followed.pause)
            followed.sample_pace.pass_over(followed.pause)
            if followed.pause >= _LONG_PAUSE and not followed.given and self._is_alone():
                self.rest.begin(followed.pause)

    def _is_alone(self) -> bool:
        """Whether no other optimiser could step while this instrument rests."""
        return len(self._followed) == 1 == len(self._guard.optimizers)

    def _rested(self, left: int = 0) -> None:
        for followed in self._followed.values():
            followed.pause = left

    def _end_rest(self) -> None:
        """Be told of steps again before the pause is over."""
        if self.rest.until:
            self._rested(self.rest.left)
            self.rest.end()

    def take(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], norms: Sequence[torch.Tensor]
    ) -> None:
        """Norms of the present gradients that somebody else has computed, before any clipping.

        Args:
            optimizer: whose gradients; one that isn't followed is none of ours.
            parameters: those with a gradient.
            norms: 2-norms of their unscaled gradients, scalars.
        """
        followed = self._followed.get(id(optimizer))
        own = _parameters(optimizer)
        if followed is None or followed.optimizer() is not optimizer or not _same(followed.layout, own):
            return
        self._end_rest()
        followed.given = True
        begin = time.perf_counter()
        column_of = dict(zip(map(id, own), followed.layout.columns, strict=True))
        columns = [column_of[id(item)] for item in parameters]
        device = norms[0].device
        taken = torch.stack([norm.detach().to(device, torch.float32, non_blocking=True) for norm in norms])
        step = self._guard.steps
        if followed.sweeps and followed.sweeps[-1].step == step:
            followed.sweeps.pop()  # a closure is asked again
        followed.sweeps.append(_Sweep(step, _rate(optimizer), columns, taken, [], None, is_given=True))
        followed.swept_pass = self._clipping.passes
        self._fetch_if_full(followed, begin)

    def fetch(self) -> None:
        """Bring what waits into the recording, and compare the weights with those at the start."""
        for followed in self._followed.values():
            followed.record.steps = followed.taken.count - followed.taken_before
            self._fetch(followed)
            optimizer = followed.optimizer()
            if optimizer is not None and followed.first is not None:
                values = self._sample(followed, optimizer)
                if values is not None:
                    sizes, changes = _sample_norms(followed, followed.first, values).tolist()
                    followed.record.moved = [_ratio(*pair) for pair in zip(changes, sizes, strict=True)]
        self._recording.flush_norms()

    def run_ends(self) -> None:
        self.fetch()

    def index_of(self, optimizer: torch.optim.Optimizer) -> int | None:
        """Number of an optimiser in the recording, None if it hasn't stepped."""
        followed = self._followed.get(id(optimizer))
        return followed.index if followed is not None and followed.optimizer() is optimizer else None

    # -- gradients ---------------------------------------------------------------------------------------------------

    def _sweep_extra(self, followed: _Followed, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        """A sweep that isn't due, for the sake of what has happened."""
        if not skips_itself(optimizer):
            self._extra += 1
            self._sweep(followed, optimizer, frame)

    def _sweep(
        self,
        followed: _Followed,
        optimizer: torch.optim.Optimizer,
        frame: FrameType | None = None,
        has_stepped: bool = False,
    ) -> None:
        begin = time.perf_counter()
        parameters = _parameters(optimizer)
        layout = followed.layout
        if not _same(layout, parameters):
            followed = self._follow(optimizer, frame)
            layout = followed.layout
        gradients = [item.grad for item in parameters]
        columns: Sequence[int] = layout.columns
        present = gradients
        if any(item is None for item in gradients):
            present = [item for item in gradients if item is not None]
            columns = [column for column, item in zip(columns, gradients, strict=True) if item is not None]
        followed.swept_pass = self._clipping.passes
        if present:
            steps = self._guard.steps - has_stepped
            norms = _norms(present, layout)  # type: ignore[arg-type] # None was left out
            rate = _rate(optimizer)
            clips = self._clipping.present(optimizer)
            scale = getattr(optimizer, "grad_scale", None)
            followed.sweeps.append(_Sweep(steps, rate, columns, norms, clips, scale))
            self._fetch_if_full(followed, begin)
        followed.pace.spent(time.perf_counter() - begin, self._guard.step_seconds)

    def _fetch_if_full(self, followed: _Followed, now: float) -> None:
        waiting = len(followed.sweeps)
        full = waiting >= _BLOCK or waiting * len(followed.sweeps[-1].norms) >= _BLOCK_NORMS
        if full or now - followed.fetched_at > _BLOCK_SECONDS:
            self._fetch(followed)
            self._recording.flush_norms()

    def _follow(self, optimizer: torch.optim.Optimizer, frame: FrameType | None) -> _Followed:
        """Begin to follow an optimiser, or begin again because its parameters are others."""
        earlier = self._followed.get(id(optimizer))
        if earlier is not None:
            self._fetch(earlier)
        parameters = _parameters(optimizer)
        record = self._record(optimizer, parameters, frame)
        followed = _Followed(
            self._recording.add_optimizer(record),
            record,
            weakref.ref(optimizer),
            Pace(_FIRST, 0.6, always=self._every_step),
            Pace(_FIRST_SAMPLES, 0.4),
            _layout(parameters),
            [min(_SAMPLE, item.numel()) for item in parameters],
            taken := self._guard.steps_of(optimizer),
            taken.count,
            fetched_at=time.perf_counter(),
        )
        self._followed[id(optimizer)] = followed
        self._clipping.follow(optimizer, followed.index)
        return followed

    def _record(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], frame: FrameType | None
    ) -> OptimizerRecord:
        forward = self._moments.forward
        models = find_models(
            frame,
            [*self._guard.optimizers.values(), optimizer],
            [None if forward is None else forward.module, *self._inventory.given],
        )
        names = parameter_names(models)
        count = len(parameters)
        group = optimizer.param_groups[0] if optimizer.param_groups else {}
        return OptimizerRecord(
            kind=type(optimizer).__name__,
            settings={key: _plain(value) for key, value in group.items() if key != "params" and _is_plain(value)},
            made_at=self._inventory.made_at.get(optimizer, ()),
            step_at=(),
            variable=next(iter(models)) if len(models) == 1 else None,
            names=[names.get(id(item), f"parameter {index}") for index, item in enumerate(parameters)],
            sizes=[item.numel() for item in parameters],
            dims=[item.dim() for item in parameters],
            norms=Series(FIRST_PARAMETER + count, max(256, _CELLS // (FIRST_PARAMETER + count))),
            rates=Series(1),
            updates=Series(1 + count, _SAMPLE_CAPACITY),
            weights=Series(1 + count, _SAMPLE_CAPACITY),
        )

    def _fetch(self, followed: _Followed) -> None:
        """Bring what waits to the CPU, in one transfer, and write it into the recording."""
        followed.fetched_at = time.perf_counter()
        sweeps, followed.sweeps = followed.sweeps, []
        if sweeps:
            tensors = [tensor for sweep in sweeps for tensor in _waiting(sweep)]
            numbers = iter(torch.cat(tensors).tolist())
            for sweep in sweeps:
                row = _row(sweep, numbers, followed.record.norms.columns)
                self._recording.add_norms(followed.index, sweep.step, row)
                followed.record.rates.add(sweep.step, (sweep.rate,))
        swept = time.perf_counter()
        followed.pace.spent_later(swept - followed.fetched_at)
        samples, followed.samples = followed.samples, []
        for sample in samples:
            _write_sample(followed, sample)
        followed.sample_pace.spent_later(time.perf_counter() - swept)

    # -- weights and updates -----------------------------------------------------------------------------------------

    def _sample(self, followed: _Followed, optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
        parameters = _parameters(optimizer)
        if not _same(followed.layout, parameters) or not parameters:
            return None
        pointers = [item.data_ptr() for item in parameters]
        if pointers != followed.pointers:
            followed.pointers, followed.views = pointers, []
        if followed.views:
            return torch.cat(followed.views)
        with torch.no_grad():
            elements = [_elements(item) for item in parameters]
            first = elements[0]
            if all(
                view.dtype is first.dtype and view.device == first.device and item.is_contiguous()
                for view, item in zip(elements, parameters, strict=True)
            ):
                followed.views = elements  # they look into the parameters themselves
            return torch.cat([item.to(first.device, torch.float32) for item in elements])

    def _end_sample(self, followed: _Followed, optimizer: torch.optim.Optimizer) -> None:
        begin = time.perf_counter()
        before, followed.before = followed.before, None
        after = self._sample(followed, optimizer)
        if before is None or after is None or before.shape != after.shape:
            return
        if followed.first is None:
            followed.first = before
        followed.samples.append(_Sampled(self._guard.steps - 1, _sample_norms(followed, before, after)))
        followed.sample_pace.spent(followed.sample_seconds + time.perf_counter() - begin, self._guard.step_seconds)


def _write_sample(followed: _Followed, sample: _Sampled) -> None:
    sizes, steps = sample.norms.tolist()
    record = followed.record
    # a sample stands for the whole parameter
    scales = [
        math.sqrt(total / length) if length else 0.0
        for total, length in zip(record.sizes, followed.lengths, strict=True)
    ]
    weights = [size * scale for size, scale in zip(sizes, scales, strict=True)]
    changes = [step * scale for step, scale in zip(steps, scales, strict=True)]
    overall = math.hypot(*weights)
    record.updates.add(sample.step, (_ratio(math.hypot(*changes), overall), *map(_ratio, changes, weights)))
    record.weights.add(sample.step, (overall, *weights))


def _sample_norms(followed: _Followed, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Per parameter the 2-norm of its elements in ``before``, and of their change up to ``after``."""
    if followed.padding is None:
        # every parameter's elements in a row of the same length; what is missing points at a zero behind the last one
        positions, start, zero = [], 0, sum(followed.lengths)
        for length in followed.lengths:
            positions += [*range(start, start + length), *[zero] * (_SAMPLE - length)]
            start += length
        followed.padding = torch.tensor(positions, device=before.device)
    both = torch.nn.functional.pad(torch.stack([before, after - before]), (0, 1))
    rows = both.index_select(1, followed.padding).view(2, -1, _SAMPLE)
    norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=2)
    return norms


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    groups = optimizer.param_groups
    return groups[0]["params"] if len(groups) == 1 else [item for group in groups for item in group["params"]]


def _rate(optimizer: torch.optim.Optimizer) -> float:
    """The largest learning rate of the groups, NaN where reading it would wait for the device."""
    return max(float(group["lr"]) for group in optimizer.param_groups) if _has_rates(optimizer) else math.nan


def _has_rates(optimizer: torch.optim.Optimizer) -> bool:
    return all(
        isinstance(group.get("lr"), (int, float)) or (isinstance(group.get("lr"), torch.Tensor) and group["lr"].is_cpu)
        for group in optimizer.param_groups
    )


def _layout(parameters: Sequence[torch.Tensor]) -> _Layout:
    first = parameters[0] if parameters else None
    uniform = first is not None and all(
        item.dtype is first.dtype and item.device == first.device and item.layout is torch.strided and item.numel()
        for item in parameters
    )
    narrow = first is not None and first.dtype in (torch.float16, torch.bfloat16)
    ends = None if first is None else (weakref.ref(first), weakref.ref(parameters[-1]))
    columns = list(range(FIRST_PARAMETER, FIRST_PARAMETER + len(parameters)))
    return _Layout(ends, len(parameters), columns, uniform and not narrow)


def _same(layout: _Layout, parameters: Sequence[torch.Tensor]) -> bool:
    if len(parameters) != layout.count:
        return False
    return layout.ends is None or (layout.ends[0]() is parameters[0] and layout.ends[1]() is parameters[-1])


def _norms(gradients: list[torch.Tensor], layout: _Layout) -> torch.Tensor:
    """The 2-norms of gradients, shape (gradients,), on one device.

    Many scalars that wait would lie scattered between a program's large tensors, whose memory could then not be joined.
    """
    if layout.uniform and not gradients[0].requires_grad:
        try:
            return torch.stack(torch._foreach_norm(gradients, 2.0))
        except (NotImplementedError, RuntimeError):
            layout.uniform = False  # a gradient of another layout than its parameter's
    norms = norms_of(gradients, 2.0)
    first = norms[0].device
    return torch.stack([norm.to(first, torch.float32, non_blocking=True) for norm in norms])


def _waiting(sweep: _Sweep) -> list[torch.Tensor]:
    device = sweep.norms.device
    others = [norm for norm, _, _ in (*sweep.clips, *sweep.later_clips)]
    if sweep.scale is not None:
        others.append(sweep.scale)
    told = [sweep.norms, *(item.detach().reshape(1).to(device) for item in others)]
    return told if sweep.after is None else [*told, sweep.after]


def _row(sweep: _Sweep, numbers: Any, columns: int) -> list[float]:
    """A row of the table from the next numbers of a transfer, with clipping undone."""
    row = [math.nan] * columns
    applied = [_known(next(numbers)) for _ in sweep.columns]
    for column, norm in zip(sweep.columns, applied, strict=True):
        row[column] = norm
    clipped_by = [next(numbers) for _ in sweep.clips]
    later_by = [next(numbers) for _ in sweep.later_clips]
    if sweep.scale is not None:
        scale = next(numbers)
        applied = [norm / scale for norm in applied]
        for column in sweep.columns:
            row[column] /= scale
    for norm, (_, limit, covered) in zip(clipped_by, sweep.clips, strict=True):
        factor = min(1.0, limit / (norm + 1e-6)) if math.isfinite(norm) else 1.0
        if 0.0 < factor < 1.0:
            for column in sweep.columns if covered is None else covered:
                row[column] /= factor
    for norm, (_, limit, covered) in zip(later_by, sweep.later_clips, strict=True):
        factor = min(1.0, limit / (norm + 1e-6)) if math.isfinite(norm) else 1.0
        applied = [
            value * factor if covered is None or column in covered else value
            for column, value in zip(sweep.columns, applied, strict=True)
        ]
    row[0] = math.hypot(*(row[column] for column in sweep.columns))
    row[1] = math.hypot(*applied)
    if sweep.after is not None:
        row[1] = math.hypot(*(_known(next(numbers)) for _ in sweep.after))
    return row


def _known(norm: float) -> float:
    """A norm that is NaN counts as infinite: in the table NaN means that there was no gradient."""
    return math.inf if norm != norm else norm


def _elements(parameter: torch.Tensor) -> torch.Tensor:
    """A few elements of a parameter, spread over it; real numbers."""
    flat = parameter.detach().reshape(-1)
    if flat.is_complex():
        flat = flat.abs()
    step = max(1, flat.numel() // _SAMPLE)
    return flat[::step][:_SAMPLE]


def _ratio(change: float, weight: float) -> float:
    """Change over weight; NaN where a weight of zero has moved, for then there is nothing to compare with."""
    if change == 0.0:
        return 0.0
    return change / weight if weight > 0.0 else math.nan


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str)) or (
        isinstance(value, tuple) and all(isinstance(item, (int, float)) for item in value)
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
