"""The variables that the rest of a step reads, at its first module call: taken from a moment, put into running frames.

Only what can be written down: numbers, text, tensors without a history, and plain containers of these. A program that
takes its batches out of a tensor by a counter needs no loader for its step to be repeated.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any

import torch

from unstuck.instruments.moments import Moment

__all__ = ["put_into_frames", "variables_of"]

_LARGEST = 1 << 26
"""Bytes of a tensor beyond which it is data that the program has anyway."""

_SLICE = "slice of start, stop, step"
"""How the ends of a slice are written down, which torch doesn't load."""

_PLAIN = (bool, int, float, complex, str, type(None))


def variables_of(moment: Moment | None) -> list[dict[str, Any]]:
    """The user's frames of a moment, innermost first.

    Returns:
        Of each ``file``, ``function``, the ``line`` of its begin, and ``values`` by name.
    """
    found = []
    for frame in () if moment is None else moment.frames:
        values = {name: _written(value) for name, value in (frame.values or {}).items() if _can_be_kept(value)}
        if values:
            found.append({**_identity(frame.code), "values": values})
    return found


def _identity(code: CodeType) -> dict[str, Any]:
    return {"file": os.path.basename(code.co_filename), "function": code.co_name, "line": code.co_firstlineno}


def _can_be_kept(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        history = value.requires_grad or isinstance(value, torch.nn.Parameter)
        return not history and value.layout is torch.strided and value.numel() * value.element_size() <= _LARGEST
    if type(value) in (list, tuple):
        return len(value) <= 64 and all(map(_can_be_kept, value))
    if type(value) is dict:
        return len(value) <= 64 and all(isinstance(key, (str, int)) and _can_be_kept(value[key]) for key in value)
    if isinstance(value, slice):
        return all(type(item) in (int, type(None)) for item in (value.start, value.stop, value.step))
    return type(value) in _PLAIN


def _written(value: Any) -> Any:
    return {_SLICE: [value.start, value.stop, value.step]} if isinstance(value, slice) else value


def _read(value: Any) -> Any:
    return slice(*value[_SLICE]) if isinstance(value, dict) and _SLICE in value else value


def put_into_frames(saved: list[dict[str, Any]], frame: FrameType | None, like: Callable[[Any, Any, str], Any]) -> None:
    """Give the variables of running frames the values that were saved for them.

    Args:
        saved: as :func:`variables_of` gave them.
        frame: the innermost frame; its callers are searched.
        like: (present value, saved value, name) to what the variable gets.
    """
    waiting = list(saved)
    while frame is not None and waiting:
        identity = _identity(frame.f_code)
        for entry in waiting:
            if all(entry.get(key) == value for key, value in identity.items()):
                waiting.remove(entry)
                _put(frame, entry["values"], like)
                break
        frame = frame.f_back


def _put(frame: FrameType, values: Mapping[str, Any], like: Callable[[Any, Any, str], Any]) -> None:
    scope = frame.f_locals
    changed = False
    for name, written in values.items():
        value = _read(written)
        if name in scope and not _same(scope[name], value):
            scope[name] = like(scope[name], value, f"the variable {name!r}")
            changed = True
    if changed and scope is not frame.f_globals and sys.version_info < (3, 13):
        # up to then a function's variables are a copy, which is written back as debuggers do it
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def _same(present: Any, saved: Any) -> bool:
    if isinstance(present, torch.Tensor) and isinstance(saved, torch.Tensor):
        return present.shape == saved.shape and present.dtype == saved.dtype and torch.equal(present, saved)
    return type(present) is type(saved) and type(saved) in (*_PLAIN, slice) and bool(present == saved)
