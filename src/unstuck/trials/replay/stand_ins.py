"""What a replay meets in place of things whose effect can't be undone: iterators, files, processes, networks, queues.

Everything here concerns only the thread that replays: the program's other threads go on as if nothing happened.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import logging
import multiprocessing.queues
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from typing import Any

from torch.utils.data import dataloader

__all__ = ["CannotReplayError", "attribute", "no_effects_outside", "out_of_reach", "silence"]


class CannotReplayError(Exception):
    """The step can't be run again; the message says why, in words for the report."""


@contextlib.contextmanager
def attribute(owner: Any, name: str, value: Callable[..., Any]) -> Iterator[None]:
    """A function that stands in ``owner.name``, for this thread alone."""
    own = vars(owner).get(name, _MISSING)
    setattr(owner, name, _only_here(value, getattr(owner, name)))
    try:
        yield
    finally:
        if own is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


_MISSING = object()


def _only_here(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    here = threading.get_ident()

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return (function if threading.get_ident() == here else original)(*args, **kwargs)

    return stand_in


def _refuse(reason: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise CannotReplayError(reason)

    return refuse


def out_of_reach(iterator: Any) -> Any:
    """Stands for an iterator of the program: this thread can't advance it."""
    return _OutOfReach(iterator, threading.get_ident())


class _OutOfReach:
    def __init__(self, iterator: Any, here: int) -> None:
        self._iterator = iterator
        self._here = here

    def __iter__(self) -> _OutOfReach:
        return self

    def __next__(self) -> Any:
        return next(self._real())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def _real(self) -> Any:
        if threading.get_ident() == self._here:
            raise CannotReplayError(f"the step uses a {type(self._iterator).__name__}, which can't be undone")
        return self._iterator


# -- files, processes, the network ---------------------------------------------------------------------------------

_REFUSED_EVENTS = {
    "builtins.input": "reads from the keyboard",
    "os.chdir": "changes the folder",
    "os.exec": "starts a program",
    "os.fork": "starts a process",
    "os.kill": "sends a signal",
    "os.link": "makes a link",
    "os.mkdir": "makes a folder",
    "os.posix_spawn": "starts a program",
    "os.remove": "removes a file",
    "os.rename": "renames a file",
    "os.rmdir": "removes a folder",
    "os.symlink": "makes a link",
    "os.system": "starts a program",
    "os.truncate": "cuts a file",
    "socket.connect": "uses the network",
    "socket.sendmsg": "uses the network",
    "socket.sendto": "uses the network",
    "sqlite3.connect": "opens a database",
    "subprocess.Popen": "starts a program",
}
"""Audit events of the interpreter, whoever causes them, and what they mean."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_replaying: int | None = None  # the thread; an audit hook can't be taken away again, only told to do nothing


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _replaying is None or _replaying != threading.get_ident():
        return
    if event in _REFUSED_EVENTS:
        raise CannotReplayError(f"the step {_REFUSED_EVENTS[event]}, which can't be undone")
    if event == "open":
        path, mode, flags = args
        written = bool(set(mode) & set("wax+")) if isinstance(mode, str) else bool(flags & _WRITING)
        name = os.fspath(path) if isinstance(path, (str, bytes, os.PathLike)) else str(path)
        if written and name != os.devnull and "__pycache__" not in os.fsdecode(name):
            raise CannotReplayError(f"the step writes the file {os.fsdecode(name)}, which can't be undone")


def _opens_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    """``open`` that writes into memory which nobody reads; reading is as ever."""

    def open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:  # noqa: A001 - it stands for open
        if set(mode) & set("wax") and "+" not in mode:
            return io.BytesIO() if "b" in mode else io.StringIO()
        return original(file, mode, *args, **kwargs)

    return open


@functools.cache
def _install_audit() -> None:
    sys.addaudithook(_audit)


@contextlib.contextmanager
def no_effects_outside() -> Iterator[None]:
    """Context in which this thread can't reach what lies outside its memory, nor other threads."""
    global _replaying
    _install_audit()
    environment = dict(os.environ)
    refused = [
        (queue.Queue, ("get",), "waits for another thread"),
        (multiprocessing.queues.Queue, ("put", "get"), "passes something to or from another process"),
        (threading.Thread, ("start",), "starts a thread"),
        *((pool, ("submit",), "gives work to a pool") for pool in (Executor, *Executor.__subclasses__())),
        (dataloader._BaseDataLoaderIter, ("__next__",), "draws a batch after its first forward"),
    ]
    with contextlib.ExitStack() as stack:
        for owner, names, what in refused:
            for name in names:
                stack.enter_context(attribute(owner, name, _refuse(f"the step {what}, which can't be undone")))
        # what is only given away is swallowed: a logger's events, a line of a log file
        stack.enter_context(attribute(queue.Queue, "put", _nothing))
        for owner in (builtins, io):
            stack.enter_context(attribute(owner, "open", _opens_nothing(owner.open)))
        _replaying = threading.get_ident()
        try:
            yield
        finally:
            _replaying = None
            if dict(os.environ) != environment:
                for name in set(os.environ) - set(environment):
                    del os.environ[name]
                os.environ.update(environment)


# -- output --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def silence(streams: Iterable[Any] = ()) -> Iterator[None]:
    """What this thread prints or logs goes nowhere; what the streams have buffered stays in them.

    Args:
        streams: open streams of the program, besides the standard ones.
    """
    standard = [sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__]
    every = [*streams, *standard, *(getattr(stream, "buffer", None) for stream in standard)]
    unique = {id(stream): stream for stream in every if stream is not None}
    with contextlib.ExitStack() as stack:
        for stream in unique.values():
            for name in ("write", "writelines", "flush"):
                with contextlib.suppress(AttributeError, TypeError):  # an object that takes no attribute
                    stack.enter_context(attribute(stream, name, _length))
        stack.enter_context(attribute(logging.Logger, "callHandlers", _nothing))
        yield


def _length(text: Any = "") -> int:
    return len(text) if isinstance(text, (str, bytes)) else 0


def _nothing(*_: Any, **__: Any) -> None:
    return None
