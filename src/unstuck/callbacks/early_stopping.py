"""Ends a fit when a metric has stopped getting better."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unstuck.callbacks.callback import Callback
from unstuck.errors import MisconfigurationException
from unstuck.messages import log, rank_zero_info, rank_zero_warn

if TYPE_CHECKING:
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["EarlyStopping", "EarlyStoppingReason"]


class EarlyStoppingReason(Enum):
    """Why a fit was ended."""

    NOT_STOPPED = 0
    STOPPING_THRESHOLD = 1
    DIVERGENCE_THRESHOLD = 2
    PATIENCE_EXHAUSTED = 3
    NON_FINITE_METRIC = 4


class EarlyStopping(Callback):
    """Watches a metric and ends the fit when it hasn't improved for some checks.

    Args:
        monitor: name of a logged metric.
        min_delta: a change of no more than this (without sign) is no improvement.
        patience: checks without improvement after which the fit ends. A check is a validation, or an epoch where
            ``check_on_train_epoch_end`` says so.
        verbose: whether improvements, and what goes wrong in a check, are told. Why the fit ends is always told.
        mode: ``"min"`` if smaller is better, ``"max"`` if larger is.
        strict: whether a missing metric is an error; otherwise the check is left out.
        check_finite: whether a metric that is NaN or infinite ends the fit.
        stopping_threshold: a metric better than this ends the fit: it is good enough.
        divergence_threshold: a metric worse than this ends the fit: it won't recover.
        check_on_train_epoch_end: check at the end of each training epoch instead of each validation; None: there, if
            the fit validates once in every epoch.
        log_rank_zero_only: whether only the first process tells; else all do, with their rank.

    Attributes:
        best_score: the best value so far; always finite once there was one.
        wait_count: checks since then.
        stopped_epoch: epoch in which the fit was ended, 0 if it wasn't.
        stopping_reason: why it was ended.
        stopping_reason_message: the same in words, with the epoch.

    Raises:
        MisconfigurationException: an unknown ``mode``.
        RuntimeError: at a check, a metric that isn't there.
    """

    mode_dict: Mapping[str, Callable[..., Tensor]] = {"min": torch.lt, "max": torch.gt}
    order_dict: Mapping[str, str] = {"min": "<", "max": ">"}

    def __init__(
        self,
        monitor: str,
        min_delta: float = 0.0,
        patience: int = 3,
        verbose: bool = False,
        mode: str = "min",
        strict: bool = True,
        check_finite: bool = True,
        stopping_threshold: float | None = None,
        divergence_threshold: float | None = None,
        check_on_train_epoch_end: bool | None = None,
        log_rank_zero_only: bool = False,
    ) -> None:
        if mode not in self.mode_dict:
            raise MisconfigurationException(f"`EarlyStopping(mode={mode!r})` should be 'min' or 'max'.")
        self.monitor = monitor
        self.min_delta = min_delta if mode == "max" else -min_delta
        self.patience = patience
        self.verbose = verbose
        self.mode = mode
        self.strict = strict
        self.check_finite = check_finite
        self.stopping_threshold = stopping_threshold
        self.divergence_threshold = divergence_threshold
        self.log_rank_zero_only = log_rank_zero_only
        self.wait_count = 0
        self.stopped_epoch = 0
        self.stopping_reason = EarlyStoppingReason.NOT_STOPPED
        self.stopping_reason_message: str | None = None
        self.best_score = torch.tensor(math.inf if mode == "min" else -math.inf)
        self._check_on_train_epoch_end = check_on_train_epoch_end

    @property
    def state_key(self) -> str:
        return self._generate_state_key(monitor=self.monitor, mode=self.mode)

    @property
    def monitor_op(self) -> Callable[..., Tensor]:
        """Tells whether the first value is better than the second."""
        return self.mode_dict[self.mode]

    def state_dict(self) -> dict[str, Any]:
        return {
            "wait_count": self.wait_count,
            "stopped_epoch": self.stopped_epoch,
            "best_score": self.best_score,
            "patience": self.patience,
            "stopping_reason": self.stopping_reason.value,
            "stopping_reason_message": self.stopping_reason_message,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.wait_count = state_dict["wait_count"]
        self.stopped_epoch = state_dict["stopped_epoch"]
        self.best_score = state_dict["best_score"]
        self.patience = state_dict["patience"]
        self.stopping_reason = EarlyStoppingReason(state_dict.get("stopping_reason", 0))
        self.stopping_reason_message = state_dict.get("stopping_reason_message")

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._check_on_train_epoch_end is None:
            once_per_epoch = trainer.val_check_interval == 1.0 and trainer.check_val_every_n_epoch == 1
            self._check_on_train_epoch_end = once_per_epoch

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._check_on_train_epoch_end and not _is_no_fit(trainer):
            self._check(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._check_on_train_epoch_end and not _is_no_fit(trainer):
            self._check(trainer)

    def _check(self, trainer: Trainer) -> None:
        if trainer.fast_dev_run:
            return
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            self._miss(list(metrics))
            return
        reason, text = self._judge(torch.as_tensor(metrics[self.monitor]).squeeze())
        stops = trainer.strategy.reduce_boolean_decision(reason is not None, all=False)
        if stops:
            trainer.should_stop = True
            self.stopped_epoch = trainer.current_epoch
            if reason is not None:
                self.stopping_reason = reason
                self.stopping_reason_message = f"Epoch {trainer.current_epoch}: {text}"
        if text and reason is not None:
            self._tell(trainer, f"EarlyStopping ends the fit. Epoch {trainer.current_epoch}: {text}")
        elif text and self.verbose:
            self._tell(trainer, text)

    def _judge(self, current: Tensor) -> tuple[EarlyStoppingReason | None, str | None]:
        """Why the fit is to end, None if it isn't; and something to tell."""
        better, order, value = self.monitor_op, self.order_dict[self.mode], f"{self.monitor} = {current.item():.6g}"
        if self.check_finite and not torch.isfinite(current):
            return EarlyStoppingReason.NON_FINITE_METRIC, f"{value} isn't finite; the best was {self._best()}."
        if self.stopping_threshold is not None and better(current, self.stopping_threshold):
            text = f"{value} {order} {self.stopping_threshold}, the threshold to stop at."
            return EarlyStoppingReason.STOPPING_THRESHOLD, text
        if self.divergence_threshold is not None and better(-current, -self.divergence_threshold):
            text = f"{value} has left {self.divergence_threshold}, the threshold of divergence; the best was"
            return EarlyStoppingReason.DIVERGENCE_THRESHOLD, f"{text} {self._best()}."
        if better(current - self.min_delta, self.best_score.to(current.device)):
            text = f"{value} is better than {self._best()}."
            self.best_score, self.wait_count = current, 0
            return None, text
        self.wait_count += 1
        if self.wait_count < self.patience:
            return None, None
        text = f"{self.monitor} didn't improve in {self.wait_count} checks; the best was {self._best()}."
        return EarlyStoppingReason.PATIENCE_EXHAUSTED, text

    def _best(self) -> str:
        return f"{self.best_score.item():.6g}" if torch.isfinite(self.best_score) else "none yet"

    def _miss(self, available: list[str]) -> None:
        text = f"`EarlyStopping(monitor={self.monitor!r})`: there is no such metric; there are {sorted(available)}."
        if self.strict:
            raise RuntimeError(text)
        if self.verbose:
            rank_zero_warn(text, RuntimeWarning)

    def _tell(self, trainer: Trainer, text: str) -> None:
        if self.log_rank_zero_only or trainer.world_size <= 1:
            rank_zero_info(text)
        else:
            log.info("[rank %d] %s", trainer.global_rank, text)


def _is_no_fit(trainer: Trainer) -> bool:
    return trainer.state.fn != "fit" or trainer.sanity_checking
