"""Names of checkpoint files, made of a template and the values of a moment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

__all__ = ["fill_template"]

DEFAULT_TEMPLATE = "{epoch}-{step}"
_FIELD = re.compile(r"\{([^{}:!]+)((?:![rsa])?(?::[^{}]*)?)\}")


def fill_template(
    template: str | None,
    metrics: Mapping[str, Any],
    *,
    prefix: str | None = None,
    join: str = "-",
    equals: str = "=",
    insert_names: bool = True,
) -> str:
    """Fills in a template such as ``"{epoch}-{val_loss:.2f}"``.

    Args:
        template: text with the names of metrics in braces, with format specifications where wanted; None for
            ``"{epoch}-{step}"``.
        metrics: numbers and tensors with one element, by name. One that is missing counts as 0.
        prefix: put before the name.
        join: between prefix and name.
        equals: between the name of a metric and its value.
        insert_names: whether the name of each metric stands before its value.

    >>> fill_template("{epoch:02d}-{val/loss:.2f}", {"epoch": 3, "val/loss": 0.126})
    'epoch=03-val/loss=0.13'
    """

    def fill(match: re.Match[str]) -> str:
        name, form = match.groups()
        value = _plain(metrics.get(name, 0))
        shown = f"{{0{form}}}".format(value)
        return f"{name}{equals}{shown}" if insert_names else shown

    filled = _FIELD.sub(fill, DEFAULT_TEMPLATE if template is None else template)
    return filled if prefix is None else f"{prefix}{join}{filled}"


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value
