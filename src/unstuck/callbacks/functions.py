"""A callback made of functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from unstuck.callbacks.callback import Callback

__all__ = ["LambdaCallback"]


class LambdaCallback(Callback):
    """Runs the given functions at the hooks of their names.

    Args:
        functions: by the name of a hook of :class:`Callback`; called with the hook's arguments but ``self``. None for
            no function.

    Raises:
        TypeError: for a name that is no hook.
    """

    def __init__(self, **functions: Callable[..., Any] | None) -> None:
        for name, function in functions.items():
            if name not in HOOKS:
                raise TypeError(f"LambdaCallback got {name!r}, which is no hook of Callback.")
            if function is not None:
                setattr(self, name, function)


HOOKS = frozenset(name for name in vars(Callback) if name.startswith("on_") or name in ("setup", "teardown"))
# For whoever looks at the signature: editors, command lines made of it.
LambdaCallback.__init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    + [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in sorted(HOOKS)]
)
