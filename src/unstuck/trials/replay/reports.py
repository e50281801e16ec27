"""What a step tells its trainer and its loggers is heard by nobody when the step runs again.

A module reports to the trainer that runs it, which takes reports from the hooks that it has called itself and from
nowhere else: a step that is continued from its middle, or runs after the fit, would be refused at its first
``self.log``, and one that isn't refused would be counted twice. Loggers hand on what they get at once, to files and to
services.

The functions are replaced in the class of the library that defines them, so that ``super().log(...)`` of the user's own
``log`` meets the replacement too. Which classes there are is known from the objects that the program can reach, so that
no library has to be imported for it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from unstuck.places import is_user_file
from unstuck.trials.replay.stand_ins import attribute

__all__ = ["unheard_by_loggers", "unheard_by_trainers"]

_OF_MODULES = ("log", "log_dict", "print")
_OF_LOGGERS = ("log_metrics", "log_hyperparams", "log_graph", "log_image", "log_text", "log_table", "save")


@contextlib.contextmanager
def unheard_by_trainers(kinds: Iterable[type]) -> Iterator[None]:
    """What modules that a trainer trains tell it in this thread goes nowhere.

    Args:
        kinds: classes of the program's objects, of which those of such modules are taken.
    """
    modules = [kind for kind in kinds if _has(kind, "training_step", "log", "log_dict")]
    with _unheard(modules, _OF_MODULES):
        yield


@contextlib.contextmanager
def unheard_by_loggers(kinds: Iterable[type]) -> Iterator[None]:
    """What loggers of a trainer are given in this thread goes nowhere; ``kinds``: classes of the program's objects."""
    loggers = [kind for kind in kinds if _has(kind, "log_metrics", "log_hyperparams")]
    with _unheard(loggers, _OF_LOGGERS):
        yield


def _has(kind: type, *names: str) -> bool:
    # not by getattr, which asks the class's own class, and that may answer anything
    return all(any(callable(vars(base).get(name)) for base in kind.__mro__) for name in names)


@contextlib.contextmanager
def _unheard(kinds: Iterable[type], names: Iterable[str]) -> Iterator[None]:
    owners = {(owner, name) for kind in kinds for name in names if (owner := _library_class(kind, name)) is not None}
    with contextlib.ExitStack() as stack:
        for owner, name in owners:
            stack.enter_context(attribute(owner, name, _nothing))
        yield


def _library_class(kind: type, name: str) -> type | None:
    """The first class of a library that defines a method; None if only the program does."""
    for base in kind.__mro__:
        if callable(vars(base).get(name)):
            file = getattr(sys.modules.get(base.__module__), "__file__", None)
            if file is not None and not is_user_file(file):
                return base
    return None


def _nothing(*_: Any, **__: Any) -> None:
    return None
