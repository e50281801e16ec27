"""Measuring with tensors: each function one quantity, as cheap as torch allows, with no state of its own."""

from __future__ import annotations
