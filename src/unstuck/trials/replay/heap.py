"""Puts the user's Python objects back: lists, dicts, sets and attributes that a replay may change.

Shallow copies of every container that can be reached from the program's namespaces are taken before and put back after,
in the same objects, so that whoever else holds them sees nothing either. Tensors aren't copied here (see
:mod:`unstuck.trials.replay.journal`).
"""

from __future__ import annotations

import io
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from unstuck.measure.rng import is_generator

__all__ = ["HeapSnapshot", "HeapTooLargeError"]

_MOST_OBJECTS = 400_000
"""Objects after which a snapshot is given up: the replay would cost the user more than it is worth."""

_MOST_ARRAY_BYTES = 256 * 2**20
"""Bytes of numpy arrays that are copied."""

_OPAQUE = (
    str, bytes, int, float, complex, bool, type(None), type, range, slice, ModuleType, CodeType, FrameType,
    BuiltinFunctionType, torch.dtype, torch.device, torch.Size, np.generic, np.dtype,
)  # fmt: skip


class HeapTooLargeError(Exception):
    """The program's namespaces hold more than can be put back in reasonable time."""


class HeapSnapshot:
    """Remembers the contents of everything reachable from ``roots``; ``restore`` puts them back.

    Attributes:
        tensors: every tensor that was met.
        generators: every random generator that was met.
        modules: every module that was met.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        self.tensors: dict[int, torch.Tensor] = {}
        self.generators: dict[int, Any] = {}
        self.modules: dict[int, torch.nn.Module] = {}
        self._undo: list[Callable[[], None]] = []
        self._keep: list[Any] = []  # identities must not be used again while the snapshot lives
        self._array_bytes = 0
        self._walk(list(roots))

    def restore(self) -> None:
        """Put back every container's contents."""
        for undo in self._undo:
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
        if isinstance(value, torch.nn.Module):
            self.modules[id(value)] = value
        held: list[Any] = []
        if isinstance(value, list):
            items = list(value)
            self._undo.append(lambda: _put_list(value, items))
            held += items if not _flat(items) else []
        elif isinstance(value, dict):
            pairs = dict(value)
            self._undo.append(lambda: _put_dict(value, pairs))
            held += [*pairs.keys(), *pairs.values()]
        elif isinstance(value, (set, deque)):
            members = list(value)
            self._undo.append(lambda: _put_members(value, members))
            held += members
        elif isinstance(value, (tuple, frozenset)):
            held += list(value)
        elif isinstance(value, MethodType):
            held += [value.__self__]
        elif isinstance(value, FunctionType):
            held += [*(value.__defaults__ or ()), *_cells(value)]
        elif isinstance(value, io.IOBase):
            self._remember_file(value)
            return []
        held += self._visit_attributes(value)
        return held

    def _visit_attributes(self, value: Any) -> list[Any]:
        held: list[Any] = []
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except (AttributeError, TypeError):
            attributes = None
        if isinstance(attributes, dict):
            before = dict(attributes)
            self._undo.append(lambda: _put_dict(attributes, before))
            held += list(before.values())
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else tuple(slots):
                held += self._visit_slot(value, kind, name)
        return held

    def _visit_slot(self, value: Any, kind: type, name: str) -> list[Any]:
        descriptor = kind.__dict__.get(name)
        if not isinstance(descriptor, MemberDescriptorType) or name == "__weakref__":
            return []
        try:
            inner = descriptor.__get__(value, kind)
        except AttributeError:
            return []

        def undo() -> None:
            if descriptor.__get__(value, kind) is not inner:
                descriptor.__set__(value, inner)

        self._undo.append(undo)
        return [inner]

    def _remember_array(self, array: np.ndarray[Any, Any]) -> None:
        if not array.flags.writeable:
            return
        self._array_bytes += array.nbytes
        if self._array_bytes > _MOST_ARRAY_BYTES:
            return  # data sets; a step that writes into one is caught by the comparison of losses at the latest
        copy = array.copy()

        def undo() -> None:
            array[...] = copy

        self._undo.append(undo)

    def _remember_file(self, file: io.IOBase) -> None:
        """A file that the program writes: what a replay appends is cut off again."""
        try:
            if file.closed or not file.writable() or not file.seekable():
                return
            file.flush()
            position = file.tell()
        except (OSError, ValueError):
            return

        def undo() -> None:
            file.flush()
            if file.tell() != position:
                file.seek(position)
                file.truncate()

        self._undo.append(undo)


def _flat(items: list[Any]) -> bool:
    """Whether a long list holds only plain numbers or strings (a token list): nothing below it can change."""
    return len(items) > 64 and all(type(item) in (int, float, str, bytes, bool) for item in items)


def _cells(function: FunctionType) -> list[Any]:
    held = []
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:
            continue
    return held


def _put_list(target: list[Any], items: list[Any]) -> None:
    if len(target) != len(items) or any(a is not b for a, b in zip(target, items, strict=True)):
        target[:] = items


def _put_dict(target: dict[Any, Any], pairs: dict[Any, Any]) -> None:
    same = len(target) == len(pairs) and all(key in target and target[key] is value for key, value in pairs.items())
    if not same or list(target) != list(pairs):
        clear, update = (
            (OrderedDict.clear, OrderedDict.update) if isinstance(target, OrderedDict) else (dict.clear, dict.update)
        )
        clear(target)
        update(target, pairs)


def _put_members(target: Any, members: list[Any]) -> None:
    if list(target) != members:
        target.clear()
        (target.extend if isinstance(target, deque) else target.update)(members)
