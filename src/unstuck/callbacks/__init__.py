"""Callbacks: code that runs at the Trainer's hooks without being part of the module."""

from unstuck.callbacks.callback import Callback
from unstuck.callbacks.functions import LambdaCallback
from unstuck.callbacks.progress import ProgressBar, RichProgressBar, RichProgressBarTheme

__all__ = ["Callback", "LambdaCallback", "ProgressBar", "RichProgressBar", "RichProgressBarTheme"]
