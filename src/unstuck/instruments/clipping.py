"""What clipping and loss scaling did to gradients, and where relative to backward pass and step they were called."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch

from unstuck.instruments.guard import Guard
from unstuck.measure.gradient_norms import norms_of, total_of
from unstuck.places import Frame, user_chain, user_frame
from unstuck.record.gradients import FIRST_PARAMETER, ClipRecord, ScalerRecord
from unstuck.record.recording import Recording
from unstuck.signals import Rest

__all__ = ["Clipping"]

_BLOCK = 64
"""Norms that wait on the device before they are fetched together."""

_PATIENCE = 64
"""Steps after which passes and steps are no longer followed where nothing has clipped or scaled, until it does."""

_OFTEN, _SELDOM = 64, 64
"""Calls in which a scale is read every time; after that every so many, for it may make the device wait."""

_CHECKS = 4
"""Steps past the scaler whose gradients are compared with what backward left."""

_LOOKS = 8
"""Steps of a scaler before which it is looked at whether the program has changed scaled gradients by hand."""

_SCALED = 64.0
"""Smallest scale with which scaled and unscaled gradients can be told apart by their norm."""


@dataclass
class _Site:
    """One line that clips; ``pending``: (step, norm, limit) that wait to be fetched."""

    record: ClipRecord
    first: weakref.ref[torch.Tensor] | None = None
    count: int = -1
    owners: dict[int, list[int] | None] = field(default_factory=dict)
    pending: list[tuple[int, torch.Tensor, float]] = field(default_factory=list)


@dataclass
class _Owner:
    """An optimiser, with counts of backward passes at which things happened to its gradients.

    Attributes:
        taken: passes when its step last took them (or a scaler skipped it).
        unscaled: passes when a scaler last unscaled them.
        unseen: it has stepped without a pass before: something else computes its gradients.
        clips: (passes, norm, limit, columns or None for all) since the last step.
        scaled_clips: clips of gradients that were scaled, to be settled when the scaler steps.
    """

    index: int
    optimizer: weakref.ref[torch.optim.Optimizer]
    taken: int = 0
    unscaled: int = -1
    unseen: bool = False
    clips: list[tuple[int, torch.Tensor, float, list[int] | None]] = field(default_factory=list)
    scaled_clips: list[tuple[_Site, torch.Tensor | None, float]] = field(default_factory=list)


@dataclass
class _Scaler:
    """A loss scaler and how far its present step is."""

    record: ScalerRecord
    scaler: weakref.ref[Any]
    scaled_at_pass: int = -1
    steps_before: int = 0
    checks: int = 0
    left: dict[int, torch.Tensor] = field(default_factory=dict)


class Clipping:
    """The instrument.

    Args:
        recording: where the numbers go.
        guard: counts steps.

    """

    name = "clipping"

    def __init__(self, recording: Recording, guard: Guard) -> None:
        self._recording = recording
        self._guard = guard
        self.rest = Rest(("backward_begins", "backward_ended", "gradients_zeroed", "step_begins", "step_ended"))
        self._follows = False
        self._taken = 0  # passes by torch.autograd.grad
        self._sites: dict[tuple[CodeType, int] | None, _Site] = {}
        self._owners: dict[int, _Owner] = {}
        self._scalers: dict[int, _Scaler] = {}
        self._site: _Site | None = None
        self._zeroed_at = -1
        self._plain_pass = 0
        self._scaling: _Scaler | None = None
        self._in_scaler = False
        self._check: tuple[_Owner, _Scaler] | None = None
        self._check_norm: torch.Tensor | None = None
        self._first_norms: dict[int, torch.Tensor] | None = {}

    # -- for the gradients' instrument -------------------------------------------------------------------------------

    def follow(self, optimizer: torch.optim.Optimizer, index: int) -> None:
        """Know an optimiser by its place in the recording."""
        owner = self._owners.get(id(optimizer))
        if owner is None or owner.optimizer() is not optimizer:
            self._owners[id(optimizer)] = _Owner(index, weakref.ref(optimizer))
        else:
            owner.index = index
        for site in self._sites.values():
            site.count = -1  # whose parameters it clips is to be told anew

    def covers(self, parameters: Any, optimizer: torch.optim.Optimizer) -> bool:
        """Whether a clipping call on ``parameters`` touches an optimiser's."""
        given = {id(item) for item in ([parameters] if isinstance(parameters, torch.Tensor) else parameters)}
        return any(id(item) in given for group in optimizer.param_groups for item in group["params"])

    def present(self, optimizer: torch.optim.Optimizer) -> list[tuple[torch.Tensor, float, list[int] | None]]:
        """(norm before, limit, columns) of each clipping by norm of an optimiser's present gradients."""
        owner = self._owners.get(id(optimizer))
        if owner is None:
            return []
        passes = self.passes
        return [(norm, limit, columns) for at, norm, limit, columns in owner.clips if at == passes]

    @property
    def passes(self) -> int:
        """Backward calls so far, and calls of ``torch.autograd.grad``."""
        return self._guard.passes + self._taken

    def backward_begins(self, tensors: Any, frame: FrameType) -> None:
        self._note_pass()

    def gradients_taken(self, outputs: Any) -> None:
        self._taken += 1
        self._note_pass()

    def _note_pass(self) -> None:
        passes = self.passes
        if self._scaling is None or self._scaling.scaled_at_pass != passes - 1:
            self._plain_pass = passes

    def _begin_to_follow(self, taken: int) -> None:
        """The first clipping or scaling: of what came before it unseen, ``taken`` passes count as taken by a step."""
        if self._follows:
            return
        self._follows = True
        if self.rest.until:
            self.rest.end()
            self._plain_pass = taken
            for owner in self._owners.values():
                owner.taken = taken

    # -- clipping ----------------------------------------------------------------------------------------------------

    def clip_begins(self, parameters: Any, kind: str, limit: Any, frame: FrameType) -> None:
        self._begin_to_follow(self.passes - 1)
        user = user_frame(frame)
        key = None if user is None else (user.f_code, user.f_lasti)
        site = self._sites.get(key)
        if site is None:
            record = ClipRecord(user_chain(frame), kind, math.nan)
            site = self._sites[key] = _Site(record)
            self._recording.clips.append(record)
        self._site = site

    def gradients_clipped(self, parameters: Any, kind: str, limit: Any, norm: Any) -> None:
        site = self._site
        if site is None:
            return
        tensors = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        self._learn_owners(site, tensors)
        record = site.record
        record.calls += 1
        record.limit = _number(limit)
        if not tensors:
            record.empty += 1
            return
        bare = tensors[0].grad is None and all(item.grad is None for item in tensors)
        record.bare += bare
        if self._owners and not site.owners:
            record.strange += 1
        passes = self.passes
        fresh = False
        for identity, columns in site.owners.items():
            owner = self._owners[identity]
            if passes <= owner.taken and not owner.unseen:
                continue
            if bare and not _has_gradients(owner):
                continue  # passes for another optimiser have come, and this one's gradients were cleared since
            fresh = True
            if norm is not None:
                owner.clips.append((passes, norm, record.limit, columns))
            if self._is_scaled(owner):
                owner.scaled_clips.append((site, norm, record.limit))
        if fresh:
            record.fresh += 1
        elif site.owners:
            record.stale += 1
            record.cleared += bare or self._zeroed_at == passes
        if norm is not None:
            site.pending.append((self._guard.steps, norm, record.limit))
            if len(site.pending) >= _BLOCK:
                _fetch(site)

    def _learn_owners(self, site: _Site, tensors: list[torch.Tensor]) -> None:
        """Whose parameters a line clips: looked up again only where they seem to be others."""
        same = len(tensors) == site.count and (not tensors or (site.first is not None and site.first() is tensors[0]))
        if same:
            return
        site.count = len(tensors)
        site.first = weakref.ref(tensors[0]) if tensors else None
        given = {id(item) for item in tensors}
        self._learn_optimizers()
        site.owners = {}
        for identity, owner in self._owners.items():
            held_by = owner.optimizer()
            if held_by is None:
                continue
            held = [item for group in held_by.param_groups for item in group["params"]]
            columns = [FIRST_PARAMETER + index for index, item in enumerate(held) if id(item) in given]
            if columns:
                site.owners[identity] = None if len(columns) == len(held) else columns
                if owner.index >= 0 and owner.index not in site.record.optimizers:
                    site.record.optimizers.append(owner.index)

    def _learn_optimizers(self) -> None:
        for identity, optimizer in self._guard.optimizers.items():
            if identity not in self._owners:
                self._owners[identity] = _Owner(-1, weakref.ref(optimizer))

    def gradients_zeroed(self, owner: Any) -> None:
        self._zeroed_at = self.passes

    # -- steps -------------------------------------------------------------------------------------------------------

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: Any, frame: FrameType) -> None:
        owner = self._owners.get(id(optimizer))
        if owner is None:
            return
        if self._scaling is not None and not self._in_scaler and self._is_scaled(owner):
            self._passed_by(self._scaling, owner, optimizer, frame)
        # a closure's passes come during the step
        owner.unseen = owner.unseen or (closure is None and self.passes == owner.taken)
        owner.taken = self.passes

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        owner = self._owners.get(id(optimizer))
        if owner is not None:
            owner.taken = self.passes
            if owner.clips:
                owner.clips = []
        if not self._follows and self._guard.steps >= _PATIENCE:
            self.rest.begin()

    # -- loss scaling ------------------------------------------------------------------------------------------------

    def loss_scaled(self, scaler: Any, frame: FrameType) -> None:
        if not scaler.is_enabled():
            return
        self._begin_to_follow(self.passes)
        found = self._scalers.get(id(scaler))
        if found is None or found.scaler() is not scaler:
            record = self._record_of_scaler(user_chain(frame))
            found = self._scalers[id(scaler)] = _Scaler(record, weakref.ref(scaler))
            self._learn_optimizers()
        found.scaled_at_pass = self.passes
        self._scaling = found

    def _record_of_scaler(self, scaled_at: tuple[Frame, ...]) -> ScalerRecord:
        """A new record; that of a scaler which the same line has used and which is gone: one is made for every step."""
        for identity, known in list(self._scalers.items()):
            if known.scaler() is None and known.record.scaled_at == scaled_at:
                del self._scalers[identity]
                known.record.made_anew += 1
                return known.record
        record = ScalerRecord(scaled_at=scaled_at)
        self._recording.scalers.append(record)
        return record

    def gradients_unscaled(self, scaler: Any, optimizer: Any) -> None:
        owner = self._owners.get(id(optimizer))
        if owner is not None:
            owner.unscaled = self.passes

    def scaler_step_begins(self, scaler: Any, optimizer: Any, frame: FrameType) -> None:
        found = self._scalers.get(id(scaler))
        if found is None:
            return
        self._in_scaler = True
        record = found.record
        if not record.step_at:
            record.step_at = user_chain(frame)
        found.steps_before = self._guard.steps
        owner = self._owners.get(id(optimizer))
        if owner is not None and owner.scaled_clips:
            self._settle(found, owner)
        elif owner is not None and len(record.by_hand) < _LOOKS:
            self._note_norms(found, owner, scaler)

    def _note_norms(self, found: _Scaler, owner: _Owner, scaler: Any) -> None:
        """What the program has left of the norm of scaled gradients, by its own hand."""
        optimizer = owner.optimizer()
        left = None if optimizer is None else found.left.pop(id(optimizer), None)
        if optimizer is not None and left is not None and self._is_scaled(owner):
            norms = [float(left.item()), float(_total(optimizer).item())]
            if all(map(math.isfinite, norms)):
                found.record.by_hand.append([*norms, float(scaler.get_scale())])

    def scaler_stepped(self, scaler: Any, optimizer: Any) -> None:
        self._in_scaler = False
        self._first_norms = None
        found = self._scalers.get(id(scaler))
        if found is None:
            return
        record = found.record
        skipped = self._guard.steps == found.steps_before
        record.attempts += 1
        if skipped:
            record.skipped += 1
            record.running += 1
            if record.running > record.longest:
                record.longest = record.running
                record.longest_step = self._guard.steps
                record.longest_scale = float(scaler.get_scale())
        else:
            record.running = 0
        if skipped or record.attempts <= _OFTEN or record.attempts % _SELDOM == 0:
            record.scale = float(scaler.get_scale())
            record.first_scale = record.first_scale or record.scale
            record.scales.add(record.attempts - 1, (record.scale,))
        owner = self._owners.get(id(optimizer))
        if owner is not None:
            owner.taken = self.passes
            owner.clips = []

    def backward_ended(self, tensors: Any) -> None:
        scaling = self._scaling
        if scaling is not None and len(scaling.record.by_hand) < _LOOKS and scaling.scaled_at_pass == self.passes - 1:
            self._note_what_is_left(scaling)
        if self._check is not None:
            optimizer = self._check[0].optimizer()
            self._check_norm = None if optimizer is None else _total(optimizer)
        elif self._first_norms is not None and self._scaling is not None:
            # a first step past the scaler may be the last that leaves anything to compare
            held = ((key, owner.optimizer()) for key, owner in self._owners.items())
            self._first_norms = {key: _total(optimizer) for key, optimizer in held if optimizer is not None}

    def _note_what_is_left(self, scaling: _Scaler) -> None:
        """The norms that a scaled pass leaves, of the optimisers that it may have been for."""
        held = ((key, owner.optimizer()) for key, owner in self._owners.items())
        scaling.left = {key: _total(optimizer) for key, optimizer in held if optimizer is not None}

    def run_ends(self) -> None:
        self.fetch()

    def fetch(self) -> None:
        """Bring what waits into the recording."""
        for site in self._sites.values():
            _fetch(site)

    def _is_scaled(self, owner: _Owner) -> bool:
        """Whether an optimiser's gradients come from losses that were scaled, and nobody has unscaled them since.

        Every pass since its last step must have been of a scaled loss: which pass was whose isn't known.
        """
        scaling = self._scaling
        passes = self.passes
        return (
            scaling is not None
            and scaling.scaled_at_pass >= owner.taken
            and scaling.scaled_at_pass < passes
            and self._plain_pass <= owner.taken
            and owner.unscaled != passes
        )

    def _settle(self, found: _Scaler, owner: _Owner) -> None:
        """The scaler steps: what was clipped before is known to have been scaled."""
        clips, owner.scaled_clips = owner.scaled_clips, []
        scaler = found.scaler()
        for site, norm, limit in clips:
            record = site.record
            record.scaled += 1
            if record.scaled > _OFTEN and record.scaled % _SELDOM:
                continue
            scale = float(scaler.get_scale()) if scaler is not None else math.nan
            if record.scaled_step is None:
                record.scaled_step, record.scale = self._guard.steps, scale
            if norm is not None:
                record.scaled_acted += bool(norm.item() > limit)
            else:
                record.scaled_acted += 1
            held = limit / scale if scale > 0.0 else math.nan
            record.scaled_low = held if record.scaled_low is None else min(record.scaled_low, held)
            record.scaled_high = held if record.scaled_high is None else max(record.scaled_high, held)

    def _passed_by(self, found: _Scaler, owner: _Owner, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        """A step without the scaler; whether the script has unscaled by its own hand is told by the norms."""
        record = found.record
        scaler = found.scaler()
        after, self._check_norm = self._check_norm, None
        first, self._first_norms = self._first_norms, None
        if after is None and first is not None:
            after = first.get(id(optimizer))
        if found.checks >= _CHECKS or scaler is None:
            if record.bypassed:
                record.bypassed += 1
            return
        if after is None:
            self._check = (owner, found)  # to be compared at the next step
            return
        self._check = None if found.checks + 1 >= _CHECKS else (owner, found)
        found.checks += 1
        scale = float(scaler.get_scale())
        clipped = [norm for at, norm, _, _ in owner.clips if at == self.passes]
        left, taken = float(after.item()), float((clipped[0] if clipped else _total(optimizer)).item())
        if scale >= _SCALED and left > 0.0 and taken > 0.5 * left:
            record.bypassed += 1
            if record.bypassed_step is None:
                record.bypassed_step = self._guard.steps
                record.bypassed_at = user_chain(frame)
                record.bypassed_kind = type(optimizer).__name__
                record.scale = record.first_scale = scale


def _total(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    gradients = [item.grad for group in optimizer.param_groups for item in group["params"] if item.grad is not None]
    return total_of(norms_of(gradients, 2.0), 2.0) if gradients else torch.zeros(())


def _has_gradients(owner: _Owner) -> bool:
    optimizer = owner.optimizer()
    return optimizer is not None and any(
        item.grad is not None for group in optimizer.param_groups for item in group["params"]
    )


def _fetch(site: _Site) -> None:
    pending, site.pending = site.pending, []
    if not pending:
        return
    device = pending[0][1].device
    norms = torch.stack([norm.detach().reshape(()).to(device, torch.float32) for _, norm, _ in pending]).tolist()
    for (step, _, limit), norm in zip(pending, norms, strict=True):
        site.record.norms.add(step, (norm, limit))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
