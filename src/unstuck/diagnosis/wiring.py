"""What the rules on wiring share: who is left out of training, whether that is meant, and which line wires it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from unstuck.findings import Where
from unstuck.places import Frame
from unstuck.record.connections import Connections, HolderRecord, ParameterRecord, Statement
from unstuck.record.recording import Recording

__all__ = [
    "FEW",
    "common_module",
    "connections",
    "first_of_its_own",
    "fresh",
    "group_of",
    "held",
    "made_of",
    "meant_fixed",
    "named_by",
    "orphans",
    "place",
    "released",
    "told",
    "top_module",
    "trains_tensors_only",
    "uncalled",
    "without_gradients",
]

FEW = 4
"""Looks after which what is seen is no accident of the first passes."""

CHANCE = 0.1
"""Share of freshly drawn matrices that may look otherwise by chance."""

RELEASED = 8
"""Steps with gradients after which parameters that were frozen before should have been taken by an optimiser."""

_FIXED = re.compile(
    r"(^|[._])(random|reservoir|rff|fourier|fixed|frozen|static|echo|hash|teacher|target|ema|momentum|perceptual|lpips|vgg)"
)
"""Names of what stays as it was drawn, or isn't trained by gradients, on purpose."""


def connections(recording: Recording) -> Connections | None:
    """How the run was wired; None if nothing was seen of it."""
    found = recording.all(Connections)
    return found[0] if found else None


def held(record: Connections, parameter: ParameterRecord) -> list[HolderRecord]:
    """The optimisers that hold a parameter and have stepped."""
    return [record.holders[number] for number in parameter.held_by if record.holders[number].steps]


def orphans(record: Connections) -> list[ParameterRecord]:
    """Parameters that got gradients again and again, that no optimiser has ever held, and that never changed."""
    return [
        item for item in record.parameters if item.present and item.fed >= FEW and not item.held_by and not item.changed
    ]


def released(record: Connections) -> list[ParameterRecord]:
    """Parameters whose gradients were switched on again, and that nothing has stepped or changed since."""
    return [
        item
        for item in record.parameters
        if item.present
        and item.home != "hidden"
        and item.fed >= FEW
        and item.last_frozen is not None
        and item.last_fed is not None
        and item.last_fed - item.last_frozen >= RELEASED
        and (item.last_changed is None or item.last_changed <= item.last_frozen)
        and not any(record.holders[number].last_step > item.last_frozen for number in item.held_by)
    ]


def trains_tensors_only(record: Connections) -> bool:
    """Whether no optimiser holds a module's parameter: an input is optimised, not a model."""
    stepped = [item for item in record.holders if item.steps]
    return all(item.foreign == item.parameters for item in stepped)


def fresh(group: Iterable[ParameterRecord]) -> bool:
    """Whether parameters are as they were drawn: nothing was loaded or learnt that leaving them alone would keep."""
    items = list(group)
    asked = [item for item in items if item.drawn is not None]
    learnt = sum(not item.drawn for item in asked)
    if learnt > CHANCE * len(asked) or any(item.loaded or item.changed for item in items):
        return False
    return any(item.drawn for item in items) or all(item.built and item.size < 64 for item in items)


def meant_fixed(group: Iterable[ParameterRecord]) -> bool:
    """Whether their names say that they aren't meant to learn."""
    return any(_FIXED.search(item.path.lower()) for item in group)


def group_of(record: Connections, chosen: Sequence[ParameterRecord]) -> dict[str, list[ParameterRecord]]:
    """Parameters by the outermost module of which no other parameter fares better."""
    paths = {item.path for item in chosen}
    others = [item.path for item in record.parameters if item.present and item.path not in paths]
    groups: dict[str, list[ParameterRecord]] = {}
    for item in chosen:
        groups.setdefault(top_module(item.path, others), []).append(item)
    return groups


def top_module(path: str, others: Iterable[str]) -> str:
    """The outermost module around a parameter that holds none of ``others``; its own module if there is none."""
    parts = path.split(".")[:-1]
    others = list(others)
    for count in range(1, len(parts) + 1):
        module = ".".join(parts[:count])
        if not any(other.startswith(f"{module}.") for other in others):
            return module
    return ".".join(parts)


def common_module(paths: Sequence[str]) -> str | None:
    """The innermost module around several modules or parameters, None for the whole model."""
    parts = [path.split(".") for path in paths]
    shared: list[str] = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return ".".join(shared) or None


def made_of(record: Connections, module: str) -> tuple[Frame, ...]:
    """The lines that made a module, or the nearest one around it that is known."""
    path = module
    while path:
        chain = record.modules.get(path, ())
        if chain:
            return chain
        path = path.rpartition(".")[0]
    return record.modules.get("", ())


def first_of_its_own(chain: tuple[Frame, ...], other: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """A chain up to the first line at which it parts from another one: the statement that comes too early or late."""
    for index, frame in enumerate(chain):
        if index >= len(other) or frame != other[index]:
            return chain[: index + 1]
    return chain


def named_by(statements: Iterable[Statement], kind: str, path: str) -> list[Statement]:
    """Statements of a kind; those that name a part of a path before all others, if there are any."""
    found = [item for item in statements if item.kind == kind]
    parts = [part for part in path.split(".") if len(part) > 1 and not part.isdigit()]
    naming = [item for item in found if any(re.search(rf"\b{re.escape(part)}\b", item.text) for part in parts)]
    return naming or found


def place(chain: tuple[Frame, ...], module: str | None = None, parameter: str | None = None) -> Where:
    """The place of a finding at the innermost line of a chain."""
    last = chain[-1] if chain else None
    return Where(
        file=last.file if last else None,
        line=last.line if last else None,
        module=module or None,
        parameter=parameter,
        chain=chain,
    )


def told(group: Sequence[ParameterRecord], module: str | None) -> str:
    """``the 4 parameters of lstm (7,616 numbers)``."""
    numbers = f"{sum(item.size for item in group):,} {'number' if sum(i.size for i in group) == 1 else 'numbers'}"
    if len(group) == 1:
        return f"{group[0].path} ({numbers})"
    return f"{len(group)} parameters{f' of {module}' if module else ''} ({numbers})"


def uncalled(record: Connections, method: str) -> Statement | None:
    """A statement that names a method without calling it."""
    return next(
        (
            item
            for item in record.statements
            if item.kind == "uncalled" and item.text.split("#")[0].rstrip(" ;").endswith(f".{method}")
        ),
        None,
    )


def without_gradients(record: Connections, chain: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """A chain up to the ``with torch.no_grad()`` or the decorated function that its inner lines run under."""
    blocks = [item for item in record.statements if item.kind == "no_grad"]
    for index in range(len(chain) - 1, -1, -1):
        frame = chain[index]
        around = [item for item in blocks if item.file == frame.file and item.line <= frame.line <= item.end]
        if around:
            block = max(around, key=lambda item: item.line)
            return (*chain[:index], Frame(frame.file, block.line, frame.function))
    return chain
