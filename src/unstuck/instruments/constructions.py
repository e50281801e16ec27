"""Which of the user's lines made each module, and which one filled each parameter last.

Constructing must stay as fast as it was, so that a construction keeps code objects and offsets, and lines are looked up
when somebody asks for them.
"""

from __future__ import annotations

import os
from types import CodeType, FrameType
from weakref import ref

import torch

from unstuck.places import Frame, is_user_file, qualified_name

__all__ = ["Constructions"]

_MOST = 20_000
"""Modules, and parameters, whose lines are kept: a program may make new ones in every step."""

Trail = tuple[tuple[CodeType, int], ...]
"""Code and offset of each of the user's frames, innermost first."""


class Constructions:
    """The instrument. Keeps nothing of the program alive but its code."""

    name = "constructions"

    def __init__(self) -> None:
        self._modules: dict[int, tuple[ref[torch.nn.Module], Trail]] = {}
        self._parameters: dict[int, tuple[ref[torch.Tensor], Trail]] = {}
        self._memory: dict[int, ref[torch.Tensor]] = {}

    # -- signals -----------------------------------------------------------------------------------------------------

    def module_created(self, module: torch.nn.Module, frame: FrameType) -> None:
        if len(self._modules) < _MOST:
            self._modules[id(module)] = (ref(module), _trail(_outside_of_constructors(type(module), frame)))

    def parameter_registered(self, parameter: torch.Tensor, frame: FrameType) -> None:
        if len(self._parameters) < _MOST and not self._holds(parameter):  # tying registers it once more
            here = ref(parameter)
            self._parameters[id(parameter)] = (here, _trail(frame))
            if (address := _address(parameter)) is not None:
                self._memory[address] = here

    def tensor_filled(self, tensor: torch.Tensor, frame: FrameType) -> None:
        parameter: torch.Tensor | None = tensor
        if not isinstance(tensor, torch.nn.Parameter):  # weight.data
            address = _address(tensor)
            known = None if address is None else self._memory.get(address)
            parameter = None if known is None else known()
            if parameter is None or _address(parameter) != address or parameter.shape != tensor.shape:
                return
        if parameter is not None and len(self._parameters) < _MOST:
            self._parameters[id(parameter)] = (ref(parameter), _trail(frame))

    # -- what was kept -----------------------------------------------------------------------------------------------

    def of_module(self, module: torch.nn.Module) -> tuple[Frame, ...]:
        """The user's lines down to the one that made a module, outermost first.

        ``nn.Linear(...)`` inside a class's ``__init__``; for an instance of that class the line that calls the class.
        Empty for what was made before the session, or is a copy.
        """
        known = self._modules.get(id(module))
        return _frames(known[1]) if known is not None and known[0]() is module else ()

    def of_parameter(self, parameter: torch.Tensor) -> tuple[Frame, ...]:
        """The user's lines down to the one that filled a parameter last: a call of ``nn.init``, or its construction.

        Writing by other means (``weight.data.fill_``) isn't seen.
        """
        known = self._parameters.get(id(parameter))
        return _frames(known[1]) if known is not None and known[0]() is parameter else ()

    def _holds(self, parameter: torch.Tensor) -> bool:
        known = self._parameters.get(id(parameter))
        return known is not None and known[0]() is parameter


def _outside_of_constructors(kind: type, frame: FrameType | None) -> FrameType | None:
    """The frame that calls the class, from inside of its ``__init__`` and those of its bases.

    A constructor that stands there twice is another instance's: a block that holds blocks.
    """
    own = {code for base in kind.__mro__ if (code := getattr(vars(base).get("__init__"), "__code__", None)) is not None}
    while frame is not None and frame.f_code in own:
        own.discard(frame.f_code)
        frame = frame.f_back
    return frame


def _address(tensor: torch.Tensor) -> int | None:
    """Where a tensor's numbers lie; None for what has no memory of its own (meta, sparse, lazy)."""
    try:
        return tensor.data_ptr() or None
    except (RuntimeError, ValueError):  # a lazy parameter raises the latter
        return None


def _trail(frame: FrameType | None) -> Trail:
    trail = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            trail.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(trail)


def _frames(trail: Trail) -> tuple[Frame, ...]:
    return tuple(
        Frame(os.path.abspath(code.co_filename), _line(code, offset), qualified_name(code))
        for code, offset in reversed(trail)
    )


def _line(code: CodeType, offset: int) -> int:
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno
