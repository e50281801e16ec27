"""How the Trainer's keywords are read, each by itself: checked, and brought into one form."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from unstuck.errors import MisconfigurationException
from unstuck.trainer.checkpoints.files import is_remote, local_path

__all__ = [
    "LoopBounds",
    "as_list",
    "check_barebones",
    "check_clipping",
    "check_count",
    "check_on_nonfinite",
    "expand_root_dir",
    "parse_accumulation",
    "parse_detect_anomaly",
    "parse_duration",
    "parse_loop_bounds",
    "parse_max_time",
    "refuse_unbuilt",
]

CLIP_ALGORITHMS = ("norm", "value")
DEFAULT_MAX_EPOCHS = 1000


@dataclass(frozen=True)
class LoopBounds:
    """How long a fit lasts."""

    min_epochs: int | None
    max_epochs: int
    min_steps: int | None
    max_steps: int
    max_epochs_is_default: bool
    """Nobody said how long, so ``max_epochs`` is the default, which the user should know."""


def parse_loop_bounds(
    min_epochs: int | None, max_epochs: int | None, min_steps: int | None, max_steps: int, bounded_by_time: bool
) -> LoopBounds:
    """Checks the four bounds and fills in what follows from them.

    Raises:
        MisconfigurationException: a bound that is no integer, or a maximum below -1 (which means without end).
    """
    for name, value in (("max_epochs", max_epochs), ("max_steps", max_steps)):
        unset = name == "max_epochs" and value is None
        if not unset and (isinstance(value, bool) or not isinstance(value, int) or value < -1):
            raise MisconfigurationException(
                f"`{name}` must be an integer of at least 0, or -1 for no end; got {value!r}."
            )
    for name, value in (("min_epochs", min_epochs), ("min_steps", min_steps)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise MisconfigurationException(f"`{name}` must be an integer of at least 0; got {value!r}.")
    is_default = False
    if max_epochs is None:
        is_default = max_steps == -1 and not bounded_by_time
        max_epochs = DEFAULT_MAX_EPOCHS if is_default else -1
    if min_epochs is None and min_steps is not None:
        min_epochs = 1
    return LoopBounds(min_epochs, max_epochs, min_steps, max_steps, is_default)


def parse_max_time(max_time: str | timedelta | dict[str, int] | None) -> timedelta | None:
    """Reads ``max_time``: "DD:HH:MM:SS", a timedelta or its keywords.

    Raises:
        MisconfigurationException: anything else.
    """
    return parse_duration("Trainer(max_time", max_time)


def parse_duration(argument: str, duration: str | timedelta | dict[str, int] | None) -> timedelta | None:
    """Reads a duration: "DD:HH:MM:SS", a timedelta or its keywords.

    Args:
        argument: how errors name it, as in "Trainer(max_time".
        duration: as given.

    Raises:
        MisconfigurationException: anything else.
    """
    if duration is None or isinstance(duration, timedelta):
        return duration
    if isinstance(duration, dict):
        try:
            return timedelta(**duration)
        except TypeError as error:
            raise MisconfigurationException(
                f"`{argument}={duration!r})`: {error}; use timedelta's keywords."
            ) from error
    if isinstance(duration, str):
        parts = duration.strip().split(":")
        if len(parts) == 4 and all(part.isdigit() for part in parts):
            days, hours, minutes, seconds = map(int, parts)
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    raise MisconfigurationException(
        f"`{argument}={duration!r})` is no duration: pass text 'DD:HH:MM:SS', a timedelta, or a dict of its keywords."
    )


def check_clipping(clip_val: float | None, algorithm: str | None) -> str | None:
    """Checks ``gradient_clip_val`` and ``gradient_clip_algorithm`` and returns the algorithm in lower case.

    Raises:
        TypeError: a value that is no number.
        MisconfigurationException: a negative or non-finite value, or an unknown algorithm.
    """
    if clip_val is not None:
        if isinstance(clip_val, bool) or not isinstance(clip_val, (int, float)):
            raise TypeError(f"`gradient_clip_val` should be an int or a float, got {clip_val!r}.")
        if not clip_val >= 0:
            raise MisconfigurationException(
                f"`gradient_clip_val` should be at least 0 (0 or None: off), got {clip_val!r}."
            )
    if algorithm is None:
        return None
    if str(algorithm).lower() not in CLIP_ALGORITHMS:
        raise MisconfigurationException(
            f"`gradient_clip_algorithm={algorithm!r}` is not known. Choose 'norm' (of all gradients together) or"
            " 'value' (of each element)."
        )
    return str(algorithm).lower()


def parse_detect_anomaly(detect_anomaly: Any) -> bool | Literal["replay"]:
    """Checks ``detect_anomaly``.

    Raises:
        MisconfigurationException: a text other than "replay".
    """
    if not isinstance(detect_anomaly, str):
        return bool(detect_anomaly)
    if detect_anomaly != "replay":
        raise MisconfigurationException(
            f"`detect_anomaly={detect_anomaly!r}` is not known. Choose True (torch's anomaly mode), 'replay' (end the"
            " fit at the first value that isn't finite, and name its operation) or False."
        )
    return "replay"


def check_on_nonfinite(on_nonfinite: Any, barebones: bool) -> Literal["warn", "skip-step"]:
    """Checks ``on_nonfinite``.

    Raises:
        MisconfigurationException: an unknown value, or one that ``barebones`` can't do.
    """
    if on_nonfinite == "skip-step" and not barebones:
        return "skip-step"
    if on_nonfinite != "warn":
        raise MisconfigurationException(
            f"`on_nonfinite={on_nonfinite!r}`: choose 'warn', or, without `barebones`, 'skip-step'."
        )
    return "warn"


def parse_accumulation(accumulate_grad_batches: Any) -> int:
    """Checks ``accumulate_grad_batches``.

    Raises:
        MisconfigurationException: anything but an integer of at least 1.
    """
    if (
        isinstance(accumulate_grad_batches, bool)
        or not isinstance(accumulate_grad_batches, int)
        or accumulate_grad_batches < 1
    ):
        raise MisconfigurationException(
            f"`accumulate_grad_batches` should be an integer of at least 1, got {accumulate_grad_batches!r}."
        )
    return accumulate_grad_batches


def check_count(name: str, value: Any, least: int = 0, optional: bool = False) -> None:
    """Checks that an argument is an integer of at least ``least``.

    Raises:
        MisconfigurationException: it isn't.
    """
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise MisconfigurationException(f"`{name}` should be an integer of at least {least}, got {value!r}.")


def check_barebones(**arguments: Any) -> None:
    """Refuses what ``barebones=True`` can't go together with, all of it in one message.

    Args:
        arguments: the Trainer's arguments by name, as passed.

    Raises:
        ValueError: names every conflicting argument.
    """
    conflicts = [f"{name}={value!r}" for name, value in arguments.items() if value]
    if conflicts:
        raise ValueError(
            "`Trainer(barebones=True)` switches off whatever costs time in a step, so it doesn't go together with:"
            f" {', '.join(conflicts)}."
            " Leave these out, or leave barebones out."
        )


def refuse_unbuilt(
    *,
    strategy: Any,
    num_nodes: int,
    plugins: list[Any],
    sync_batchnorm: bool,
    model_registry: Any,
) -> None:
    """Refuses the keywords behind which there is nothing yet, instead of ignoring them.

    Raises:
        ValueError: an unknown strategy, as for any unknown name.
        MisconfigurationException: a feature that doesn't exist.
    """
    if strategy not in ("auto", "single_device") and not hasattr(strategy, "root_device"):
        known = ("ddp", "ddp_spawn", "ddp_fork", "ddp_notebook", "fsdp", "deepspeed", "xla", "model_parallel")
        if not isinstance(strategy, str) or not strategy.startswith(known):
            raise ValueError(f"`Trainer(strategy={strategy!r})` is not known. Choose 'auto' or 'single_device'.")
        raise MisconfigurationException(
            f"`Trainer(strategy={strategy!r})`: training on several processes isn't available. Use 'auto' or"
            " 'single_device'."
        )
    if isinstance(num_nodes, bool) or not isinstance(num_nodes, int) or num_nodes < 1:
        raise ValueError(f"`Trainer(num_nodes={num_nodes!r})` should be an integer of at least 1.")
    if num_nodes != 1:
        raise MisconfigurationException(
            f"`Trainer(num_nodes={num_nodes!r})`: training on several machines isn't available."
        )
    if sync_batchnorm:
        raise MisconfigurationException(
            "`Trainer(sync_batchnorm=True)` needs several processes, and these aren't available."
        )
    if model_registry is not None:
        raise MisconfigurationException(
            f"`Trainer(model_registry={model_registry!r})`: model registries aren't available."
        )
    for plugin in plugins:
        raise MisconfigurationException(f"`Trainer(plugins=...)` takes a Precision so far; {plugin!r} isn't available.")


def as_list(value: Any) -> list[Any]:
    """One item or several as a list, None as an empty one."""
    if value is None:
        return []
    return list(value) if isinstance(value, Iterable) else [value]


def expand_root_dir(default_root_dir: str | Path | None) -> str:
    """The folder where loggers write by default; a remote address stays as it is."""
    path = os.getcwd() if default_root_dir is None else os.fspath(default_root_dir)
    return path if is_remote(path) else os.path.normpath(local_path(path))
