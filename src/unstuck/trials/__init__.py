"""Experiments on the live training: a step run again, traced or changed, and everything put back afterwards."""

from __future__ import annotations
