"""Hyperparameters in the forms in which loggers write them."""

from __future__ import annotations

import dataclasses
import enum
import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import torch

from unstuck.loggers.files import replace_text

__all__ = ["as_dictionary", "flatten", "plain", "write_yaml"]


def as_dictionary(params: Mapping[str, Any] | Namespace | None) -> dict[str, Any]:
    """Return hyperparameters as a dictionary of their own."""
    if params is None:
        return {}
    return dict(vars(params)) if isinstance(params, Namespace) else dict(params)


def flatten(params: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested hyperparameters into ``{"outer/inner": value}``; a value is a number, a bool or a string.

    Args:
        params: by name; mappings, namespaces and dataclasses in it are nested ones.
        prefix: what the keys begin with.
    """
    flat: dict[str, Any] = {}
    for name, value in params.items():
        key = f"{prefix}{name}"
        inner = plain(value)
        if isinstance(inner, dict):
            flat.update(flatten(inner, f"{key}/"))
        else:
            flat[key] = inner if isinstance(inner, (bool, int, float, str)) else str(inner)
    return flat


def plain(value: Any) -> Any:
    """Return ``value`` as None, bool, number, string, or list and dictionary of such.

    Tensors and arrays of one element become numbers; what has no plain form (a module, a function) becomes a string.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)  # subclasses, like numpy's, have no YAML form
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Namespace):
        value = vars(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_plain_key(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(inner) for inner in value]
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else str(value)
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    if hasattr(value, "item") and getattr(value, "size", None) == 1:
        return plain(value.item())
    return str(value)


def write_yaml(path: str, params: Mapping[str, Any]) -> None:
    """Write hyperparameters to a YAML file that any reader can load, without tags of Python's own types."""
    import yaml

    replace_text(path, yaml.safe_dump(plain(params), sort_keys=True, allow_unicode=True) if params else "{}\n")


def _plain_key(key: Any) -> Any:
    return key if isinstance(key, (str, int, float, bool)) or key is None else str(key)
