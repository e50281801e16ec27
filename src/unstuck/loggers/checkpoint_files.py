"""Which files of a checkpoint callback a logger hasn't seen yet."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["CheckpointFile", "describe", "new_checkpoint_files"]

SETTINGS = ("monitor", "mode", "save_last", "save_top_k", "save_weights_only")


@dataclass(frozen=True)
class CheckpointFile:
    """A checkpoint on disk.

    Attributes:
        path: where it is.
        written: when it was, in seconds since the epoch.
        score: value of the metric that the callback watches, None without one.
        aliases: ``"latest"``, ``"best"`` or both.
    """

    path: str
    written: float
    score: float | None
    aliases: tuple[str, ...]


def new_checkpoint_files(callback: Any, seen: dict[str, float]) -> list[CheckpointFile]:
    """Return the files that a checkpoint callback has written, oldest first, and remember them.

    Args:
        callback: a ``ModelCheckpoint``.
        seen: when a file was written that was returned before, by path; filled in here.
    """
    scores: dict[str, Any] = dict(getattr(callback, "best_k_models", {}))
    scores.setdefault(callback.best_model_path, callback.best_model_score)
    scores.setdefault(callback.last_model_path, getattr(callback, "current_score", None))
    found = []
    for path, score in scores.items():
        if not path or not os.path.exists(path):
            continue
        written = os.path.getmtime(path)
        if seen.get(path) == written:
            continue
        aliases = ("latest", "best") if path == callback.best_model_path else ("latest",)
        number = float(score) if isinstance(score, (torch.Tensor, int, float)) else None
        found.append(CheckpointFile(path, written, number, aliases))
        seen[path] = written
    return sorted(found, key=lambda file: file.written)


def describe(file: CheckpointFile, callback: Any) -> dict[str, Any]:
    """Return what is to be known of a checkpoint beside its content, as plain data."""
    settings = {name: getattr(callback, name) for name in SETTINGS if hasattr(callback, name)}
    return {
        "score": file.score,
        "original_filename": os.path.basename(file.path),
        type(callback).__name__: settings,
    }
