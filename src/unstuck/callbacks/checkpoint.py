"""The base class of callbacks that save checkpoints."""

from __future__ import annotations

from unstuck.callbacks.callback import Callback

__all__ = ["Checkpoint"]


class Checkpoint(Callback):
    """Marks a callback that saves: it runs after all others, so that what they change is in the checkpoint.

    The Trainer adds no :class:`~unstuck.callbacks.ModelCheckpoint` of its own where there is one of these.
    """
