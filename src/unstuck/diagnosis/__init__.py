"""From measurements to causes: rules, their remedies, and what is said about them."""

from __future__ import annotations
