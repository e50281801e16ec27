"""Progress of a run: bars in a terminal, plain lines everywhere else."""

from unstuck.callbacks.progress.progress_bar import ProgressBar
from unstuck.callbacks.progress.rich_display import RichProgressBarTheme
from unstuck.callbacks.progress.rich_progress import RichProgressBar
from unstuck.callbacks.progress.tqdm_progress import TQDMProgressBar

__all__ = ["ProgressBar", "RichProgressBar", "RichProgressBarTheme", "TQDMProgressBar"]
