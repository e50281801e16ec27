"""Callbacks: code that runs at the Trainer's hooks without being part of the module."""

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
from unstuck.callbacks.overfit_verdict import OverfitVerdict
from unstuck.callbacks.prediction_writer import BasePredictionWriter
from unstuck.callbacks.progress import ProgressBar, RichProgressBar, RichProgressBarTheme, TQDMProgressBar
from unstuck.callbacks.stochastic_weight_averaging import StochasticWeightAveraging
from unstuck.callbacks.throughput_monitor import ThroughputMonitor
from unstuck.callbacks.timer import Timer
from unstuck.callbacks.weight_averaging import EMAWeightAveraging, WeightAveraging

__all__ = [
    "BackboneFinetuning",
    "BaseFinetuning",
    "BasePredictionWriter",
    "Callback",
    "Checkpoint",
    "DeviceStatsMonitor",
    "EMAWeightAveraging",
    "EarlyStopping",
    "GradientAccumulationScheduler",
    "GradientMonitor",
    "LambdaCallback",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "ModelSummary",
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
