"""Which hooks may log, at which level, and at which level they log when the caller leaves it open."""

from __future__ import annotations

from typing import NamedTuple

from unstuck.errors import MisconfigurationException

__all__ = ["LOGGING_LEVELS", "LoggingLevels", "resolve_levels"]


class LoggingLevels(NamedTuple):
    """What one hook may do, and does by default."""

    on_step_allowed: bool
    on_epoch_required: bool
    default_on_step: bool
    default_on_epoch: bool


_STEP = LoggingLevels(on_step_allowed=True, on_epoch_required=False, default_on_step=True, default_on_epoch=False)
_EVALUATION_STEP = LoggingLevels(
    on_step_allowed=True, on_epoch_required=False, default_on_step=False, default_on_epoch=True
)
_EPOCH = LoggingLevels(on_step_allowed=False, on_epoch_required=True, default_on_step=False, default_on_epoch=True)

# A hook that isn't listed can't log.
LOGGING_LEVELS: dict[str, LoggingLevels] = {
    **dict.fromkeys(
        (
            "training_step",
            "on_train_batch_start",
            "on_train_batch_end",
            "on_before_backward",
            "backward",
            "on_after_backward",
            "on_before_optimizer_step",
            "optimizer_step",
            "configure_gradient_clipping",
            "clip_gradients",
            "on_before_zero_grad",
            "optimizer_zero_grad",
        ),
        _STEP,
    ),
    **dict.fromkeys(
        (
            "validation_step",
            "on_validation_batch_start",
            "on_validation_batch_end",
            "test_step",
            "on_test_batch_start",
            "on_test_batch_end",
        ),
        _EVALUATION_STEP,
    ),
    **dict.fromkeys(
        (
            "on_train_start",
            "on_train_epoch_start",
            "on_train_epoch_end",
            "on_validation_start",
            "on_validation_epoch_start",
            "on_validation_epoch_end",
            "on_test_start",
            "on_test_epoch_start",
            "on_test_epoch_end",
        ),
        _EPOCH,
    ),
}


def resolve_levels(hook: str | None, on_step: bool | None, on_epoch: bool | None) -> tuple[bool, bool]:
    """Return ``(on_step, on_epoch)`` for a value that ``hook`` logs, filling in what the caller left open.

    Args:
        hook: name of the hook that is running, None outside of the Trainer's control flow.
        on_step: the caller's wish, None for the hook's default.
        on_epoch: the caller's wish, None for the hook's default.

    Raises:
        MisconfigurationException: when the hook can't log, can't log at this level, or both levels are off.
    """
    if hook is None:
        raise MisconfigurationException(
            "`self.log()` was called while the Trainer runs no hook, so it can't be logged."
        )
    levels = LOGGING_LEVELS.get(hook)
    if levels is None:
        raise MisconfigurationException(f"`self.log()` can't be used in `{hook}`: no metrics are collected there.")
    step = levels.default_on_step if on_step is None else on_step
    epoch = levels.default_on_epoch if on_epoch is None else on_epoch
    if step and not levels.on_step_allowed:
        raise MisconfigurationException(
            f"`self.log(on_step=True)` can't be used in `{hook}`, which runs once an epoch."
        )
    if not epoch and levels.on_epoch_required:
        raise MisconfigurationException(
            f"`self.log(on_epoch=False)` can't be used in `{hook}`, which runs once an epoch."
        )
    if not step and not epoch:
        raise MisconfigurationException("`self.log(on_step=False, on_epoch=False)` would log nothing.")
    return step, epoch
