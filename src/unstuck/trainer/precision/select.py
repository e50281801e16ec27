"""From ``Trainer(precision=...)`` to the object that does it."""

from __future__ import annotations

import warnings
from typing import Any

from unstuck.errors import MisconfigurationException
from unstuck.trainer.precision.base import Precision
from unstuck.trainer.precision.mixed import MixedPrecision
from unstuck.trainer.precision.whole import DoublePrecision, HalfPrecision

__all__ = ["PRECISIONS", "configure_precision", "select_precision"]

PRECISIONS = ("32-true", "64-true", "16-true", "bf16-true", "16-mixed", "bf16-mixed")
_ALIASES = {"32": "32-true", "64": "64-true", "16": "16-mixed", "bf16": "bf16-mixed"}


def configure_precision(precision: str | int | None, plugins: list[Any], device_type: str) -> Precision:
    """The precision for the Trainer's arguments: the one among the plugins, or the named one.

    Args:
        precision: the name, as for :func:`select_precision`.
        plugins: as passed; what is no precision doesn't count.
        device_type: the kind of device that computes.

    Raises:
        ValueError: an unknown precision.
        MisconfigurationException: several precisions.
    """
    own = [plugin for plugin in plugins if isinstance(plugin, Precision)]
    if own and precision is not None:
        raise MisconfigurationException(
            f"`Trainer(precision={precision!r}, plugins=...)`: both say which precision; leave one of them out."
        )
    if len(own) > 1:
        raise MisconfigurationException("`Trainer(plugins=...)` has more than one precision.")
    return own[0] if own else select_precision(precision, device_type)


def select_precision(precision: str | int | None, device_type: str) -> Precision:
    """The precision for the Trainer's argument.

    Args:
        precision: a name of :data:`PRECISIONS`, or the short forms 64, 32, 16, "bf16" (which mean the mixed ones for
            16 bits); None is "32-true".
        device_type: the kind of device that computes.

    Raises:
        ValueError: an unknown precision.
    """
    name = "32-true" if precision is None else str(precision).lower()
    if name in ("16", "bf16"):
        warnings.warn(
            f"`precision={precision!r}` means {_ALIASES[name]!r} here; write that to be clear.",
            UserWarning,
            stacklevel=4,
        )
    name = _ALIASES.get(name, name)
    if name not in PRECISIONS:
        raise ValueError(
            f"`Trainer(precision={precision!r})` is not known. Choose one of"
            f" {', '.join(repr(known) for known in PRECISIONS)}."
        )
    if name == "32-true":
        return Precision()
    if name == "64-true":
        return DoublePrecision()
    if name.endswith("-true"):
        return HalfPrecision(name)
    return MixedPrecision(name, device_type)
