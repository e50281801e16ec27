"""Saves what there is when a run ends with an exception."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from unstuck.callbacks.checkpoint import Checkpoint
from unstuck.loggers.files import filesystem_of, join

if TYPE_CHECKING:
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["OnExceptionCheckpoint"]


class OnExceptionCheckpoint(Checkpoint):
    """Saves a checkpoint at an exception, over the one before; a run that ends well takes it away.

    Args:
        dirpath: directory of the checkpoint, also a URL that fsspec understands.
        filename: its name, without ending.

    Raises:
        ValueError: an empty ``filename``.
    """

    FILE_EXTENSION = ".ckpt"

    def __init__(self, dirpath: str | Path, filename: str = "on_exception") -> None:
        if not filename:
            raise ValueError("`OnExceptionCheckpoint(filename=...)` should be a name.")
        self.dirpath = dirpath
        self.filename = filename

    @property
    def ckpt_path(self) -> str:
        """The checkpoint's path."""
        return join(os.fspath(self.dirpath), self.filename + self.FILE_EXTENSION)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        trainer.save_checkpoint(self.ckpt_path)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        filesystem, inner = filesystem_of(self.ckpt_path)
        if trainer.is_global_zero and filesystem.exists(inner):
            filesystem.rm(inner)
