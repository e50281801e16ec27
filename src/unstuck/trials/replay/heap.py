"""Puts the user's Python objects back: containers, attributes, variables of enclosing functions, files' positions.

Shallow copies of everything that can be reached from the program's namespaces are taken before and put back after, in
the same objects, so that whoever else holds them sees nothing either. Tensors aren't copied here (see
:mod:`unstuck.trials.replay.journal`), iterators and connections are put out of reach (see
:mod:`unstuck.trials.replay.stand_ins`), and what threads share is left to them.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import deque
from collections.abc import Callable, Iterable
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)  # fmt: skip
from typing import Any

import numpy as np
import torch

from unstuck.measure.rng import is_generator
from unstuck.places import is_user_file
from unstuck.program.attributes import own_attributes
from unstuck.trials.replay import contents

__all__ = ["HeapSnapshot", "HeapTooLargeError"]

_MOST_OBJECTS = 400_000
"""Objects after which a snapshot is given up: the replay would cost the user more than it is worth."""

_MOST_ARRAY_BYTES = 256 * 2**20
"""Bytes of numpy arrays that are copied."""

_OPAQUE = (
    str, bytes, int, float, complex, bool, type(None), range, slice, CodeType, FrameType,
    BuiltinFunctionType, torch.dtype, torch.device, torch.Size, np.generic, np.dtype,
)  # fmt: skip

_SHARED = {
    "threading", "_thread", "queue", "_queue", "multiprocessing", "concurrent", "asyncio", "logging",
    "_pytest", "pluggy",
}  # fmt: skip
"""Packages whose objects belong to several threads, processes or tests: others' work must not be undone."""


_CONNECTIONS = {"sqlite3", "socket", "_socket", "ssl", "http.client", "subprocess"}
"""Modules whose objects lead out of the process."""


class HeapTooLargeError(Exception):
    """The program's namespaces hold more than can be put back in reasonable time."""


class HeapSnapshot:
    """Remembers the contents of everything reachable from ``roots``; ``restore`` puts them back.

    Args:
        roots: where to begin.
        out_of_reach: what to put in the place of something whose use can't be undone, while the snapshot is in use.

    Attributes:
        tensors: every tensor that was met.
        kinds: the classes of all objects that were met, but for those that hold nothing.
        generators: every random generator that was met.
        streams: every open file or stream that can't go back.
    """

    def __init__(self, roots: Iterable[Any], out_of_reach: Callable[[Any], Any]) -> None:
        self.tensors: dict[int, torch.Tensor] = {}
        self.kinds: set[type] = set()
        self.generators: dict[int, Any] = {}
        self.streams: dict[int, io.IOBase] = {}
        self._undo: list[contents.Undo] = []
        self._keep: list[Any] = []  # identities must not be used again while the snapshot lives
        self._holders: list[Any] = []
        self._array_bytes = 0
        self._walk(list(roots))
        for holder in self._holders:
            _put_out_of_reach(holder, out_of_reach)

    def restore(self) -> None:
        """Put back every container's contents; one that can't be put back doesn't keep the others from it."""
        for undo in self._undo:
            with contextlib.suppress(Exception):
                undo()

    def _walk(self, stack: list[Any]) -> None:
        seen: set[int] = set()
        while stack:
            value = stack.pop()
            if isinstance(value, _OPAQUE) or id(value) in seen:
                continue
            seen.add(id(value))
            self._keep.append(value)
            if len(seen) > _MOST_OBJECTS:
                raise HeapTooLargeError(f"more than {_MOST_OBJECTS} objects are reachable from the program's variables")
            stack.extend(self._visit(value))

    def _visit(self, value: Any) -> list[Any]:
        """Remember one object; returns what it holds."""
        if isinstance(value, torch.Tensor):
            self.tensors[id(value)] = value
            return []
        if is_generator(value):
            self.generators[id(value)] = value
            return []
        if isinstance(value, np.ndarray):
            self._remember_array(value)
            return list(value.flat) if value.dtype == object and value.size < 10_000 else []
        if isinstance(value, ModuleType):
            return [vars(value)] if type(value) is ModuleType and _is_users(vars(value)) else []
        if isinstance(value, type):
            return self._visit_class(value)
        if isinstance(value, FunctionType):
            return self._visit_function(value)
        if isinstance(value, CellType):
            return self._noted(*contents.remember_cell(value), holder=value)
        if isinstance(value, MethodType):
            return [value.__self__, value.__func__]
        if isinstance(value, io.IOBase):
            undo = contents.remember_file(value)
            if undo is None:
                self.streams[id(value)] = value
            return self._noted(undo, [])
        if type(value).__module__.partition(".")[0] in _SHARED:
            return []
        self.kinds.add(type(value))
        held = self._noted(*contents.remember(value), holder=value)
        return [*held, *self._visit_attributes(value)]

    def _noted(self, undo: contents.Undo | None, held: list[Any], holder: Any = None) -> list[Any]:
        if undo is not None:
            self._undo.append(undo)
            if holder is not None:
                self._holders.append(holder)
        return held

    def _visit_attributes(self, value: Any) -> list[Any]:
        held: list[Any] = []
        attributes = own_attributes(value)
        if attributes is not None:
            held.append(attributes)
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else tuple(slots):
                descriptor = kind.__dict__.get(_mangled(name, kind))
                if isinstance(descriptor, MemberDescriptorType) and name != "__weakref__":
                    held += self._noted(*contents.remember_slot(value, descriptor))
        return held if type(value).__module__ in ("builtins", "collections") else [*held, type(value)]

    def _visit_class(self, kind: type) -> list[Any]:
        """A class of the program: what its attributes hold, and which they are."""
        if not _is_users(getattr(sys.modules.get(kind.__module__), "__dict__", None)):
            return []
        held = []
        for name, value in list(kind.__dict__.items()):
            if not name.startswith("__") and not isinstance(value, MemberDescriptorType):
                self._undo.append(contents.remember_attribute(kind, name, value))
                held.append(value)
        return held

    def _visit_function(self, function: FunctionType) -> list[Any]:
        held: list[Any] = [*(function.__defaults__ or ()), *(function.__closure__ or ()), function.__dict__]
        if is_user_file(function.__code__.co_filename):
            held.append(function.__globals__)
        return held

    def _remember_array(self, array: np.ndarray[Any, Any]) -> None:
        if not array.flags.writeable:
            return
        self._array_bytes += array.nbytes
        if self._array_bytes <= _MOST_ARRAY_BYTES:
            self._undo.append(contents.remember_array(array))
        # else a data set; a step that writes into one is caught by the comparison of losses at the latest


def _mangled(name: str, kind: type) -> str:
    private = name.startswith("__") and not name.endswith("__")
    return f"_{kind.__name__.lstrip('_')}{name}" if private else name


def _is_users(namespace: Any) -> bool:
    """Whether a module's namespace belongs to the program."""
    if not isinstance(namespace, dict):
        return False
    if namespace.get("__name__") == "__main__":
        return True
    file = namespace.get("__file__")
    if isinstance(file, str):
        return is_user_file(file)
    # made by the program itself, without a file; built-in modules have a loader
    return namespace.get("__loader__") is None and namespace.get("__spec__") is None


def _is_spent_by_use(value: Any) -> bool:
    """Whether using an object has effects that nobody can undo: generators, built-in iterators, connections."""
    if type(value).__module__ in _CONNECTIONS:
        return True
    advance = next((kind.__dict__["__next__"] for kind in type(value).__mro__ if "__next__" in kind.__dict__), None)
    return isinstance(advance, WrapperDescriptorType) and not isinstance(value, io.IOBase)


def _put_out_of_reach(holder: Any, out_of_reach: Callable[[Any], Any]) -> None:
    if isinstance(holder, dict):
        for key, value in list(dict.items(holder)):
            if _is_spent_by_use(value):
                dict.__setitem__(holder, key, out_of_reach(value))
    elif isinstance(holder, list):
        for index, value in enumerate(list.__getitem__(holder, slice(None))):
            if _is_spent_by_use(value):
                list.__setitem__(holder, index, out_of_reach(value))
    elif isinstance(holder, deque):
        for index, value in enumerate(deque.__iter__(holder)):
            if _is_spent_by_use(value):
                deque.__setitem__(holder, index, out_of_reach(value))
    elif isinstance(holder, CellType):
        try:
            value = holder.cell_contents
        except ValueError:
            return
        if _is_spent_by_use(value):
            holder.cell_contents = out_of_reach(value)
