"""The callbacks that a Trainer's arguments stand for: those that it is given, and those that it adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unstuck.callbacks.collection import callbacks_of_class, check_callbacks, check_state_keys, checkpoints_last
from unstuck.callbacks.model_checkpoint import ModelCheckpoint
from unstuck.callbacks.model_summary import RichModelSummary
from unstuck.callbacks.overfit_verdict import OverfitVerdict
from unstuck.callbacks.progress import RichProgressBar
from unstuck.errors import MisconfigurationException

__all__ = ["configure_callbacks"]


def configure_callbacks(
    callbacks: list[Any],
    *,
    enable_checkpointing: bool | None,
    enable_progress_bar: bool | None,
    enable_model_summary: bool | None,
    judge_overfit: bool,
) -> list[Any]:
    """Returns the callbacks that are meant, in the order in which they are called.

    Args:
        callbacks: those that were passed. Of what they have no one for, one is added.
        enable_checkpointing: whether checkpoints are saved; None and True are the same.
        enable_progress_bar: whether progress is shown; likewise.
        enable_model_summary: whether the layers are listed when a fit begins; likewise.
        judge_overfit: whether it is judged if the batches of an overfit were learnt.

    Raises:
        TypeError: something else than callbacks among them.
        NameClashError: two would save their state under one key.
        MisconfigurationException: a callback does what is switched off, or there are two progress bars.
    """
    check_callbacks(callbacks, "`Trainer(callbacks=...)`")
    check_state_keys(callbacks)
    complete = list(callbacks)
    _add(complete, "Checkpoint", "enable_checkpointing", enable_checkpointing, ModelCheckpoint)
    if len(callbacks_of_class(complete, "ProgressBar")) > 1:
        raise MisconfigurationException("The Trainer shows one progress bar; `callbacks` has several.")
    _add(complete, "ProgressBar", "enable_progress_bar", enable_progress_bar, RichProgressBar)
    _add(complete, "ModelSummary", "enable_model_summary", enable_model_summary, RichModelSummary)
    if judge_overfit and not callbacks_of_class(complete, "OverfitVerdict"):
        complete.append(OverfitVerdict())
    return checkpoints_last(complete)


def _add(callbacks: list[Any], name: str, keyword: str, enabled: bool | None, default: Callable[[], Any]) -> None:
    """Adds a callback where none of the class ``name`` is there and it isn't switched off.

    Raises:
        MisconfigurationException: there is one, and it is switched off.
    """
    own = callbacks_of_class(callbacks, name)
    if own and enabled is False:
        raise MisconfigurationException(
            f"`{keyword}=False` contradicts the {type(own[0]).__name__} in `callbacks`; leave one of them out."
        )
    if not own and enabled is not False:
        callbacks.append(default())
