"""Places in the user's program: which frames are the user's own, and how a call chain is written down.

A frame is the user's when its file lies outside torch, the standard library, unstuck and installed packages; the
package that is run with ``-m`` counts as the user's wherever it lies. The bottom layer: no torch, no I/O.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType

__all__ = [
    "INTERCEPTORS",
    "CallKey",
    "Frame",
    "add_own_file",
    "add_user_root",
    "call_key",
    "display_path",
    "is_user_code",
    "user_chain",
    "user_frame",
]


@dataclass(frozen=True)
class Frame:
    """One line of the user's program: absolute ``file``, 1-based ``line``, qualified name of the ``function``."""

    file: str
    line: int
    function: str


def _installed_roots() -> tuple[str, ...]:
    # sysconfig would tell as well, but loads a large file to do so
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    roots = {os.path.dirname(os.__file__), os.path.join(sys.base_exec_prefix, sys.platlibdir, version)}
    roots |= {entry for entry in sys.path if os.path.basename(entry) in ("site-packages", "dist-packages")}
    roots.add(os.path.dirname(os.path.abspath(__file__)))
    return tuple(sorted({os.path.join(root, "") for entry in roots for root in (entry, os.path.realpath(entry))}))


INTERCEPTORS = {"__torch_function__", "__torch_dispatch__"}
"""Functions that see every operation and pass it on: not where one is called."""

_INSTALLED = _installed_roots()
_user_roots: list[str] = []
_own_files: set[str] = set()


def add_user_root(root: str) -> None:
    """Count ``root``, a file or every file below a folder, as the user's, although it is installed (``run -m``)."""
    path = os.path.abspath(root)
    _user_roots.append(path if os.path.isfile(path) else os.path.join(path, ""))
    is_user_file.cache_clear()


def add_own_file(path: str) -> None:
    """Don't count a file as the user's: the script in a folder of programs that starts our command line."""
    _own_files.add(os.path.abspath(path))
    is_user_file.cache_clear()


@lru_cache(maxsize=4096)
def is_user_file(file: str) -> bool:
    """Whether a code object's ``co_filename`` is part of the user's program (``<string>``, ``<frozen ...>`` aren't)."""
    # A notebook's cells are compiled under names such as <ipython-input-1-...> or a file in the temporary folder.
    if file.startswith("<"):
        return file.startswith("<ipython-input")
    path = os.path.abspath(file)
    if path in _own_files:
        return False
    if any(path.startswith(root) for root in _user_roots):
        return True
    return not any(path.startswith(root) for root in _INSTALLED)


def is_user_code(code: CodeType) -> bool:
    """Whether a code object is part of the user's program."""
    return is_user_file(code.co_filename)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's program at or outside ``frame``; None if there is none."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def qualified_name(code: CodeType) -> str:
    """``Class.method`` where the interpreter knows it (3.11 and later), else the bare name."""
    return getattr(code, "co_qualname", code.co_name)


def user_chain(frame: FrameType | None, stop: FrameType | None = None) -> tuple[Frame, ...]:
    """The user's lines from the outermost call down to ``frame``, outermost first, without ``stop`` and outside it."""
    chain = []
    while frame is not None and frame is not stop:
        code = frame.f_code
        if is_user_file(code.co_filename) and code.co_name not in INTERCEPTORS:
            chain.append(
                Frame(os.path.abspath(code.co_filename), frame.f_lineno or code.co_firstlineno, qualified_name(code))
            )
        frame = frame.f_back
    return tuple(reversed(chain))


CallKey = tuple[tuple[CodeType, int], ...]
"""Code and instruction of the user's innermost frames: the same for calls from the same place."""


def call_key(frame: FrameType | None, depth: int = 3) -> CallKey:
    """Where a call comes from: the ``depth`` innermost of the user's frames tell calls by the same helper apart."""
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < depth:
        if is_user_file(frame.f_code.co_filename):
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def display_path(file: str, folder: str) -> str:
    """``file`` relative to ``folder`` where it lies below it, else absolute."""
    path = os.path.abspath(file)
    prefix = os.path.join(folder, "")
    return path[len(prefix) :] if path.startswith(prefix) else path
