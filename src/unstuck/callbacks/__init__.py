"""Callbacks: code that runs at the Trainer's hooks without being part of the module."""

from unstuck.callbacks.callback import Callback
from unstuck.callbacks.early_stopping import EarlyStopping
from unstuck.callbacks.functions import LambdaCallback
from unstuck.callbacks.gradient_accumulation import GradientAccumulationScheduler
from unstuck.callbacks.learning_rate_monitor import LearningRateMonitor
from unstuck.callbacks.model_summary import ModelSummary, RichModelSummary
from unstuck.callbacks.progress import ProgressBar, RichProgressBar, RichProgressBarTheme
from unstuck.callbacks.timer import Timer

__all__ = [
    "Callback",
    "EarlyStopping",
    "GradientAccumulationScheduler",
    "LambdaCallback",
    "LearningRateMonitor",
    "ModelSummary",
    "ProgressBar",
    "RichModelSummary",
    "RichProgressBar",
    "RichProgressBarTheme",
    "Timer",
]
