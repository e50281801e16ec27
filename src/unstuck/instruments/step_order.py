"""Follows the gradients of each optimiser from the passes that leave them to the step that takes them.

A few parameters stand for all of an optimiser's. What has happened to their gradients is told by the identity and the
version counter of ``.grad``, so that clearing is seen however it is written (``zero_grad`` of optimiser or model,
``p.grad = None``, ``p.grad.zero_()``), and what the program does to gradients itself isn't taken for it.
"""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from unstuck.instruments.connections import Connections
from unstuck.instruments.guard import Guard, StepCount, skips_itself
from unstuck.places import CallKey, call_key, user_chain
from unstuck.record.order import OrderRecord, Site
from unstuck.record.recording import Recording
from unstuck.signals import Rest

__all__ = ["StepOrder"]

_SEARCHES = 16
"""Passes in which the parameters that stand for an optimiser's are searched for, before that becomes rare."""

_CLOSE_LOOKS = 64
"""Steps in which the numbers of a gradient that was written to are looked at."""

_ALWAYS = 128
"""First steps that are all followed."""

_WINDOW, _PERIOD = 16, 256
"""Later so many steps of so many: following costs some ten microseconds a step."""

_FOLLOWED = (
    "backward_begins",
    "backward_ended",
    "gradients_zeroed",
    "gradients_clipped",
    "gradients_unscaled",
    "scaler_stepped",
    "step_begins",
    "step_ended",
)

_MOST_SITES = 16
_MOST_OPTIMIZERS = 256

Mark = tuple[int, int]
_NO_GRADIENT: Mark = (0, 0)

_SAME, _GONE, _WRITTEN, _OTHER = "same", "gone", "written", "other"


@dataclass
class _Owner:
    """An optimiser.

    Attributes:
        taken: its steps, also of those that aren't followed.
        probes: parameters that stand for all.
        marks: what their gradients were after the last thing that was seen.
        untaken: passes since its last step, or since its gradients were cleared.
        stale: for each of them, whether its gradient holds some that a step has taken.
        fed: for each, whether a pass has fed it since.
        lost: (site, steps of all optimisers by then) of passes whose gradients were cleared since its last step.
        source: line of the last pass that fed it.
        fed_at: steps of all optimisers at that time.
        cleared_by: line that cleared its gradients last.
        tampered: the program has changed its gradients itself since the last step.
        in_closure: it is within a step that runs a closure.
        blind: what came before its next step wasn't followed.
    """

    optimizer: weakref.ref[torch.optim.Optimizer]
    record: OrderRecord
    taken: StepCount
    probes: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    count: int = 0
    searches: int = 0
    before: list[Mark] | None = None
    untaken: int = 0
    stale: list[bool] = field(default_factory=list)
    fed: list[bool] = field(default_factory=list)
    lost: list[tuple[Site, int]] = field(default_factory=list)
    source: Site | None = None
    fed_at: int = 0
    cleared_by: Site | None = None
    tampered: bool = False
    in_closure: bool = False
    blind: bool = False

    def bring_up_to_date(self) -> None:
        """Tell the record of the steps that weren't followed."""
        if self.taken.count > self.record.steps:
            self.record.steps = self.taken.count
            self.record.last_step = self.taken.last


class StepOrder:
    """The instrument.

    Args:
        recording: where the records go.
        guard: counts the steps.
        connections: numbers the optimisers and knows where they were made.
    """

    name = "step order"

    def __init__(self, recording: Recording, guard: Guard, connections: Connections) -> None:
        self._recording = recording
        self._guard = guard
        self._connections = connections
        self._owners: dict[int, _Owner] = {}
        self._passes: dict[CallKey, Site] = {}
        self._zeroes: dict[CallKey, Site] = {}
        self._steps: dict[tuple[int, CallKey], Site] = {}
        self.rest = Rest(_FOLLOWED, self._woken)

    # -- signals -----------------------------------------------------------------------------------------------------

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._owner(optimizer)

    def backward_begins(self, tensors: Any, frame: FrameType) -> None:
        for owner in self._living():
            self._observe(owner)
            if not owner.probes:
                self._search(owner)

    def backward_ended(self, tensors: Any) -> None:
        site: Site | None = None
        for owner in self._living():
            if owner.before is not None:
                self._choose(owner)
            marks = _marks(owner)
            if marks == owner.marks:
                continue
            owner.fed = [fed or now != then for fed, now, then in zip(owner.fed, marks, owner.marks, strict=True)]
            owner.marks = marks
            if site is None:
                site = self._site(self._passes, sys._getframe(1))
                if site.count == 0:
                    site.before = self._guard.steps
                site.count += 1
            owner.untaken += 1
            owner.record.fed += 1
            owner.source, owner.fed_at = site, self._guard.steps
            _add(owner.record.fed_by, site)

    def gradients_zeroed(self, owner: Any) -> None:
        site: Site | None = None
        for item in self._living():
            if not item.probes or _marks(item) == item.marks:
                continue
            if site is None:
                site = self._site(self._zeroes, sys._getframe(1))
                site.count += 1
            _add(item.record.zero_at, site)
            self._clear(item, site)

    def gradients_clipped(self, parameters: Any, kind: str, limit: Any, norm: Any) -> None:
        self._refresh()

    def gradients_unscaled(self, scaler: Any, optimizer: Any) -> None:
        self._refresh()

    def scaler_stepped(self, scaler: Any, optimizer: Any) -> None:
        owner = self._owners.get(id(optimizer))
        if owner is not None and owner.optimizer() is optimizer:
            owner.untaken, owner.lost = 0, []  # a step that the scaler drops is wanted
            _taken(owner)

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: Any, frame: FrameType) -> None:
        owner = self._owner(optimizer)
        if owner is None:
            return
        owner.in_closure = closure is not None
        owner.record.closure |= owner.in_closure
        if skips_itself(optimizer):
            return
        if owner.record.first_step is None:
            owner.record.first_step = self._guard.steps
        owner.record.last_step = self._guard.steps
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        if count != owner.count:
            owner.count = owner.record.parameters = count
            owner.probes, owner.marks, owner.searches = [], [], 0
        if not owner.in_closure:
            self._judge(owner, optimizer, frame)

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        owner = self._owners.get(id(optimizer))
        if owner is None or owner.optimizer() is not optimizer or skips_itself(optimizer):
            return
        owner.record.steps += 1
        if owner.in_closure:
            self._judge(owner, optimizer, frame)
        owner.untaken, owner.lost, owner.tampered, owner.blind = 0, [], False, False
        _taken(owner)
        steps = self._guard.steps
        if steps >= _ALWAYS and steps % _PERIOD >= _WINDOW:
            self.rest.begin(_PERIOD - steps % _PERIOD)

    def _woken(self) -> None:
        for owner in self._living():
            owner.untaken, owner.lost, owner.tampered, owner.blind = 0, [], False, True
            _taken(owner)

    def run_ends(self) -> None:
        self.fetch()

    def fetch(self) -> None:
        """Bring the records up to date."""
        for owner in self._owners.values():
            owner.bring_up_to_date()

    # -- one optimiser -----------------------------------------------------------------------------------------------

    def _judge(self, owner: _Owner, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        """What the step takes."""
        record = owner.record
        if owner.blind:
            return
        record.judged += 1
        now = self._guard.steps - owner.in_closure  # a step with a closure is judged when it is over
        self._observe(owner)
        record.reworked += owner.tampered
        step = self._step_site(owner, frame)
        step.count += 1
        if owner.untaken:
            if any(stale and fed for stale, fed in zip(owner.stale, owner.fed, strict=True)):
                record.piled += 1
            else:
                record.fresh += 1
            lost = [at for at, steps in owner.lost if at is owner.source and steps == now]
            if lost and not owner.tampered and not owner.in_closure:
                record.micro += 1
                record.micro_passes += len(lost)
                if owner.cleared_by is not None and not record.cleared_at:
                    record.cleared_at = owner.cleared_by.at
            elif owner.cleared_by is not None and not owner.tampered and not owner.in_closure:
                apart = any(steps == now for _, steps in owner.lost)
                record.apart += apart
                if apart and not record.apart_at:
                    record.apart_at = owner.cleared_by.at
            return
        step.in_vain += 1
        if owner.tampered:
            record.manual += 1
        elif any(steps == now for _, steps in owner.lost):
            record.cleared += 1
            if owner.cleared_by is not None:
                record.cleared_at = owner.cleared_by.at
        elif all(item.grad is None for group in optimizer.param_groups for item in group["params"]):
            record.bare += 1
        else:
            if not owner.probes:
                self._stand_in(owner, [item for item in _parameters(optimizer) if item.grad is not None])
                record.manual += 1

    def _observe(self, owner: _Owner) -> None:
        """What the program has done to the gradients since they were last looked at."""
        if not owner.probes:
            return
        marks = _marks(owner)
        if marks == owner.marks:
            return
        what = _difference(owner.marks, marks)
        if what == _GONE or (what == _WRITTEN and self._are_zero(owner)):
            self._clear(owner, None)
            return
        owner.marks = marks
        owner.stale = [False] * len(marks)  # not as the step left them: the program works on its gradients itself
        owner.tampered = True

    def _are_zero(self, owner: _Owner) -> bool:
        if owner.record.steps >= _CLOSE_LOOKS:
            return False
        gradients = [None if (item := probe()) is None else item.grad for probe in owner.probes]
        return not any(bool(gradient.any()) for gradient in gradients if gradient is not None)

    def _clear(self, owner: _Owner, site: Site | None) -> None:
        if owner.untaken and owner.source is not None and _marks(owner) != owner.marks:
            owner.lost += [(owner.source, owner.fed_at)] * min(owner.untaken, 64)
            owner.cleared_by = site
        marks = _marks(owner)
        kept = [mark != _NO_GRADIENT and mark == then for mark, then in zip(marks, owner.marks, strict=True)]
        owner.stale = [stale and same for stale, same in zip(owner.stale, kept, strict=True)]
        owner.fed = [fed and same for fed, same in zip(owner.fed, kept, strict=True)]
        owner.marks = marks
        if not any(kept):
            owner.untaken = 0

    def _refresh(self) -> None:
        """Gradients were scaled, by torch and on purpose."""
        for owner in self._living():
            owner.marks = _marks(owner)

    def _search(self, owner: _Owner) -> None:
        """Remember all gradients, to see which of them the pass changes."""
        owner.searches += 1
        if owner.searches > _SEARCHES and owner.searches & (owner.searches - 1):
            return
        optimizer = owner.optimizer()
        if optimizer is not None:
            owner.before = [_mark(item) for item in _parameters(optimizer)]

    def _choose(self, owner: _Owner) -> None:
        """The first, the middle and the last parameter that a pass has fed stand for all."""
        before, owner.before = owner.before, None
        optimizer = owner.optimizer()
        parameters = [] if optimizer is None else _parameters(optimizer)
        if before is None or len(before) != len(parameters):
            return
        fed = [(item, mark) for item, mark in zip(parameters, before, strict=True) if _mark(item) != mark]
        if fed:
            some = {0: fed[0], len(fed) // 2: fed[len(fed) // 2], len(fed) - 1: fed[-1]}
            self._stand_in(owner, [item for item, _ in some.values()])
            owner.marks = [mark for _, mark in some.values()]

    def _stand_in(self, owner: _Owner, parameters: list[torch.Tensor]) -> None:
        owner.probes = [weakref.ref(item) for item in parameters[:3]]
        owner.marks = _marks(owner)
        owner.stale, owner.fed = [False] * len(owner.probes), [False] * len(owner.probes)

    # -- who and where -----------------------------------------------------------------------------------------------

    def _living(self) -> list[_Owner]:
        return list(self._owners.values())

    def _owner(self, optimizer: torch.optim.Optimizer) -> _Owner | None:
        identity = id(optimizer)
        owner = self._owners.get(identity)
        if owner is not None and owner.optimizer() is optimizer:
            return owner
        if len(self._recording.all(OrderRecord)) >= _MOST_OPTIMIZERS:
            return None
        number = self._connections.number_of(optimizer)
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        made_at = self._connections.made_at(optimizer)
        record = OrderRecord(number, type(optimizer).__name__, made_at, count)
        self._recording.keep(record)
        owner = _Owner(
            weakref.ref(optimizer, lambda _: self._drop(identity)), record, self._guard.steps_of(optimizer), count=count
        )
        self._owners[identity] = owner
        return owner

    def _drop(self, identity: int) -> None:
        owner = self._owners.pop(identity, None)
        if owner is not None:
            owner.bring_up_to_date()

    def _step_site(self, owner: _Owner, frame: FrameType) -> Site:
        sites: dict[CallKey, Site] = {}
        key = call_key(frame)
        known = self._steps.get((id(owner), key))
        if known is not None:
            return known
        site = self._site(sites, frame)
        if len(owner.record.step_at) < _MOST_SITES:
            self._steps[(id(owner), key)] = site
            owner.record.step_at.append(site)
        return site

    @staticmethod
    def _site(sites: dict[CallKey, Site], frame: FrameType) -> Site:
        key = call_key(frame)
        site = sites.get(key)
        if site is None:
            site = Site(user_chain(frame))
            if len(sites) < 64 * _MOST_SITES:
                sites[key] = site
        return site


def _add(sites: list[Site], site: Site) -> None:
    if len(sites) < _MOST_SITES and all(item is not site for item in sites):
        sites.append(site)


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [item for group in optimizer.param_groups for item in group["params"]]


def _mark(parameter: torch.Tensor) -> Mark:
    gradient = parameter.grad
    return _NO_GRADIENT if gradient is None else (id(gradient), gradient._version)


def _taken(owner: _Owner) -> None:
    """Its gradients were taken, or dropped, as they are now."""
    owner.marks = _marks(owner)
    owner.stale = [mark != _NO_GRADIENT for mark in owner.marks]
    owner.fed = [False] * len(owner.marks)


def _marks(owner: _Owner) -> list[Mark]:
    return [_NO_GRADIENT if (item := probe()) is None else _mark(item) for probe in owner.probes]


def _difference(old: list[Mark], new: list[Mark]) -> str:
    changed = [(left, right) for left, right in zip(old, new, strict=True) if left != right]
    if all(right == _NO_GRADIENT for _, right in changed):
        return _GONE
    return _WRITTEN if all(left[0] == right[0] for left, right in changed) else _OTHER
