"""Whose fault an exception is that came up during an examination, and how it is told."""

from __future__ import annotations

import linecache
import os
import re
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

from unstuck.errors import UnstuckError
from unstuck.places import INTERCEPTORS, display_path, is_user_file

__all__ = ["described", "is_fault_of_unstuck", "is_interrupt", "whole"]

_LONGEST = 300
"""Characters of an exception's message that are told in a line."""

_WORKER = re.compile(r"Caught \w+ in DataLoader worker process \d+")
_LINE = re.compile(r'\s*File "(.+)", line (\d+), in (\w+)')

_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "")


def is_interrupt(error: BaseException) -> bool:
    """Whether an exception stands for Ctrl-C: also the SystemExit that a Trainer makes of it."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        if isinstance(at, KeyboardInterrupt):
            return True
        seen.add(id(at))
        at = at.__cause__ or at.__context__
    return False


def is_fault_of_unstuck(error: BaseException) -> bool:
    """Whether an exception has come up in unstuck's own code, and not in the program or in what was called for it.

    The innermost Python frame decides: torch complains in its own frames of what the program gave it. A line of ours
    that raises on purpose complains of the program. What passes through a mode that looks at operations is their
    complaint, and a call of ours that a line of the program has made is the program's; nor is a function of the
    program that can't be called as it must be our fault.
    """
    if isinstance(error, (UnstuckError, SystemExit, KeyboardInterrupt)) or _is_wrong_call(error):
        return False
    frames = list(_frames(error.__traceback__))
    if not frames or any(item.name in INTERCEPTORS for item in frames):
        return False
    if linecache.getline(frames[-1].file, frames[-1].line).lstrip().startswith("raise"):
        return False
    inner = len(frames)
    while inner and frames[inner - 1].file.startswith(_OWN):
        inner -= 1
    return inner < len(frames) and not (inner and is_user_file(frames[inner - 1].file))


def _is_wrong_call(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, TypeError) and ("positional argument" in text or "keyword argument" in text)


class _Place(NamedTuple):
    file: str
    name: str
    line: int


def _frames(trace: TracebackType | None) -> Iterator[_Place]:
    while trace is not None:
        code = trace.tb_frame.f_code
        yield _Place(os.path.abspath(code.co_filename), code.co_name, trace.tb_lineno)
        trace = trace.tb_next


def described(error: BaseException) -> str:
    """The exception in a line, with the line of the program that raised it or led to it."""
    if isinstance(error, SystemExit):
        what = f"sys.exit({'' if error.code is None else repr(error.code)})"
    else:
        what = f"{type(error).__name__}: {_shortened(str(error))}" if str(error) else type(error).__name__
    folder = os.getcwd()
    if _WORKER.match(str(error)):
        return _of_worker(error, folder)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}: {error.msg} ({display_path(error.filename, folder)}:{error.lineno})"
    lines = [line for line in traceback.extract_tb(error.__traceback__) if is_user_file(line.filename)]
    if not lines:
        return what
    return f"{what} ({display_path(lines[-1].filename, folder)}:{lines[-1].lineno}, in {lines[-1].name})"


def _of_worker(error: BaseException, folder: str) -> str:
    """An exception in a loader's worker, whose traceback torch hands over as text."""
    lines = str(error).strip().splitlines()
    places = [match.groups() for match in map(_LINE.match, lines) if match and is_user_file(match[1])]
    what = f"{_shortened(lines[-1])} (in a DataLoader's worker"
    if not places:
        return f"{what})"
    file, line, function = places[-1]
    return f"{what}, {display_path(file, folder)}:{line}, in {function})"


def _shortened(message: str) -> str:
    """The first line of a message; the traceback has all of it."""
    first, *rest = message.strip().splitlines() or [""]
    return f"{first[:_LONGEST]} [...]" if rest or len(first) > _LONGEST else first


def whole(error: BaseException) -> str:
    """The exception with its traceback, for the report."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))
