"""What an object holds, read without running any code of its class: no property, no ``__getattr__``."""

from __future__ import annotations

from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

__all__ = ["own_attributes"]


def own_attributes(value: object) -> dict[str, Any] | None:
    """The instance's ``__dict__`` itself; None if it has none, or its class puts something else in its place."""
    for kind in type(value).__mro__:
        descriptor = kind.__dict__.get("__dict__")
        if descriptor is not None:
            built_in = isinstance(descriptor, (GetSetDescriptorType, MemberDescriptorType))
            found = descriptor.__get__(value) if built_in else None
            return found if isinstance(found, dict) else None
    return None
