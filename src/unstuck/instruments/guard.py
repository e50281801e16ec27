"""Watches for values that turn non-finite, and declares an incident when an optimiser step is about to take one.

Seen at backward, declared at the step: a loss that is NaN harms nobody if the script drops the step (a loss scaler,
its own ``isfinite``, gradients cleaned by ``nan_to_num``). Per backward call the loss is looked at and per step the
gradients: all of them where that is cheap, else the one computed last; and all of them, parameters and optimiser
state as often as the time budget allows.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, isinf
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

import torch
from torch.nn.parameter import is_lazy

from unstuck.instruments.moments import Draw, Moment, Moments, frame_marks
from unstuck.instruments.pace import Pace
from unstuck.measure.finiteness import Sweep, all_finite, first_nonfinite
from unstuck.places import Frame, user_chain
from unstuck.signals import Rest

__all__ = ["Backward", "Guard", "Incident", "StepCount", "skips_itself"]

_EVERY_STEP = 32
"""First steps of a run in which everything is looked at every step, whatever it costs."""

_GRADIENT_PART = 0.4
"""Part of the usual share of a step that the look at large gradients may take; small ones are looked at every step."""

_GRADIENT_FLOOR = 40e-6
"""Seconds that it may take in any case, so that all of a small network's gradients are looked at every step."""

_PARAMETER_PART = 0.15
"""Part for parameters and optimiser state; they are looked at again when a loss turns non-finite."""

_BACKWARD_CODE = torch.Tensor.backward.__code__

_TINY = 1e-3
_DEAR_INTERVAL = 8
"""In steps shorter than so many seconds, or with large gradients, only every so many-th look is at more than the
gradient that is computed last, which nearly every NaN of a backward pass reaches."""

_RESORT = 64
"""Steps after which the parameters of an optimiser are listed again."""

_WINDOW = 64
"""Backward calls of one step that are remembered."""

_DEVICE_INTERVAL = 16
"""Steps between two looks at values on a device on which every look waits for all queued work."""


@dataclass(slots=True)
class Backward:
    """One backward call of the present step.

    Attributes:
        values: the numbers of a scalar loss, or None for other tensors.
        finite: whether the loss was finite.
        marks: the call chain.
        moments: the moments that it can be run again from, with how many backward calls came since, this one included.
        chain: the user's lines that led to the call.
        reached: for a non-finite loss, identities of the parameters that it reaches.
        spoilt: for a non-finite loss, whether it left non-finite gradients; None when that wasn't looked at.
        losses: a non-finite loss itself, kept until the step is over.
        drawn: the batch that was drawn last before it; None without a loader.
    """

    values: tuple[float, ...] | None
    finite: bool
    marks: tuple[tuple[int, CodeType, int], ...]
    moments: tuple[tuple[Moment, int], ...]
    chain: tuple[Frame, ...] = ()
    reached: frozenset[int] = frozenset()
    spoilt: bool | None = None
    losses: tuple[torch.Tensor, ...] = ()
    drawn: Draw | None = None


@dataclass(frozen=True)
class Incident:
    """A non-finite value that a step is about to take or has made.

    Attributes:
        kind: ``loss``, ``gradient``, ``parameter`` or ``state``.
        step: number of optimiser steps that were complete before the one concerned.
        late: at most so many steps later than it happened.
        optimizer: whose step.
        backward: the backward call that made it, where that is known.
        calls: number of backward calls in the step.
        changed: gradients were clipped or unscaled between backward and step.
        chain: the user's lines at the moment of the declaration.
        draws: (index in the epoch, batch) of the batches drawn for the step.
        scale: by which a loss scaler has multiplied the losses.
        partial: the backward call has raised (torch's anomaly mode), so not all of its gradients are there.
    """

    kind: str
    step: int
    late: int
    optimizer: torch.optim.Optimizer
    backward: Backward | None
    calls: int
    changed: bool
    chain: tuple[Frame, ...]
    draws: tuple[tuple[int, Any], ...]
    scale: float = 1.0
    partial: bool = False


@dataclass(slots=True)
class StepCount:
    """Steps that an optimiser has taken; ``last``: those of all optimisers before its last one, -1 before any."""

    count: int = 0
    last: int = -1


class _Known(NamedTuple):
    """An optimiser that has stepped, which nothing here keeps alive, its parameters, sorted, and its steps."""

    optimizer: ref[torch.optim.Optimizer]
    sweep: Sweep
    taken: StepCount


class Guard:
    """The instrument.

    Args:
        moments: where the present step's moments are.
        declare: called with an incident; it may raise to stop the run.
        drops: steps that aren't finite are dropped: every one is looked at whole, and named in :attr:`to_drop`.

    Attributes:
        to_drop: the optimiser whose present step has to be dropped, until somebody has done it.
        dropped: steps that were dropped.
    """

    name = "guard"

    def __init__(self, moments: Moments, declare: Callable[[Incident], None], drops: bool = False) -> None:
        self._moments = moments
        self._declare = declare
        self._drops = drops
        self.to_drop: torch.optim.Optimizer | None = None
        self.dropped = 0
        self._dropping: torch.optim.Optimizer | None = None
        self.steps = 0
        self.skipped = 0
        self.passes = 0
        self.met = 0  # optimisers that have stepped
        # Watching must not keep a model alive that the program has dropped.
        self.optimizers: WeakValueDictionary[int, torch.optim.Optimizer] = WeakValueDictionary()
        self.present_loss: float | None = None
        self._known: dict[int, _Known] = {}
        self._taken: WeakKeyDictionary[torch.optim.Optimizer, StepCount] = WeakKeyDictionary()
        self._window: deque[Backward] = deque(maxlen=_WINDOW)
        self._changed = False
        self._scaled = False
        self._scaler: Any = None
        self._marks: tuple[tuple[int, CodeType, int], ...] = ()
        self._closure: torch.optim.Optimizer | None = None
        self._passes_before = 0
        self._culprit: Backward | None = None
        self._alarm = False  # a bad loss or gradient is waiting for a step that takes it
        self._declared: set[str] = set()
        self._gradient_pace = Pace(_EVERY_STEP, _GRADIENT_PART, floor=_GRADIENT_FLOOR)
        self._parameter_pace = Pace(_EVERY_STEP, _PARAMETER_PART)
        self._born_nonfinite: set[int] = set()
        self._step_seconds = 0.0
        self._last_step_at: float | None = None
        self._clean_after = 0
        self._swept_at = -1
        self._swept_whole = False
        self._calm_at = _EVERY_STEP
        self.rest = Rest(("backward_ended", "gradients_zeroed"))

    def steps_of(self, optimizer: torch.optim.Optimizer) -> StepCount:
        """How often an optimiser has stepped; goes on counting."""
        taken = self._taken.get(optimizer)
        if taken is None:
            taken = self._taken[optimizer] = StepCount()
        return taken

    @property
    def has_window(self) -> bool:
        """Whether a backward call has been made in the present step."""
        return bool(self._window)

    @property
    def last_draw(self) -> Draw | None:
        """The present step's last batch; None without a loader."""
        return self._moments.draws[-1] if self._moments.draws else None

    @property
    def window(self) -> tuple[Backward, ...]:
        """The backward calls of the present step."""
        return tuple(self._window)

    @property
    def step_seconds(self) -> float:
        """How long a step takes, 0 before the second one."""
        return self._step_seconds

    def present(
        self, kind: str, optimizer: torch.optim.Optimizer, window: Sequence[Backward], chain: tuple[Frame, ...]
    ) -> Incident:
        """The present step in the form of an incident, though none is declared: for trials on it.

        Args:
            kind: ``gradient``, or ``none`` where nothing of it is non-finite.
            optimizer: whose step.
            window: its backward calls.
            chain: the user's lines at present.
        """
        own = {id(parameter) for parameter in _parameters_of(optimizer)}
        bad = [record for record in window if not record.finite and record.reached & own]
        wanted = bad[0] if bad else (self._culprit or (window[-1] if window else None))
        return Incident(
            kind, self.steps, 0, optimizer, wanted, len(window), self._changed, chain, self._draws(), self._scale()
        )

    # -- what is seen ------------------------------------------------------------------------------------------------

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self.optimizers[id(optimizer)] = optimizer

    def backward_begins(self, tensors: Sequence[Any], frame: FrameType) -> None:
        if self._window and self._culprit is None and not self._gradients_finite(self.optimizers.values()):
            self._culprit, self._alarm = self._window[-1], True
            self._be_alert()
        values, finite = self._look(tensors)
        known = self._moments
        moments = tuple(
            [
                (moment, known.passes_since(moment.kind) + 1)
                for moment in (known.forward, known.draw, known.step)
                if moment is not None
            ]
        )
        record = Backward(values, finite, self._marks_of(frame), moments, drawn=self.last_draw)
        if not finite:
            self._alarm = True
            self._be_alert()
            record.chain = user_chain(frame)
            record.reached = frozenset(_reached(tensors))
            record.losses = tuple(item.detach() for item in tensors if isinstance(item, torch.Tensor))
        self.present_loss = None if values is None else values[0]
        self._window.append(record)
        self.passes += 1

    def _marks_of(self, frame: FrameType) -> tuple[tuple[int, CodeType, int], ...]:
        """The call chain; that of the step before where the same frame calls ``Tensor.backward`` at the same place."""
        caller = frame.f_back
        if caller is None or frame.f_code is not _BACKWARD_CODE:
            return frame_marks(frame)
        key = (id(caller), caller.f_code, caller.f_lasti)
        if len(self._marks) < 2 or key != self._marks[1]:
            self._marks = frame_marks(frame)
        return self._marks

    def backward_ended(self, tensors: Sequence[Any]) -> None:
        if not self._window:
            return
        record = self._window[-1]
        if not record.finite:
            record.spoilt = not self._gradients_finite(self.optimizers.values())
        if self._closure is not None:
            self._check(self._closure, None)

    def loss_scaled(self, scaler: Any, frame: FrameType) -> None:
        self._scaled = True
        self._scaler = scaler

    def gradients_zeroed(self, owner: Any) -> None:
        if not self._window:
            return
        self._be_alert()
        cleared = {id(parameter) for parameter in _parameters_of(owner)}
        for record in self._window:
            record.reached = record.reached - cleared
        everything = {id(item) for optimizer in self.optimizers.values() for item in _parameters_of(optimizer)}
        whole = everything <= cleared
        kept = [record for record in self._window if record.reached or (record.finite and not whole)]
        self._window = deque(kept, maxlen=_WINDOW)
        if whole:
            self._culprit = None
        self._alarm = self._culprit is not None or any(not record.finite for record in self._window)

    def gradients_clipped(self, parameters: Any, kind: str, limit: Any, norm: Any) -> None:
        self._changed = True

    def gradients_unscaled(self, scaler: Any, optimizer: Any) -> None:
        self._changed = True

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: Any, frame: FrameType) -> None:
        known = self._known.get(id(optimizer))
        if known is None or known.optimizer() is not optimizer:
            self._meet(optimizer)
            known = self._known[id(optimizer)]
        if closure is not None:
            self._be_alert()
            self._moments.closure_met()
            self._closure = optimizer
            self._passes_before = self.passes
            return
        if self._is_glance(known.sweep) and self._glance(known.sweep):
            self._swept_at, self._swept_whole = self.steps, False
        elif not skips_itself(optimizer):
            self._check(optimizer, frame)

    def closure_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        # one that has computed gradients itself was looked at when they were there
        if self.passes == self._passes_before and not skips_itself(optimizer):
            self._check(optimizer, frame)

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._closure = None
        dropping, self._dropping = self._dropping, None
        if dropping is optimizer or skips_itself(optimizer):
            self.skipped += 1
            self._forget()
            return
        self.count_step(optimizer)
        if self._parameter_pace.due():
            self._check_parameters(optimizer, frame)
        self._forget()
        if self.steps >= self._calm_at:
            self._calm_at = sys.maxsize
            self.rest.begin()

    def _be_alert(self) -> None:
        """Something is different from the usual steps, in which only a loss and a step have to be looked at."""
        self._calm_at = self.steps + _EVERY_STEP
        self.rest.end()

    def count_step(self, optimizer: torch.optim.Optimizer) -> None:
        """A step is complete."""
        known = self._known.get(id(optimizer))
        if known is not None:
            known.taken.count += 1
            known.taken.last = self.steps
        self.steps += 1
        now = time.perf_counter()
        if self._last_step_at is not None:
            elapsed = now - self._last_step_at
            # a slow step (validation, a checkpoint) says nothing about the usual one
            self._step_seconds = elapsed if self._step_seconds == 0.0 else min(elapsed, 1.25 * self._step_seconds)
        self._last_step_at = now

    # -- checks ------------------------------------------------------------------------------------------------------

    def _look(self, tensors: Sequence[Any]) -> tuple[tuple[float, ...] | None, bool]:
        first = tensors[0] if tensors else None
        if not isinstance(first, torch.Tensor):
            return None, True  # a graph edge has no value to look at
        if not first.is_cpu and self.passes % _DEVICE_INTERVAL:
            return None, True
        if len(tensors) == 1 and first.numel() == 1 and not first.is_complex():
            value = float(first.item())
            return (value,), isfinite(value)
        return None, all_finite([tensor.detach() for tensor in tensors if isinstance(tensor, torch.Tensor)])

    def _is_glance(self, sweep: Sweep) -> bool:
        """Whether one gradient is enough of this step: to look at all is dear, and was done not long ago."""
        return bool(
            self.steps % _DEAR_INTERVAL
            and not self._alarm
            and (0.0 < self._step_seconds < _TINY or sweep.partial)
            and self.steps >= _EVERY_STEP
            and not self._drops
        )

    @staticmethod
    def _glance(sweep: Sweep) -> bool:
        """Whether the first parameter has a plain gradient that is finite: in a few microseconds, or not at all."""
        gradient = sweep.first.grad if sweep.first is not None else None
        if gradient is None or gradient.requires_grad or gradient.layout is not torch.strided:
            return False
        return isfinite(gradient.sum().item())

    def _must_wait(self, sweep: Sweep) -> bool:
        """Whether a look would wait for a device, and the last one wasn't long ago."""
        first = sweep.parameters[0] if sweep.parameters else None
        waits = first is not None and first.device.type != "cpu" and bool(self.steps % _DEVICE_INTERVAL)
        return waits and not self._drops

    def _gradients_finite(self, optimizers: Any) -> bool:
        return all(self._sweep(optimizer).gradients_finite() for optimizer in optimizers)

    def _meet(self, optimizer: torch.optim.Optimizer) -> _Known:
        """Sort an optimiser's parameters; those that are non-finite before its first step are so on purpose."""
        identity = id(optimizer)
        parameters = _parameters_of(optimizer)
        if identity not in self._known:
            self.met += 1
            if not all_finite(parameters):
                self._born_nonfinite |= {id(parameter) for parameter in parameters if not all_finite([parameter])}
        self.optimizers[identity] = optimizer
        every = [item for group in optimizer.param_groups for item in group["params"]]
        known = _Known(
            ref(optimizer, lambda _: self._known.pop(identity, None)), Sweep(every), self.steps_of(optimizer)
        )
        self._known[identity] = known
        return known

    def _sweep(self, optimizer: torch.optim.Optimizer) -> Sweep:
        known = self._known.get(id(optimizer))
        # parameters change so seldom that a look now and then is enough
        if known is None or self.steps % _RESORT == 0:
            known = self._meet(optimizer)
        return known.sweep

    def _check(self, optimizer: torch.optim.Optimizer, frame: FrameType | None) -> None:
        """Look at everything that a step of ``optimizer`` is about to take."""
        sweep = self._sweep(optimizer)
        if self._must_wait(sweep) and not self._alarm:
            return
        if self._is_glance(sweep):
            quick = True
            finite = sweep.first_gradient_finite()
        else:
            quick = sweep.partial and not self._alarm and not self._drops and not self._gradient_pace.due()
            begin = time.perf_counter()
            finite = sweep.gradients_finite(quick)
            if not quick:
                self._gradient_pace.spent(time.perf_counter() - begin, self._step_seconds)
        unseen = 0 if self._swept_at < 0 else max(0, self.steps - self._swept_at - 1)
        whole_before = self._swept_whole
        self._swept_at, self._swept_whole = self.steps, not quick
        bad_losses = []
        if self._alarm:
            own = {id(parameter) for parameter in sweep.parameters}
            bad_losses = [record for record in self._window if not record.finite and record.reached & own]
        if finite:
            # a loss that only its scale has made infinite is undone when its gradients are unscaled
            bad_losses = [
                record for record in bad_losses if record.spoilt is False and not (self._scaled and _infinite(record))
            ]
            if not bad_losses:
                return
        backward = bad_losses[0] if bad_losses else (self._culprit or (self._window[-1] if self._window else None))
        if self._poisoned_before(frame, unseen, whole_before):
            return
        incident = Incident(
            "loss" if bad_losses else "gradient",
            self.steps,
            0,
            optimizer,
            backward,
            len(self._window),
            self._changed,
            user_chain(frame),
            self._draws(),
            self._scale(),
        )
        if not self._drops:
            self._report(incident)
            return
        self.to_drop = self._dropping = optimizer
        if not self.dropped:
            self._declare(incident)  # the first one is explained; it spoils nothing that comes after it
        self.dropped += 1

    def _poisoned_before(self, frame: FrameType | None, late: int, whole: bool) -> bool:
        """Whether a parameter was non-finite already: then an earlier step is the incident, not this one.

        ``late``: steps before this one whose gradients weren't looked at; ``whole``: the last look was at all of them.
        """
        if self.steps == 0 or self._clean_after == self.steps:
            return False
        bad = self._bad_parameter(self.optimizers.values())
        if bad is None:
            return False
        kind = "parameter" if late == 0 and (whole or self._were_finite(bad)) else "gradient"
        # "late" also where the step is known but its gradients are gone
        late = late if kind == "parameter" else max(1, late)
        self._report(Incident(kind, self.steps - 1, late, bad, None, 0, False, user_chain(frame), ()))
        return True

    def _were_finite(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether gradients that a step has taken must have been finite, when only one of them was looked at.

        Either the averages that the optimiser keeps of them are, or the one that was seen to be finite has spoilt its
        parameter nevertheless.
        """
        first = self._sweep(optimizer).first
        return _averages_finite(optimizer) or (first is not None and not all_finite([first]))

    def _check_parameters(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        begin = time.perf_counter()
        sweep = self._sweep(optimizer)
        if self._must_wait(sweep):
            return
        finite, state_finite = sweep.values_finite(), all_finite(_state_of(optimizer))
        if not finite and self._born_nonfinite:
            finite = self._bad_parameter([optimizer]) is None
        self._parameter_pace.spent(time.perf_counter() - begin, self._step_seconds)
        if finite and state_finite:
            if len(self.optimizers) == 1:
                self._clean_after = self.steps
            return
        # A poisoned weight makes the next loss non-finite, so it was this step's update if its gradients were fine.
        swept = self._swept_at == self.steps - 1 and (self._swept_whole or self._were_finite(optimizer))
        kind = ("parameter" if not finite else "state") if swept else "gradient"
        backward = self._window[-1] if self._window and swept else None
        self._report(
            Incident(
                kind,
                self.steps - 1,
                0 if swept else max(1, self.steps - 1 - self._swept_at),
                optimizer,
                backward,
                len(self._window),
                False,
                user_chain(frame),
                self._draws(),
            )
        )

    def _bad_parameter(self, optimizers: Any) -> torch.optim.Optimizer | None:
        for optimizer in optimizers:
            parameters = [item for item in _parameters_of(optimizer) if id(item) not in self._born_nonfinite]
            if first_nonfinite(parameters) is not None:
                return optimizer  # type: ignore[no-any-return]
        return None

    def _report(self, incident: Incident) -> None:
        if incident.kind in self._declared:
            return  # one cause is one incident, however many steps it touches
        self._declared.add(incident.kind)
        # what a step made non-finite spoils everything after it
        self._declared |= {"loss", "gradient", "parameter", "state"} if incident.kind != "state" else set()
        self._declare(incident)

    def _scale(self) -> float:
        enabled = self._scaled and self._scaler is not None and self._scaler.is_enabled()
        return float(self._scaler.get_scale()) if enabled else 1.0

    def _draws(self) -> tuple[tuple[int, Any], ...]:
        return tuple((draw.position, draw.batch) for draw in self._moments.draws)

    def _forget(self) -> None:
        self._window.clear()
        self._culprit = None
        self._changed = self._scaled = False


def _parameters_of(owner: Any) -> list[torch.Tensor]:
    """Without those that get their shape in the first forward pass, before that."""
    if isinstance(owner, torch.nn.Module):
        return [item for item in owner.parameters() if not is_lazy(item)]
    return [item for group in owner.param_groups for item in group["params"] if not is_lazy(item)]


def _infinite(record: Backward) -> bool:
    return record.values is not None and isinf(record.values[0])


def _averages_finite(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the averages of the gradients that an optimiser keeps are finite; False if it keeps none."""
    averages = [entry.get("exp_avg", entry.get("momentum_buffer")) for entry in optimizer.state.values()]
    kept = [item for item in averages if isinstance(item, torch.Tensor)]
    return bool(kept) and all_finite(kept)


def _state_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [
        value
        for entry in optimizer.state.values()
        if isinstance(entry, dict)
        for value in entry.values()
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1
    ]


def skips_itself(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a fused optimiser will drop its step because a loss scaler has found infinities."""
    found = getattr(optimizer, "found_inf", None)
    return isinstance(found, torch.Tensor) and bool(found.item())


def _reached(tensors: Sequence[Any]) -> set[int]:
    """Identities of the leaf tensors into which a backward call would accumulate gradients."""
    stack = [tensor.grad_fn for tensor in tensors if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None]
    reached = {id(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor) and tensor.grad_fn is None}
    visited = set(stack)
    while stack:
        node = stack.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            reached.add(id(variable))
        for following, _ in node.next_functions:
            if following is not None and following not in visited:
                visited.add(following)
                stack.append(following)
    return reached
