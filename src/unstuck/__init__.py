"""unstuck finds out why a PyTorch training doesn't learn or blows up, and says where and what to do about it."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
