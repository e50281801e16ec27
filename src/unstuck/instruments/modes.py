"""Sees in which mode modules train and are evaluated, where that has an effect: dropout, batch norm.

Modes are looked at when one was set, at the first steps, and seldom after; steps in between had the mode of the look
before.
"""

from __future__ import annotations

import linecache
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from unstuck.instruments.connections import Connections, forward_code
from unstuck.instruments.constructions import Constructions
from unstuck.instruments.guard import Guard, StepCount
from unstuck.instruments.inventory import plain_path
from unstuck.places import CallKey, Frame, call_key, user_chain
from unstuck.record.modes import EvaluationRecord, ModeRecord
from unstuck.record.recording import Recording
from unstuck.signals import Rest

__all__ = ["Modes"]

_FIRST = 4
_MOST_CALLS = 256
_MOST_SITES = 64
_MOST_EVALUATIONS = 4096
"""Calls without gradients that are looked at."""

_MOST_BURSTS = 32


_MODAL = (
    torch.nn.modules.dropout._DropoutNd,
    torch.nn.modules.batchnorm._BatchNorm,
    torch.nn.MultiheadAttention,
    torch.nn.RNNBase,
)
"""Kinds of layers whose mode matters."""


@dataclass
class _Layer:
    """A layer whose mode matters."""

    module: weakref.ref[torch.nn.Module]
    record: ModeRecord
    outer: list[weakref.ref[torch.nn.Module]]
    paths: list[str]
    training: bool | None = None


@dataclass
class _Trained:
    """What one optimiser trains; ``steps``: with the one that is about to be made."""

    taken: StepCount
    layers: list[_Layer] = field(default_factory=list)
    steps: int = 0
    counted: int = 0


@dataclass(frozen=True)
class _Call:
    """A call of ``train`` or ``eval``."""

    module: weakref.ref[torch.nn.Module]
    mode: bool
    at: tuple[Frame, ...]


class Modes:
    """The instrument.

    Args:
        recording: where the records go.
        guard: counts the steps.
        connections: knows the models.
        constructions: knows where they were made.
    """

    name = "modes"

    def __init__(
        self, recording: Recording, guard: Guard, connections: Connections, constructions: Constructions
    ) -> None:
        self._recording = recording
        self._guard = guard
        self._connections = connections
        self._constructions = constructions
        self._trained: weakref.WeakKeyDictionary[torch.optim.Optimizer, _Trained] = weakref.WeakKeyDictionary()
        self._layers: dict[int, _Layer] = {}
        self._calls: deque[_Call] = deque(maxlen=_MOST_CALLS)
        self._changes = 0
        self._seen_changes: dict[int, int] = {}
        self._sites: dict[CallKey, EvaluationRecord] = {}
        self._last_input: dict[CallKey, weakref.ref[torch.Tensor]] = {}
        self._evaluations = 0
        self._begun = False
        self._modal = True  # a model may have a layer whose mode matters
        self._looked = self._created = False
        self.rest = Rest(("step_begins",))

    @property
    def wants_evaluations(self) -> bool:
        """Whether calls without gradients are still worth telling."""
        return self._begun and self._modal and self._evaluations < _MOST_EVALUATIONS

    # -- signals -----------------------------------------------------------------------------------------------------

    def mode_set(self, module: torch.nn.Module, mode: bool, frame: FrameType) -> None:
        last = self._calls[-1] if self._calls else None
        if last is not None and last.module() is module and last.mode is mode:
            return
        self._changes += 1
        self.rest.end()
        self._calls.append(_Call(weakref.ref(module), mode, user_chain(frame)))

    def module_created(self, module: torch.nn.Module, frame: FrameType) -> None:
        if isinstance(module, _MODAL):
            self._created = self._modal = True

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._begun = True
        self.rest.end()

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: Any, frame: FrameType) -> None:
        self._begun = True
        trained = self._trained.get(optimizer)
        if trained is None:
            trained = self._trained[optimizer] = _Trained(self._guard.steps_of(optimizer))
        steps = max(trained.steps, trained.taken.count)
        trained.steps = steps + 1
        rare = steps < _FIRST or not steps & (steps - 1)
        if not rare and self._seen_changes.get(id(trained)) == self._changes:
            if len(self._trained) == 1:
                self.rest.begin((1 << steps.bit_length()) - steps)
            return
        if closure is None or steps:  # a closure's first pass, which makes lazy layers, is still to come
            self._look(optimizer, trained, learn=rare)

    def module_evaluated(self, module: torch.nn.Module, args: Any, frame: FrameType) -> None:
        self._evaluations += 1
        name = self._name_of(module, frame)
        if name is None:
            return
        key = call_key(frame)
        site = self._sites.get(key)
        if site is None:
            if len(self._sites) >= _MOST_SITES:
                return
            site = self._sites[key] = EvaluationRecord(user_chain(frame), name)
            self._recording.keep(site)
        first = next((item for item in args if isinstance(item, torch.Tensor)), None)
        before = self._last_input.pop(key, None)
        if first is not None:
            self._last_input[key] = weakref.ref(first)
        step = self._guard.steps
        if site.steps and site.steps[-1] == step:
            site.repeated |= before is not None and first is not None and before() is first
            return
        if len(site.steps) >= _MOST_BURSTS:
            return
        site.steps.append(step)
        kinds = {kind for _, part, kind in _mode_layers(module) if part.training}
        site.active += bool(kinds)
        site.still += not kinds
        site.kinds = sorted({*site.kinds, *kinds})
        site.forced |= self._was_forced(module, site.at)

    def run_ends(self) -> None:
        self.fetch()

    def fetch(self) -> None:
        """Bring the records up to date."""
        for trained in self._trained.values():
            trained.steps = max(trained.steps, trained.taken.count)
            self._count(trained)

    # -- training ----------------------------------------------------------------------------------------------------

    def _look(self, optimizer: torch.optim.Optimizer, trained: _Trained, learn: bool) -> None:
        self._seen_changes[id(trained)] = self._changes
        if learn:
            trained.layers = self._layers_of(optimizer)
            self._modal = bool(trained.layers) or self._created or (self._looked and self._modal)
            self._looked = True
        self._count(trained)
        for layer in trained.layers:
            module = layer.module()
            if module is None or module.training is layer.training:
                continue
            layer.training = module.training
            if module.training:
                layer.record.off_since = None
            else:
                layer.record.off_since = self._guard.steps
                self._explain(layer, module, optimizer)

    def _count(self, trained: _Trained) -> None:
        """Steps since the last look had its modes; the present one has those that are seen now."""
        done = max(0, trained.steps - 1)
        passed = done - trained.counted
        trained.counted = done
        for layer in trained.layers:
            if layer.training is not None and passed > 0:
                if layer.training:
                    layer.record.on += passed
                else:
                    layer.record.off += passed

    def _layers_of(self, optimizer: torch.optim.Optimizer) -> list[_Layer]:
        held = {id(item) for group in optimizer.param_groups for item in group["params"]}
        found = []
        for name, prefixed, root in self._connections.models:
            if not any(id(item) in held for item in root.parameters()):
                continue
            for inner, module, kind in _mode_layers(root):
                layer = self._layers.get(id(module))
                if layer is None or layer.module() is not module:
                    layer = self._layer(root, name if prefixed else "", inner, module, kind)
                    self._layers[id(module)] = layer
                    self._recording.keep(layer.record)
                found.append(layer)
        return found

    @staticmethod
    def _layer(root: torch.nn.Module, prefix: str, inner: str, module: torch.nn.Module, kind: str) -> _Layer:
        outer, paths = [weakref.ref(root)], [prefix]
        at = root
        for part in inner.split(".") if inner else []:
            at = getattr(at, part)
            outer.append(weakref.ref(at))
            paths.append(f"{paths[-1]}.{part}" if paths[-1] else part)
        paths = [plain_path(path) for path in paths]
        return _Layer(weakref.ref(module), ModeRecord(paths[-1], kind), outer, paths)

    def _explain(self, layer: _Layer, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Who put a layer into eval mode, and what else with it."""
        record = layer.record
        record.fresh = _is_fresh(module)
        for place, (item, path) in enumerate(zip(layer.outer, layer.paths, strict=True)):
            around = item()
            if around is None or any(part.training for part in around.modules()):
                continue
            held = {id(item) for group in optimizer.param_groups for item in group["params"]}
            record.within, record.whole = path, place == 0
            record.itself = around is module
            record.trains = any(item.requires_grad and id(item) in held for item in around.parameters())
            record.made_at = self._constructions.of_module(around)
            break
        on = True
        for call in self._calls:
            if call.mode is not on and _concerns(call, module):
                on = call.mode
                record.set_at = () if on else call.at
                record.itself = not on and call.module() is module
        record.returned = bool(record.set_at) and _returns(record.set_at[-1])

    # -- evaluation --------------------------------------------------------------------------------------------------

    def _name_of(self, module: torch.nn.Module, frame: FrameType) -> str | None:
        """Path of a module that is a trained model, or the part of one that is called in its place."""
        for name, _, root in self._connections.models:
            if module is root:
                return name
            if any(part is module for part in root.children()):
                code = forward_code(type(root))
                at: FrameType | None = frame
                while at is not None:
                    if code is not None and at.f_code is code:
                        return None  # its own call is told as well
                    at = at.f_back
                return name
        return None

    def _was_forced(self, module: torch.nn.Module, at: tuple[Frame, ...]) -> bool:
        """Whether the function that evaluates has set train mode itself, last of all."""
        last = next((call for call in reversed(self._calls) if _concerns(call, module)), None)
        if last is None or not last.mode or not last.at or not at:
            return False
        here, there = at[-1], last.at[-1]
        if (here.file, here.line) == (there.file, there.line):
            return True
        same = (here.file, here.function) == (there.file, there.function)
        return same and here.function != "<module>" and there.line < here.line


def _concerns(call: _Call, module: torch.nn.Module) -> bool:
    at = call.module()
    return at is not None and any(part is module for part in at.modules())


def _mode_layers(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, str]]:
    """(path, layer, kind) of the layers below ``root`` whose mode has an effect."""
    for path, module in root.named_modules():
        if not isinstance(module, _MODAL):
            continue
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            if module.p > 0.0:
                yield path, module, "dropout"
        elif isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            if module.track_running_stats and module.running_mean is not None:
                yield path, module, "batch norm"
        elif isinstance(module, torch.nn.MultiheadAttention):
            if module.dropout > 0.0:
                yield path, module, "dropout"
        elif isinstance(module, torch.nn.RNNBase) and module.dropout > 0.0 and module.num_layers > 1:
            yield path, module, "dropout"


def _is_fresh(module: torch.nn.Module) -> bool:
    """Whether a batch norm has never seen a batch."""
    if not isinstance(module, torch.nn.modules.batchnorm._BatchNorm) or module.running_mean is None:
        return False
    seen = module.num_batches_tracked
    if seen is not None and int(seen) > 0:
        return False
    return not bool(module.running_mean.any())


def _returns(frame: Frame) -> bool:
    return linecache.getline(frame.file, frame.line).lstrip().startswith("return ")
