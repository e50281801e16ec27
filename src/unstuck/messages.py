"""Info, debug and warning messages, told once per job instead of once per process.

Info and debug go to the logger ``"unstuck"``; :func:`show_messages` lets its info lines reach the terminal. Warnings
are Python warnings, so that the user's filters apply.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

from unstuck.console import console
from unstuck.places import user_frame

__all__ = [
    "PossibleUserWarning",
    "global_rank",
    "rank_zero_debug",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
    "show_messages",
]

P = ParamSpec("P")
R = TypeVar("R")

# Set by launchers (torchrun, SLURM, LSF), most specific first.
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")

log = logging.getLogger("unstuck")


class PossibleUserWarning(UserWarning):
    """Something that is a mistake in most programs, but may be wanted in this one."""


def global_rank() -> int:
    """Return this process's rank in the job, 0 for a single process.

    An initialised process group knows best; before it exists, the launcher's environment variables tell.
    """
    distributed = _torch_distributed()
    if distributed is not None:
        return distributed
    for variable in RANK_VARIABLES:
        rank = os.environ.get(variable)
        if rank is not None and rank.isdigit():
            return int(rank)
    return 0


def rank_zero_only(function: Callable[P, R]) -> Callable[P, R | None]:
    """Decorate a function so that it runs on rank 0 only and returns None on every other rank."""

    @functools.wraps(function)
    def on_rank_zero(*args: P.args, **kwargs: P.kwargs) -> R | None:
        return function(*args, **kwargs) if global_rank() == 0 else None

    return on_rank_zero


def rank_zero_info(message: str) -> None:
    """Log ``message`` at level INFO on rank 0."""
    if global_rank() == 0:
        log.info("%s", message)


def rank_zero_debug(message: str) -> None:
    """Log ``message`` at level DEBUG on rank 0."""
    if global_rank() == 0:
        log.debug("%s", message)


def rank_zero_warn(message: str, category: type[Warning] = UserWarning, stacklevel: int | None = None) -> None:
    """Warn on rank 0, at the user's line that led here.

    Filters by module see the module of this package that warns.

    Args:
        message: text of the warning.
        category: class of the warning.
        stacklevel: frames between the place to be shown and this function, counted as in :func:`warnings.warn` from
            the caller's point of view (2: whoever called the function that calls this one); None for the innermost
            line of the user's program.
    """
    if global_rank() != 0:
        return
    if stacklevel is not None:
        warnings.warn(message, category, stacklevel=stacklevel + 1)
        return
    ours = sys._getframe(1)
    place = user_frame(ours) or _outside(ours)
    warnings.warn_explicit(
        message,
        category,
        place.f_code.co_filename,
        place.f_lineno or 1,
        module=ours.f_globals.get("__name__"),
        registry=place.f_globals.setdefault("__warningregistry__", {}),
    )


def _outside(frame: FrameType) -> FrameType:
    """The innermost frame outside this package, such as a line of ``python -c``; the outermost one if none is."""
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "unstuck":
        frame = frame.f_back
    return frame


class _ConsoleHandler(logging.Handler):
    """Writes each record as one plain line on the package's console."""

    def emit(self, record: logging.LogRecord) -> None:
        console().print(self.format(record), markup=False, soft_wrap=True)


def show_messages() -> None:
    """Let info lines of the logger ``"unstuck"`` reach the terminal, unless the program has set up logging itself.

    Calling it again changes nothing.
    """
    if log.handlers or logging.getLogger().handlers:
        return
    log.addHandler(_ConsoleHandler())
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)


def _torch_distributed() -> int | None:
    """Return the rank in torch's default process group, None while there is none (torch isn't imported for it)."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return int(distributed.get_rank())
