"""Records as plain data: any dataclass of the recording to JSON and back, driven by its type hints.

The hints may name numbers, strings, booleans, None, other dataclasses, :class:`Series`, and tuples, lists and
dictionaries of these.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from unstuck.record.series import Series

__all__ = ["from_plain", "to_plain"]

Record = TypeVar("Record")

_PLAIN = frozenset((int, str, bool, type(None)))


def to_plain(value: Any) -> Any:
    """Dictionaries, lists, strings, numbers and None only; a number that isn't finite is a string, as in reports."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if isfinite(value) else str(value)
    names = _names(kind)
    if names is not None:
        # most fields are numbers and names; not to call this function for them takes half of the time
        return {name: item if type(item := getattr(value, name)) in _PLAIN else to_plain(item) for name in names}
    if isinstance(value, Series):
        return value.encode()
    if isinstance(value, Mapping):
        return {str(key): item if type(item) in _PLAIN else to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [item if type(item) in _PLAIN else to_plain(item) for item in value]
    return value


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """The fields of a dataclass, None for any other class."""
    return tuple(item.name for item in fields(kind)) if is_dataclass(kind) else None


def from_plain(kind: type[Record], data: Any) -> Record:
    """The record of class ``kind`` that :func:`to_plain` has written; fields that it doesn't know are left out.

    Raises:
        TypeError: a field without a default is missing.
    """
    return _decoded(kind, data)  # type: ignore[no-any-return]


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _decoded(hint: Any, data: Any) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return None if data is None else _decoded(_chosen(inner, data), data)
    if origin in (tuple, list):
        item = inner[0] if inner else Any
        if origin is tuple and len(inner) > 1 and inner[1] is not Ellipsis:
            return tuple(_decoded(hint_of, part) for hint_of, part in zip(inner, data, strict=False))
        return origin(_decoded(item, part) for part in data)
    if origin is dict:
        key, item = inner
        return {(int(name) if key is int else name): _decoded(item, part) for name, part in data.items()}
    if hint is Series:
        return Series.decode(data)
    if hint is float and data is not None:
        return float(data)  # a float that isn't finite was written as a string
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _hints(hint)
        return hint(**{name: _decoded(hints[name], part) for name, part in data.items() if name in hints})
    return data


def _chosen(hints: tuple[Any, ...], data: Any) -> Any:
    """The alternative of a union that data other than None belongs to."""
    kinds = [hint for hint in hints if hint is not type(None)]
    for hint in kinds:
        if isinstance(hint, type) and type(data) is hint:
            return hint
    return kinds[0]
