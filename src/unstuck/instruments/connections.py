"""Looks at which parameters there are, who holds them, which passes reach them, and whether they move.

A look costs about a microsecond per parameter, module and node of the graph, so that there are a dozen at the start and
after each new optimiser, and later ever fewer. Modules are known from their construction, so that one which no
optimiser holds, or which hides in a plain list, is seen as well.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from unstuck.instruments.constructions import Constructions
from unstuck.instruments.guard import Guard, StepCount
from unstuck.instruments.inventory import Inventory, find_models, named_modules_of_frames, plain_path
from unstuck.measure.freshness import looks_drawn
from unstuck.places import CallKey, Frame, call_key, is_user_file, user_chain
from unstuck.program.attributes import own_attributes
from unstuck.program.gradient_lines import dropped_clip_lines, dropped_update_lines, gradient_change_lines
from unstuck.program.objective_lines import rewarded_lines, swapped_triplet_lines
from unstuck.program.statements import (
    blocks_without_gradients,
    constant_dropout_lines,
    freezing_lines,
    optimizer_step_lines,
    rate_lines,
    uncalled_lines,
)
from unstuck.record.connections import Connections as Record
from unstuck.record.connections import Fleeting, HolderRecord, ParameterRecord, PassRecord, Statement, Switch
from unstuck.record.recording import Recording
from unstuck.signals import Rest

__all__ = ["Connections", "forward_code"]

_LOOKS = 12
"""Passes in a row that are looked at, at the start and after something new has turned up."""

_RESTARTS = 32
_MOST_MODULES = 20_000
_MOST_NODES = 20_000
"""Nodes of a graph that are walked; what lies behind them counts as reached."""

_MOST_PARAMETERS = 20_000
_MOST_SITES = 64
_MOST_SWITCHES = 256
_MOST_EXAMINED = 32
"""Parameters whose numbers are examined at one look."""

_EXAMINED_FROM = 4
"""Looks before a parameter's numbers are examined."""

_SAMPLE = 8
"""Numbers of a parameter by which a change is seen that its version doesn't tell."""

_ITEMS = 64
"""Items of a list or dictionary that are searched for modules."""

_MANY = 2000
"""Parameters from which those that are gone, and were seen for a moment only, are forgotten."""

_STATEMENTS = (
    ("freeze", freezing_lines),
    ("uncalled", uncalled_lines),
    ("step", optimizer_step_lines),
    ("rate", rate_lines),
    ("dropout", constant_dropout_lines),
    ("dropped_clip", dropped_clip_lines),
    ("dropped_update", dropped_update_lines),
    ("gradient_change", gradient_change_lines),
)

_BLOCKS = (
    ("no_grad", blocks_without_gradients),
    ("rewarded", rewarded_lines),
    ("swapped_triplet", swapped_triplet_lines),
)

Mark = tuple[int, int]


@dataclass
class _Known:
    """A parameter and what is told of it."""

    parameter: weakref.ref[torch.Tensor]
    record: ParameterRecord
    root: weakref.ref[torch.nn.Module] | None = None
    version: int = 0
    sample: torch.Tensor | None = None


@dataclass
class _Root:
    """An outermost module: its name, and what kind of home it is for its parameters."""

    module: torch.nn.Module
    name: str
    home: str
    prefixed: bool


@dataclass
class _Look:
    """One pass under observation."""

    step: int
    known: list[tuple[torch.Tensor, _Known]]
    marks: list[Mark] = field(default_factory=list)


class Connections:
    """The instrument.

    Args:
        recording: where the record goes.
        guard: counts the steps and knows the optimisers.
        inventory: knows where optimisers were made.
        constructions: knows where modules and parameters were made.
    """

    name = "connections"

    def __init__(self, recording: Recording, guard: Guard, inventory: Inventory, constructions: Constructions) -> None:
        self._recording = recording
        self._guard = guard
        self._inventory = inventory
        self._constructions = constructions
        self._record = Record()
        self._kept = False
        self._modules: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._known: dict[int, _Known] = {}
        self._numbers: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        self._taken: dict[int, StepCount] = {}
        self._sites: dict[CallKey, PassRecord] = {}
        self._loaded: dict[int, weakref.ref[torch.Tensor]] = {}
        self._born_frozen: dict[int, weakref.ref[torch.Tensor]] = {}
        self._switches: list[tuple[weakref.ref[torch.nn.Module], Switch]] = []
        self._files: set[str] = set()
        self._look: _Look | None = None
        self._begun_at = 0  # passes before the first of the present series of looks
        self._due = 1
        self._restarts = 0
        self.rest = Rest(("backward_begins", "backward_ended", "step_begins"))
        self._tops: list[tuple[str, bool, weakref.ref[torch.nn.Module]]] = []

    @property
    def models(self) -> list[tuple[str, bool, torch.nn.Module]]:
        """(name, whether paths begin with it, module) of the models that optimisers trained at the last look."""
        return [(name, prefixed, module) for name, prefixed, item in self._tops if (module := item()) is not None]

    def take_models(self, models: Iterable[torch.nn.Module]) -> None:
        """Know models that were given to the watch, although no variable of the user's may hold them."""
        self._modules.update({id(module): weakref.ref(module) for module in models})

    def number_of(self, optimizer: torch.optim.Optimizer) -> int:
        """An optimiser's place among all."""
        number = self._numbers.get(optimizer)
        if number is None:
            number = self._numbers[optimizer] = len(self._record.holders)
            self._record.holders.append(HolderRecord(type(optimizer).__name__, self.made_at(optimizer)))
        return number

    def made_at(self, optimizer: torch.optim.Optimizer) -> tuple[Frame, ...]:
        """The user's lines that constructed it."""
        return self._inventory.made_at.get(optimizer, ())

    # -- signals -----------------------------------------------------------------------------------------------------

    def module_created(self, module: torch.nn.Module, frame: FrameType) -> None:
        if len(self._modules) < _MOST_MODULES:
            self._modules[id(module)] = weakref.ref(module)

    def parameter_registered(self, parameter: torch.Tensor, frame: FrameType) -> None:
        if not parameter.requires_grad and len(self._born_frozen) < _MOST_PARAMETERS:
            self._born_frozen[id(parameter)] = weakref.ref(parameter)
        if self._guard.steps and id(parameter) not in self._known:
            self._restart()

    def state_loaded(self, module: torch.nn.Module, names: frozenset[str], frame: FrameType) -> None:
        for name, parameter in module.named_parameters():
            if name not in names:
                continue
            known = self._known.get(id(parameter))
            if known is not None and known.parameter() is parameter:
                known.record.loaded |= not known.record.looks
            elif len(self._loaded) < _MOST_PARAMETERS:
                self._loaded[id(parameter)] = weakref.ref(parameter)

    def parameter_copied(self, parameter: torch.Tensor, copy: torch.Tensor) -> None:
        """A copy of what was trained or loaded is as good as loaded."""
        known = self._known.get(id(parameter))
        if known is None or known.parameter() is not parameter:
            learnt = _holds(self._loaded, parameter)
        else:
            self._compare(known, parameter)
            learnt = known.record.loaded or known.record.changed
        if learnt and len(self._loaded) < _MOST_PARAMETERS:
            self._loaded[id(copy)] = weakref.ref(copy)

    def gradients_switched(self, module: torch.nn.Module, on: bool, frame: FrameType) -> None:
        if len(self._switches) < _MOST_SWITCHES:
            self._switches.append((weakref.ref(module), Switch("", on, user_chain(frame), self._guard.steps)))

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._keep()
        self._collect(frame)
        self.number_of(optimizer)
        self._hold()
        self._restart()

    def backward_begins(self, tensors: Sequence[Any], frame: FrameType) -> None:
        self._look = None
        losses = [item for item in tensors if isinstance(item, torch.Tensor)]
        graphless = bool(losses) and not any(item.requires_grad for item in losses)
        since = self._since
        if not graphless and since < self._due:
            self.rest.begin(self._due - since)  # one pass per step at least: never too late by more than that
            return
        self._due = since + 1 if since < _LOOKS else 1 << since.bit_length()
        self._keep()
        site = self._site(frame)
        site.count += 1
        site.graphless += graphless
        self._collect(frame)
        reached, whole = _leaves(losses)
        self._learn_bare(reached, frame)
        site.looks += 1
        site.leaf += bool(losses) and all(item.is_leaf for item in losses)
        if whole and losses and not any(id(item) in self._known for item in reached):
            site.cut += 1
        known = [(item, entry) for entry in self._known.values() if (item := entry.parameter()) is not None]
        self._look = _Look(self._guard.steps, known, [_mark(item) for item, _ in known])

    def backward_ended(self, tensors: Any) -> None:
        look, self._look = self._look, None
        if look is None:
            return
        examined = 0
        fleeting: list[torch.Tensor] = []
        for (parameter, entry), mark in zip(look.known, look.marks, strict=True):
            record = entry.record
            self._see(entry, parameter, look.step)
            if record.looks == 1 and look.step and not record.held_by and _mark(parameter) != mark:
                fleeting.append(parameter)
            if parameter.requires_grad:
                record.trained += 1
            else:
                record.last_frozen = look.step
            if _mark(parameter) != mark:
                record.fed += 1
                record.last_fed = look.step
                if record.first_fed is None:
                    record.first_fed = look.step
            if record.looks >= _EXAMINED_FROM and examined < _MOST_EXAMINED and self._is_unusual(record):
                examined += self._examine(entry, parameter)
        self._note_fleeting(fleeting)

    def gradients_taken(self, outputs: Any) -> None:
        self._record.manual += 1

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: Any, frame: FrameType) -> None:
        number = self._numbers.get(optimizer)
        if number is None:
            self._keep()
            self._collect(frame)
            number = self.number_of(optimizer)
            self._hold()
        holder = self._record.holders[number]
        holder.steps += 1
        holder.last_step = self._guard.steps
        self._taken[number] = self._guard.steps_of(optimizer)
        if holder.steps > 2:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                known = self._known.get(id(parameter))
                # gradients that no pass has left are set by the program itself
                if known is not None and parameter.grad is not None and not known.record.fed:
                    known.record.fed += 1
                    known.record.last_fed = known.record.first_fed = self._guard.steps

    def run_ends(self) -> None:
        self.fetch()

    def fetch(self) -> None:
        """Bring the record up to date."""
        for number, taken in self._taken.items():
            holder = self._record.holders[number]
            if taken.count > holder.steps:
                holder.steps, holder.last_step = taken.count, taken.last
        self._hold()
        for entry in self._known.values():
            parameter = entry.parameter()
            if parameter is not None and entry.record.looks:
                self._compare(entry, parameter)
                if self._is_unusual(entry.record):
                    self._examine(entry, parameter)
        self._resolve({})
        self._record.switches = [switch for _, switch in self._switches]
        self._record.statements = [
            Statement(kind, file, line, _text(file, line))
            for file in sorted(self._files)
            for kind, find in _STATEMENTS
            for line in find(file)
        ]
        self._record.statements += [
            Statement(kind, file, line, _text(file, line), end)
            for file in sorted(self._files)
            for kind, find in _BLOCKS
            for line, end in find(file)
        ]

    # -- one look ----------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        if not self._kept:
            self._kept = True
            self._recording.keep(self._record)

    @property
    def _since(self) -> int:
        """Passes since the present series of looks began, with the present one."""
        return self._guard.passes - self._begun_at

    def _restart(self) -> None:
        if self._since > _LOOKS // 2 and self._restarts < _RESTARTS:
            self._restarts += 1
            self._begun_at, self._due = self._guard.passes, 1
            self.rest.end()

    def _see(self, entry: _Known, parameter: torch.Tensor, step: int) -> None:
        record = entry.record
        record.looks += 1
        if record.looks == 1:
            record.first_seen = step
            entry.version = _version(parameter)
            entry.sample = _sample(parameter)
            return
        version = _version(parameter)
        if version != entry.version:
            entry.version = version
            record.changed, record.last_changed, entry.sample = True, step, None
        elif record.looks & (record.looks - 1) == 0:
            self._compare(entry, parameter)

    def _compare(self, entry: _Known, parameter: torch.Tensor) -> None:
        record = entry.record
        if record.changed or not record.looks:
            return
        record.changed = _version(parameter) != entry.version
        if not record.changed and entry.sample is not None:
            now = _sample(parameter)
            record.changed = now is None or now.shape != entry.sample.shape or not torch.equal(now, entry.sample)
        if record.changed:
            entry.sample = None

    def _note_fleeting(self, parameters: list[torch.Tensor]) -> None:
        """Parameters that this pass has made, used, and that no optimiser can have got."""
        seen: dict[Frame, int] = {}
        for parameter in parameters:
            entry = self._known[id(parameter)]
            chain = () if entry.record.loaded else self._constructions.of_parameter(parameter)
            if not chain:
                continue
            seen[chain[-1]] = seen.get(chain[-1], 0) + 1
            found = next((item for item in self._record.fleeting if item.at[-1] == chain[-1]), None)
            if found is None and len(self._record.fleeting) < _MOST_SITES:
                found = Fleeting(chain)
                self._record.fleeting.append(found)
        for item in self._record.fleeting:
            if item.at[-1] in seen:
                item.passes += 1
                item.parameters = seen[item.at[-1]]

    @staticmethod
    def _is_unusual(record: ParameterRecord) -> bool:
        """Whether the rules may have a question about it."""
        return not record.changed and not (record.fed and record.held_by)

    def _examine(self, entry: _Known, parameter: torch.Tensor) -> bool:
        """What the rules need to know of a parameter that fares unusually; True if its numbers were looked at."""
        record = entry.record
        if not record.made_at:
            record.made_at = self._constructions.of_parameter(parameter)
            root = None if entry.root is None else entry.root()
            if root is not None:
                self._remember_modules(root, record)
        if record.drawn is not None or record.size < 64 or len(record.shape) < 2:
            return False
        if record.looks & (record.looks - 1) and record.looks > _LOOKS:
            return False
        record.drawn = looks_drawn(parameter)
        return True

    def _remember_modules(self, root: torch.nn.Module, record: ParameterRecord) -> None:
        """Where the modules around a parameter were made."""
        parts = record.name.split(".")[:-1]
        base = record.path[: len(record.path) - len(plain_path(record.name))].rstrip(".")
        module: Any = root
        path = base
        for part in [None, *parts]:
            if part is not None:
                module = getattr(module, part, None)
                path = plain_path(f"{path}.{part}" if path else part)
            if not isinstance(module, torch.nn.Module):
                return
            if path not in self._record.modules:
                self._record.modules[path] = self._constructions.of_module(module)

    # -- what there is -----------------------------------------------------------------------------------------------

    def _collect(self, frame: FrameType) -> None:
        """Learn all modules and parameters anew, and who holds them."""
        self._note_files(frame)
        named = named_modules_of_frames(frame)
        living = {identity: module for identity, item in list(self._modules.items()) if (module := item()) is not None}
        if len(living) < len(self._modules):
            self._modules = {identity: self._modules[identity] for identity in living}
        living.update({id(module): module for _, module in named})
        if len(self._known) > _MANY:
            self._forget()
        roots = self._roots(living, named, frame)
        self._tops = [(root.name, root.prefixed, weakref.ref(root.module)) for root in roots if root.home == "model"]
        paths: dict[int, str] = {}
        present: set[int] = set()
        for root in roots:
            for inner, module in root.module.named_modules():
                paths[id(module)] = _joined(root, inner)
                code = forward_code(type(module))
                if code is not None and is_user_file(code.co_filename):
                    self._files.add(code.co_filename)
                for key, parameter in module._parameters.items():
                    if parameter is not None:
                        present.add(id(parameter))
                        self._learn(parameter, root, f"{inner}.{key}" if inner else key, type(module).__name__, module)
        for entry in self._known.values():
            entry.record.present = entry.record.home == "bare" or id(entry.parameter()) in present
        self._resolve(paths)
        self._hold()

    def _forget(self) -> None:
        """Drop what was there for a few passes only: copies and models that a loop makes anew."""
        gone = {
            identity
            for identity, entry in self._known.items()
            if entry.parameter() is None and entry.record.looks < _EXAMINED_FROM
        }
        dropped = {id(self._known.pop(identity).record) for identity in gone}
        self._record.parameters = [item for item in self._record.parameters if id(item) not in dropped]

    def _roots(
        self, living: dict[int, torch.nn.Module], named: list[tuple[str, torch.nn.Module]], frame: FrameType
    ) -> list[_Root]:
        inner = {id(child) for module in living.values() for child in module.children()}
        tops = [module for identity, module in living.items() if identity not in inner]
        tops = [module for module in tops if next(module.parameters(), None) is not None and not self._is_out(module)]
        models = find_models(frame, list(self._guard.optimizers.values()), tops)
        trained = {id(module): name for name, module in models.items()}
        names = {id(module): name for name, module in reversed(named)}
        hidden = self._hidden(living, {id(module) for module in tops} - set(trained))
        found = []
        for module in tops:
            identity = id(module)
            name = names.get(identity, "")
            if name in ("", "self"):
                name = type(module).__name__.lower()
            if identity in trained:
                found.append(_Root(module, trained[identity], "model", len(models) > 1))
            elif identity in hidden:
                found.append(_Root(module, hidden[identity], "hidden", True))
            else:
                found.append(_Root(module, name, "apart", True))
        # an owner's path is known only when all names are
        prefixes = {id(root.module): root for root in found}
        for root in found:
            if root.home == "hidden":
                root.name = self._hidden_path(root.name, prefixes)
        return found

    def _is_out(self, module: torch.nn.Module) -> bool:
        """Whether a module was a part of a model that goes on without it; somebody may still hold it."""
        for parameter in module.parameters():
            entry = self._known.get(id(parameter))
            root = None if entry is None or entry.root is None else entry.root()
            if root is None or root is module or any(item is root for item in module.modules()):
                return False
        return True

    def _hidden(self, living: dict[int, torch.nn.Module], wanted: set[int]) -> dict[int, str]:
        """Modules that lie in a list or dictionary of another module, by what :meth:`_hidden_path` reads."""
        if not wanted:
            return {}
        found: dict[int, str] = {}
        for owner in list(living.values()):
            for attribute, value in (own_attributes(owner) or {}).items():
                if attribute.startswith("_") or not isinstance(value, (list, tuple, dict)):
                    continue
                for key, item in _items(value):
                    if isinstance(item, torch.nn.Module) and id(item) in wanted and id(item) != id(owner):
                        found[id(item)] = f"{id(owner)} {attribute} {key}"
        return found

    def _hidden_path(self, told: str, roots: dict[int, _Root]) -> str:
        identity, attribute, key = told.split(" ", 2)
        for root in roots.values():
            for inner, module in root.module.named_modules():
                if id(module) == int(identity):
                    owner = _joined(root, inner) if root.home != "hidden" else inner
                    container = f"{owner}.{attribute}" if owner else attribute
                    self._record.hidden_in[f"{container}.{key}"] = container
                    return f"{container}.{key}"
        return f"{attribute}.{key}"

    def _learn(self, parameter: torch.Tensor, root: _Root | None, name: str, kind: str, module: Any) -> None:
        entry = self._known.get(id(parameter))
        if entry is not None and entry.parameter() is parameter:
            record = entry.record
            if root is not None and (record.home != "model" or root.home == "model"):
                record.path, record.name, record.home = _joined(root, name), name, root.home
                entry.root = weakref.ref(root.module)
            return
        if len(self._known) >= _MOST_PARAMETERS:
            return
        try:
            shape = tuple(parameter.shape)
        except RuntimeError:
            return  # a lazy one, whose shape isn't known yet
        path = name if root is None else _joined(root, name)
        record = ParameterRecord(path, name, kind, "bare" if root is None else root.home, parameter.numel(), shape)
        record.loaded = _holds(self._loaded, parameter)
        record.after = len(self._record.holders)
        record.born_frozen = _holds(self._born_frozen, parameter)
        record.built = module is not None and id(module) in self._modules
        if not parameter.requires_grad:
            record.last_frozen = self._guard.steps
        self._known[id(parameter)] = _Known(
            weakref.ref(parameter), record, None if root is None else weakref.ref(root.module)
        )
        self._record.parameters.append(record)

    def _learn_bare(self, reached: list[torch.Tensor], frame: FrameType) -> None:
        """Parameters that belong to no module: those that optimisers hold, and ``nn.Parameter`` objects in a graph."""
        held = [
            item
            for optimizer in self._guard.optimizers.values()
            for group in optimizer.param_groups
            for item in group["params"]
        ]
        found = [item for item in reached if isinstance(item, torch.nn.Parameter)]
        before = len(self._record.parameters)
        for item in [*held, *found]:
            entry = self._known.get(id(item))
            if entry is None or entry.parameter() is not item:
                self._learn(item, None, _variable(item, frame), "", None)
        if len(self._record.parameters) > before:
            self._hold()

    def _hold(self) -> None:
        for optimizer in list(self._guard.optimizers.values()):
            number = self.number_of(optimizer)
            count = foreign = 0
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    count += 1
                    known = self._known.get(id(parameter))
                    if known is None or known.parameter() is not parameter or known.record.home == "bare":
                        foreign += 1
                    if known is not None and number not in known.record.held_by:
                        known.record.held_by.append(number)
            holder = self._record.holders[number]
            holder.parameters, holder.foreign = count, foreign

    def _resolve(self, paths: dict[int, str]) -> None:
        for module, switch in self._switches:
            if not switch.path and (item := module()) is not None:
                switch.path = paths.get(id(item), "")

    def _note_files(self, frame: FrameType | None) -> None:
        while frame is not None:
            if is_user_file(frame.f_code.co_filename):
                self._files.add(frame.f_code.co_filename)
            frame = frame.f_back

    def _site(self, frame: FrameType) -> PassRecord:
        key = call_key(frame)
        site = self._sites.get(key)
        if site is None:
            site = PassRecord(user_chain(frame), self._guard.steps)
            if len(self._sites) < _MOST_SITES:
                self._sites[key] = site
                self._record.passes.append(site)
        return site


def _holds(marked: dict[int, weakref.ref[torch.Tensor]], tensor: torch.Tensor) -> bool:
    found = marked.get(id(tensor))
    return found is not None and found() is tensor


def forward_code(kind: type) -> CodeType | None:
    """The code of a module class's ``forward``, without asking descriptors that only imitate a function."""
    found = next((vars(base)["forward"] for base in kind.__mro__ if "forward" in vars(base)), None)
    return found.__code__ if isinstance(found, FunctionType) else None


def _joined(root: _Root, inner: str) -> str:
    if not root.prefixed:
        return plain_path(inner)
    return plain_path(f"{root.name}.{inner}" if inner else root.name)


def _items(value: Any, depth: int = 2) -> Iterator[tuple[str, Any]]:
    """(key, item) of a list, tuple or dictionary and those inside it."""
    pairs = dict.items(value) if isinstance(value, dict) else enumerate(value)
    for count, (key, item) in enumerate(pairs):
        if count >= _ITEMS:
            return
        if isinstance(item, (list, tuple, dict)) and depth > 1:
            yield from ((f"{key}.{below}", found) for below, found in _items(item, depth - 1))
        else:
            yield str(key), item


def _variable(tensor: torch.Tensor, frame: FrameType | None) -> str:
    """Name of the user's variable or attribute that holds a tensor, ``parameter`` if none does."""
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            for name, value in list(frame.f_locals.items()):
                if value is tensor:
                    return name
                if isinstance(value, torch.nn.Module):
                    for attribute, items in (own_attributes(value) or {}).items():
                        if not attribute.startswith("_") and isinstance(items, (list, tuple, dict)):
                            for key, item in _items(items):
                                if item is tensor:
                                    return f"{attribute}.{key}"
        frame = frame.f_back
    return "parameter"


def _leaves(losses: list[torch.Tensor]) -> tuple[list[torch.Tensor], bool]:
    """Leaf tensors that a backward pass would reach, and whether the graph was walked whole."""
    stack = [item.grad_fn for item in losses if item.grad_fn is not None]
    reached = [item for item in losses if item.grad_fn is None and item.requires_grad]
    seen = set(stack)
    while stack:
        node = stack.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            reached.append(variable)
        elif not node.next_functions:
            return reached, False  # a function that hides what is behind it (checkpointing, compiled code)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                if len(seen) >= _MOST_NODES:
                    return reached, False
                seen.add(following)
                stack.append(following)
    return reached, True


def _mark(parameter: torch.Tensor) -> Mark:
    gradient = parameter.grad
    return (0, 0) if gradient is None else (id(gradient), gradient._version)


def _version(parameter: torch.Tensor) -> int:
    return 0 if parameter.is_inference() else parameter._version


def _sample(parameter: torch.Tensor) -> torch.Tensor | None:
    if parameter.layout is not torch.strided or not parameter.numel() or parameter.is_meta:
        return None
    with torch.no_grad():
        flat = parameter.detach().reshape(-1)
        return flat[:: max(1, flat.numel() // _SAMPLE)][:_SAMPLE].clone()


def _text(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()
