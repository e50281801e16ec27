"""What a Trainer was told: its keywords, checked once, then plain data for the loops."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from unstuck.messages import rank_zero_info
from unstuck.trainer.config import (
    LoopBounds,
    check_clipping,
    check_count,
    check_on_nonfinite,
    parse_accumulation,
    parse_detect_anomaly,
    parse_loop_bounds,
    parse_max_time,
)
from unstuck.trainer.data.limits import BatchLimits, Overfit, parse_batch_limits, parse_check_val_every_n_epoch

__all__ = ["Settings", "announce", "read_settings"]

_LOG_EVERY_N_STEPS = 50


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


def read_settings(
    *,
    min_epochs: int | None,
    max_epochs: int | None,
    min_steps: int | None,
    max_steps: int,
    max_time: str | timedelta | dict[str, int] | None,
    limit_train_batches: int | float | None,
    limit_val_batches: int | float | None,
    limit_test_batches: int | float | None,
    limit_predict_batches: int | float | None,
    overfit_batches: int | float | Overfit,
    val_check_interval: Any,
    check_val_every_n_epoch: int | None,
    num_sanity_val_steps: int | None,
    fast_dev_run: int | bool,
    reload_dataloaders_every_n_epochs: int,
    log_every_n_steps: int | None,
    accumulate_grad_batches: int,
    gradient_clip_val: int | float | None,
    gradient_clip_algorithm: str | None,
    inference_mode: bool,
    detect_anomaly: bool | str,
    on_nonfinite: str,
    barebones: bool,
    use_distributed_sampler: bool,
    isolate_validation: bool,
    enable_autolog_hparams: bool,
) -> Settings:
    """Checks the Trainer's keywords of these names and fills in what follows from them.

    Raises:
        MisconfigurationException: a value or a combination can't work.
        TypeError: a value of the wrong type.
    """
    check_count("log_every_n_steps", log_every_n_steps, optional=True)
    check_count("reload_dataloaders_every_n_epochs", reload_dataloaders_every_n_epochs)
    limits = parse_batch_limits(
        limit_train_batches=limit_train_batches,
        limit_val_batches=limit_val_batches,
        limit_test_batches=limit_test_batches,
        limit_predict_batches=limit_predict_batches,
        overfit_batches=overfit_batches,
        val_check_interval=val_check_interval,
        check_val_every_n_epoch=check_val_every_n_epoch,
        num_sanity_val_steps=num_sanity_val_steps,
        fast_dev_run=fast_dev_run,
    )
    every_n_epochs = parse_check_val_every_n_epoch(check_val_every_n_epoch)
    if limits.fast_dev_run:
        max_epochs, max_steps, every_n_epochs = 1, limits.fast_dev_run, 1
    duration = parse_max_time(max_time)
    bounds = parse_loop_bounds(min_epochs, max_epochs, min_steps, max_steps, duration is not None)
    clip_algorithm = check_clipping(gradient_clip_val, gradient_clip_algorithm)
    return Settings(
        bounds=bounds,
        max_time=duration,
        limits=limits,
        check_val_every_n_epoch=every_n_epochs,
        reload_dataloaders_every_n_epochs=reload_dataloaders_every_n_epochs,
        log_every_n_steps=_LOG_EVERY_N_STEPS if log_every_n_steps is None else log_every_n_steps,
        accumulate_grad_batches=parse_accumulation(accumulate_grad_batches),
        gradient_clip_val=gradient_clip_val,
        gradient_clip_algorithm=clip_algorithm,
        inference_mode=inference_mode,
        detect_anomaly=parse_detect_anomaly(detect_anomaly),
        on_nonfinite=check_on_nonfinite(on_nonfinite, barebones),
        barebones=barebones,
        use_distributed_sampler=use_distributed_sampler,
        isolate_validation=isolate_validation,
        enable_autolog_hparams=enable_autolog_hparams,
    )


def announce(settings: Settings) -> None:
    """Tells what was read in which way and what is off."""
    for note in settings.limits.notes:
        rank_zero_info(note)
    if settings.limits.overfit is not None and settings.reload_dataloaders_every_n_epochs:
        rank_zero_info(
            "`overfit_batches` keeps its batches over all epochs, so `reload_dataloaders_every_n_epochs` is off."
        )
    if settings.barebones:
        rank_zero_info(
            "`Trainer(barebones=True)`: checkpoints, loggers, `self.log`, progress bar, model summary, sanity check,"
            " anomaly detection and profiler are off."
        )
    elif settings.limits.fast_dev_run:
        rank_zero_info(
            f"`Trainer(fast_dev_run={settings.limits.fast_dev_run})`: one epoch of at most so many batches for each"
            " loop and a validation at its end, whatever lengths, limits and intervals are set. Off: loggers,"
            " checkpoints, early stopping, the sanity check."
        )
    if settings.detect_anomaly is True:
        rank_zero_info(
            "`Trainer(detect_anomaly=True)`: torch records the forward pass to explain NaN in backward, which makes"
            " training several times slower. Switch it off when you have found it."
        )
