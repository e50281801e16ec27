"""Remembers what one object holds, and puts it back into the same object by as few changes as possible.

Other threads may read the object at the same time: what is as it was is never taken out for a moment. Elements are
compared by identity, so no ``==`` of the program runs.
"""

from __future__ import annotations

import array
import io
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from types import CellType, MemberDescriptorType
from typing import Any

import numpy as np

__all__ = ["Undo", "remember", "remember_attribute", "remember_cell", "remember_file", "remember_slot"]

Undo = Callable[[], None]

_MISSING = object()


def remember(value: Any) -> tuple[Undo | None, list[Any]]:
    """How to put back a container's contents (None for what can't change), and what it holds."""
    if isinstance(value, list):
        items = list.__getitem__(value, slice(None))
        return lambda: _put_list(value, items), [] if _flat(items) else items
    if isinstance(value, dict):
        pairs = _pairs(value)
        return lambda: _put_dict(value, pairs), [item for pair in pairs for item in pair]
    if isinstance(value, set):
        members = list(set.__iter__(value))
        return lambda: _put_members(value, members, set.__iter__, set.clear, set.update), members
    if isinstance(value, deque):
        members = list(deque.__iter__(value))
        return lambda: _put_members(value, members, deque.__iter__, deque.clear, deque.extend), members
    if isinstance(value, tuple):
        return None, list(tuple.__iter__(value))
    if isinstance(value, frozenset):
        return None, list(frozenset.__iter__(value))
    if isinstance(value, (bytearray, array.array)):
        copy = value[:]
        return lambda: _put_whole(value, copy), []
    return None, []


def remember_cell(cell: CellType) -> tuple[Undo, list[Any]]:
    """A variable of an enclosing function."""
    before = _contents(cell)

    def undo() -> None:
        if _contents(cell) is before:
            return
        if before is _MISSING:
            del cell.cell_contents
        else:
            cell.cell_contents = before

    return undo, [] if before is _MISSING else [before]


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def remember_slot(value: Any, descriptor: MemberDescriptorType) -> tuple[Undo, list[Any]]:
    """An attribute that a class keeps in a slot."""

    def read() -> Any:
        try:
            return descriptor.__get__(value, type(value))
        except AttributeError:
            return _MISSING

    before = read()

    def undo() -> None:
        if read() is before:
            return
        if before is _MISSING:
            descriptor.__delete__(value)
        else:
            descriptor.__set__(value, before)

    return undo, [] if before is _MISSING else [before]


def remember_attribute(kind: type, name: str, before: Any) -> Undo:
    """An attribute of a class."""

    def undo() -> None:
        if kind.__dict__.get(name, _MISSING) is not before:
            type.__setattr__(kind, name, before)

    return undo


def remember_array(value: np.ndarray[Any, Any]) -> Undo:
    """A numpy array's elements."""
    copy = value.copy()

    def undo() -> None:
        value[...] = copy

    return undo


def remember_file(file: io.IOBase) -> Undo | None:
    """A file's position and, for what is written at its end, its length; None for a stream that can't go back."""
    try:
        if file.closed or not file.seekable():
            return None
        writable = file.writable()
        if writable:
            file.flush()
        position = file.tell()
    except (OSError, ValueError):
        return None

    def undo() -> None:
        if file.closed:
            return
        if writable:
            file.flush()
        if file.tell() != position:
            file.seek(position)
            if writable:
                file.truncate()

    return undo


def _flat(items: list[Any]) -> bool:
    """Whether a long list holds only plain numbers or strings (a token list): nothing below it can change."""
    return len(items) > 64 and all(type(item) in (int, float, str, bytes, bool) for item in items)


def _same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(one is other for one, other in zip(a, b, strict=True))


def _put_list(target: list[Any], items: list[Any]) -> None:
    if not _same(list.__getitem__(target, slice(None)), items):
        list.__setitem__(target, slice(None), items)


def _put_whole(target: Any, copy: Any) -> None:
    if target != copy:
        target[:] = copy


def _put_members(
    target: Any,
    members: list[Any],
    read: Callable[[Any], Iterable[Any]],
    clear: Callable[[Any], None],
    fill: Callable[[Any, Any], None],
) -> None:
    if not _same(list(read(target)), members):
        clear(target)
        fill(target, members)


def _pairs(target: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return list((OrderedDict if isinstance(target, OrderedDict) else dict).items(target))


def _put_dict(target: dict[Any, Any], pairs: list[tuple[Any, Any]]) -> None:
    now = _pairs(target)
    if len(now) == len(pairs) and all(a is c and b is d for (a, b), (c, d) in zip(now, pairs, strict=True)):
        return
    ordered = isinstance(target, OrderedDict)
    store = OrderedDict.__setitem__ if ordered else dict.__setitem__
    wanted = {id(key) for key, _ in pairs}
    for key, _ in now:
        if id(key) not in wanted:
            (OrderedDict.__delitem__ if ordered else dict.__delitem__)(target, key)
    for key, value in pairs:
        if dict.get(target, key, _MISSING) is not value:
            store(target, key, value)
    if not _same([key for key, _ in _pairs(target)], [key for key, _ in pairs]):
        (OrderedDict.clear if ordered else dict.clear)(target)  # only the order is left to put back
        for key, value in pairs:
            store(target, key, value)
