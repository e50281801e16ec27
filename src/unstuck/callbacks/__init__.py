"""Callbacks: code that runs at the Trainer's hooks without being part of the module."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unstuck.callbacks.callback import Callback
    from unstuck.callbacks.checkpoint import Checkpoint
    from unstuck.callbacks.device_stats import DeviceStatsMonitor
    from unstuck.callbacks.early_stopping import EarlyStopping
    from unstuck.callbacks.finetuning import BackboneFinetuning, BaseFinetuning
    from unstuck.callbacks.functions import LambdaCallback
    from unstuck.callbacks.gradient_accumulation import GradientAccumulationScheduler
    from unstuck.callbacks.gradient_monitor import GradientMonitor
    from unstuck.callbacks.learning_rate_monitor import LearningRateMonitor
    from unstuck.callbacks.model_checkpoint import ModelCheckpoint
    from unstuck.callbacks.model_summary import ModelSummary, RichModelSummary
    from unstuck.callbacks.on_exception_checkpoint import OnExceptionCheckpoint
    from unstuck.callbacks.overfit_verdict import OverfitVerdict
    from unstuck.callbacks.prediction_writer import BasePredictionWriter
    from unstuck.callbacks.progress import (
        ProgressBar,
        RichProgressBar,
        RichProgressBarTheme,
        TQDMProgressBar,
    )
    from unstuck.callbacks.stochastic_weight_averaging import StochasticWeightAveraging
    from unstuck.callbacks.throughput_monitor import ThroughputMonitor
    from unstuck.callbacks.timer import Timer
    from unstuck.callbacks.tuning import BatchSizeFinder, LearningRateFinder
from unstuck.callbacks.weight_averaging import (
    EMAWeightAveraging,
    WeightAveraging,
)

__all__ = [
    "BackboneFinetuning",
    "BaseFinetuning",
    "BasePredictionWriter",
    "BatchSizeFinder",
    "Callback",
    "Checkpoint",
    "DeviceStatsMonitor",
    "EMAWeightAveraging",
    "EarlyStopping",
    "GradientAccumulationScheduler",
    "GradientMonitor",
    "LambdaCallback",
    "LearningRateFinder",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "ModelSummary",
    "OnExceptionCheckpoint",
    "OverfitVerdict",
    "ProgressBar",
    "RichModelSummary",
    "RichProgressBar",
    "RichProgressBarTheme",
    "StochasticWeightAveraging",
    "TQDMProgressBar",
    "ThroughputMonitor",
    "Timer",
    "WeightAveraging",
]

# Where a name lives. It is imported when it is asked for: most runs use few of them.
_HOMES = {
    "BackboneFinetuning": "unstuck.callbacks.finetuning",
    "BaseFinetuning": "unstuck.callbacks.finetuning",
    "BatchSizeFinder": "unstuck.callbacks.tuning",
    "BasePredictionWriter": "unstuck.callbacks.prediction_writer",
    "Callback": "unstuck.callbacks.callback",
    "Checkpoint": "unstuck.callbacks.checkpoint",
    "DeviceStatsMonitor": "unstuck.callbacks.device_stats",
    "EMAWeightAveraging": "unstuck.callbacks.weight_averaging",
    "EarlyStopping": "unstuck.callbacks.early_stopping",
    "GradientAccumulationScheduler": "unstuck.callbacks.gradient_accumulation",
    "GradientMonitor": "unstuck.callbacks.gradient_monitor",
    "LambdaCallback": "unstuck.callbacks.functions",
    "LearningRateFinder": "unstuck.callbacks.tuning",
    "LearningRateMonitor": "unstuck.callbacks.learning_rate_monitor",
    "ModelCheckpoint": "unstuck.callbacks.model_checkpoint",
    "ModelSummary": "unstuck.callbacks.model_summary",
    "OnExceptionCheckpoint": "unstuck.callbacks.on_exception_checkpoint",
    "OverfitVerdict": "unstuck.callbacks.overfit_verdict",
    "ProgressBar": "unstuck.callbacks.progress",
    "RichModelSummary": "unstuck.callbacks.model_summary",
    "RichProgressBar": "unstuck.callbacks.progress",
    "RichProgressBarTheme": "unstuck.callbacks.progress",
    "StochasticWeightAveraging": "unstuck.callbacks.stochastic_weight_averaging",
    "TQDMProgressBar": "unstuck.callbacks.progress",
    "ThroughputMonitor": "unstuck.callbacks.throughput_monitor",
    "Timer": "unstuck.callbacks.timer",
    "WeightAveraging": "unstuck.callbacks.weight_averaging",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
