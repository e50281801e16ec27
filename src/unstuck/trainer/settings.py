"""What a Trainer was told, as plain data for the loops."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from unstuck.trainer.config import LoopBounds
from unstuck.trainer.data.limits import BatchLimits

__all__ = ["Settings"]


@dataclass
class Settings:
    """The Trainer's keywords after they were checked. The loops only read it."""

    bounds: LoopBounds
    max_time: timedelta | None
    limits: BatchLimits
    check_val_every_n_epoch: int | None
    reload_dataloaders_every_n_epochs: int
    log_every_n_steps: int
    accumulate_grad_batches: int
    gradient_clip_val: float | None
    gradient_clip_algorithm: str | None
    inference_mode: bool
    detect_anomaly: bool | Literal["replay"]
    on_nonfinite: Literal["warn", "skip-step"]
    barebones: bool
    use_distributed_sampler: bool
    isolate_validation: bool
    enable_autolog_hparams: bool
