"""What a watched run leaves behind: plain numbers and places, written as they come. No torch."""

from __future__ import annotations
