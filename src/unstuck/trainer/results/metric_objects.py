"""Objects of torchmetrics, recognised without importing torchmetrics."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from unstuck.errors import MisconfigurationException

__all__ = ["attribute_of_metric", "is_metric", "is_metric_collection"]


def is_metric(value: object) -> bool:
    """Tell whether ``value`` is a ``torchmetrics.Metric``. It can't be one while nobody has imported torchmetrics."""
    torchmetrics: Any = sys.modules.get("torchmetrics")
    return torchmetrics is not None and isinstance(value, torchmetrics.Metric)


def is_metric_collection(value: object) -> bool:
    """Tell whether ``value`` is a ``torchmetrics.MetricCollection``."""
    torchmetrics: Any = sys.modules.get("torchmetrics")
    return torchmetrics is not None and isinstance(value, torchmetrics.MetricCollection)


def attribute_of_metric(module: nn.Module | None, metric: object, name: str) -> str:
    """Return the dotted path under which ``metric`` is registered in ``module``.

    Args:
        module: the module that logs.
        metric: the ``torchmetrics.Metric`` that it logs.
        name: the key under which it logs it; for the message only.

    Raises:
        MisconfigurationException: when it is registered nowhere, so it would neither follow the module to its device
            nor be saved with it.
    """
    known: dict[int, str] = {}
    if module is not None:
        known = {id(child): path for path, child in module.named_modules() if is_metric(child)}
    path = known.get(id(metric))
    if path is None:
        raise MisconfigurationException(
            f"`self.log({name!r}, ...)` got a torchmetrics.Metric that is no attribute of the module"
            f" (its metrics: {sorted(known.values()) or 'none'}). Assign it in `__init__`,"
            f" or say where it is: `self.log({name!r}, ..., metric_attribute=...)`."
        )
    return path
