"""Which file ``ckpt_path`` means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from unstuck.errors import CheckpointError
from unstuck.messages import rank_zero_info, rank_zero_warn
from unstuck.trainer.checkpoints.files import is_whole, leads_nowhere, list_files, newest

__all__ = ["select_path"]


def select_path(
    ckpt_path: str | Path | None,
    method: str,
    callbacks: list[Any],
    *,
    has_model: bool,
    fast_dev_run: bool,
    trainer: Any,
) -> str | None:
    """The path of the checkpoint to load.

    Args:
        ckpt_path: as given: a path, "best" or "last".
        method: the Trainer's method, for messages.
        callbacks: those that save checkpoints.
        has_model: whether a module was passed; without one an evaluation uses the best weights of the fit before.
        fast_dev_run: whether this is a dry run, which saves none.
        trainer: asked by the callbacks for folders.

    Returns:
        The path, None to load nothing.

    Raises:
        ValueError: "best" without a callback that could know it, or "hpc".
        ValueError: "best", but nothing was saved.
        CheckpointError: "last" is a link to a file that is gone, with no other one beside it.
    """
    call = f"`Trainer.{method}(ckpt_path={(str(ckpt_path) if isinstance(ckpt_path, Path) else ckpt_path)!r})`"
    if ckpt_path is None:
        if has_model or method == "fit":
            return None
        best = _best_of(callbacks)
        if best is None:
            return None
        rank_zero_info(f"{call} was called without a module: the best weights of the fit before are loaded ({best}).")
        return best
    if ckpt_path == "best":
        return _require_best(callbacks, call, fast_dev_run)
    if ckpt_path == "last":
        return _find_last(callbacks, call, trainer)
    if ckpt_path == "hpc":
        raise ValueError(
            f"{call}: checkpoints that a cluster's scheduler asks for aren't available. Save one when the job is ended"
            " (`ModelCheckpoint(save_on_exception=True, save_last=True)`) and pass its path, or 'last'."
        )
    if str(ckpt_path).startswith("registry"):
        raise ValueError(f"{call}: model registries aren't available. Pass a path.")
    if not isinstance(ckpt_path, (str, os.PathLike)):
        raise TypeError(f"{call}: should be a path, 'best' or 'last', got {ckpt_path!r}.")
    return os.fspath(ckpt_path)


def _best_of(callbacks: list[Any]) -> str | None:
    paths = [str(path) for callback in callbacks if (path := getattr(callback, "best_model_path", ""))]
    return paths[0] if paths else None


def _require_best(callbacks: list[Any], call: str, fast_dev_run: bool) -> str:
    if not callbacks:
        raise ValueError(f"{call}: no `ModelCheckpoint` is configured that could know the best checkpoint.")
    if len(callbacks) > 1:
        rank_zero_warn(f"{call}: there are {len(callbacks)} checkpoint callbacks; the first one says which is best.")
    best = getattr(callbacks[0], "best_model_path", "")
    if best:
        return str(best)
    if fast_dev_run:
        raise ValueError(f"{call}: a dry run (`fast_dev_run`) saves no checkpoint. Pass a path.")
    raise ValueError(
        f"{call}: nothing was saved yet that could be the best. Run a fit first, with"
        f" `{type(callbacks[0]).__name__}(save_top_k=...)` other than 0."
    )


def _find_last(callbacks: list[Any], call: str, trainer: Any) -> str | None:
    candidates: list[str] = []
    for callback in callbacks:
        find = getattr(callback, "_find_last_checkpoints", None)
        if find is not None:
            candidates += sorted(map(str, find(trainer)))
        path = getattr(callback, "last_model_path", "")
        if path:
            candidates.append(str(path))
    last = newest(candidates)
    if last is not None and leads_nowhere(last):
        return _instead_of(last, call)
    if last is None:
        rank_zero_warn(
            f"{call}: there is no last checkpoint, so none is loaded. `ModelCheckpoint(save_last=True)` keeps one."
        )
    return last


def _instead_of(link: str, call: str) -> str:
    """The newest checkpoint beside a link that leads nowhere.

    Raises:
        CheckpointError: there is none.
    """
    beside = [path for path in list_files(os.path.dirname(link) or ".") if "-nonfinite" not in path and is_whole(path)]
    found = newest(beside)
    if found is None:
        raise CheckpointError(
            f"{call}: {link!r} is a link to {os.readlink(link)!r}, which is gone, and there is no other checkpoint"
            " beside it. Remove the link to begin anew, or pass a path."
        )
    rank_zero_warn(
        f"{call}: {link!r} is a link to {os.readlink(link)!r}, which is gone. The newest checkpoint beside it is taken:"
        f" {found!r}."
    )
    return found
