"""The callbacks of a Trainer together: what may be among them, in which order they come, and who is what."""

from __future__ import annotations

from typing import Any

from unstuck.errors import NameClashError
from unstuck.trainer.hooks import is_overridden

__all__ = ["callbacks_of_class", "check_callbacks", "check_state_keys", "checkpoints_last", "saves_checkpoints"]


def check_callbacks(callbacks: list[Any], origin: str) -> None:
    """Checks that each is a callback, of this package or of the real Lightning.

    Args:
        callbacks: the callbacks.
        origin: where they were given, for the error.

    Raises:
        TypeError: something else among them, such as a class in place of an instance.
    """
    for callback in callbacks:
        if isinstance(callback, type):
            raise TypeError(f"{origin} has the class {callback.__name__} itself; make an object of it.")
        if not _is_a(callback, "Callback"):
            raise TypeError(f"{origin} has {callback!r}, which is no `Callback`.")


def check_state_keys(callbacks: list[Any]) -> None:
    """Checks that the states of callbacks can be told apart in a checkpoint.

    Raises:
        NameClashError: two that have a state have the same key.
    """
    seen = set()
    for callback in callbacks:
        if not is_overridden("state_dict", callback):
            continue
        if callback.state_key in seen:
            raise NameClashError(
                f"Two callbacks would save their state under the key {callback.state_key!r}. Give them other arguments,"
                f" or override `{type(callback).__name__}.state_key` with what tells them apart."
            )
        seen.add(callback.state_key)


def checkpoints_last(callbacks: list[Any]) -> list[Any]:
    """Callbacks that save what others change come after them."""
    return sorted(callbacks, key=saves_checkpoints)


def saves_checkpoints(callback: Any) -> bool:
    """Whether a callback saves checkpoints, by its class, of this package or of the real Lightning."""
    return _is_a(callback, "Checkpoint")


def callbacks_of_class(callbacks: list[Any], name: str) -> list[Any]:
    """Those whose class, or one that it inherits from, has this name, in this package or in the real Lightning."""
    return [callback for callback in callbacks if _is_a(callback, name)]


def _is_a(callback: Any, name: str) -> bool:
    return any(cls.__name__ == name for cls in type(callback).__mro__)
