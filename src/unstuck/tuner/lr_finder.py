"""The learning rate range test: one short training whose rate rises from step to step.

Method: L. N. Smith, "Cyclical Learning Rates for Training Neural Networks", WACV 2017, section 3.3.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unstuck.callbacks.callback import Callback
from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_warn

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FEWEST_STEPS", "SKIPPED_FIRST", "LRFinder", "RisingRate", "rates"]

SMOOTHING = 0.98
"""Weight of the past in the moving average of the loss, which is corrected for its start as Lightning corrects it."""

SKIPPED_FIRST, SKIPPED_LAST = 10, 1
"""Points of a test that don't count for a suggestion."""

FEWEST_STEPS = SKIPPED_FIRST + SKIPPED_LAST + 2
"""A slope needs two points."""


def rates(mode: str, min_lr: float, max_lr: float, num_training: int) -> list[float]:
    """The rate of every step of the test: ``exponential`` or ``linear`` from ``min_lr`` to ``max_lr``."""
    found = [min_lr]
    for step in range(2, num_training + 1):
        share = step / num_training
        rise = min_lr * (max_lr / min_lr) ** share if mode == "exponential" else min_lr + share * (max_lr - min_lr)
        found.append(rise)
    return found[:num_training]


class LRFinder:
    """What a range test has shown.

    Args:
        mode: ``exponential`` or ``linear``.
        lr_min: first rate.
        lr_max: last rate.
        num_training: steps.

    Attributes:
        results: ``lr``: the rate of each step; ``loss``: the smoothed loss there.
    """

    def __init__(self, mode: str, lr_min: float, lr_max: float, num_training: int) -> None:
        if mode not in ("exponential", "linear"):
            raise MisconfigurationException(f"`mode` must be 'exponential' or 'linear', got {mode!r}")
        self.mode = mode
        self.lr_min = lr_min
        self.lr_max = lr_max
        self.num_training = num_training
        self.results: dict[str, list[float]] = {"lr": [], "loss": []}
        self._optimal_idx: int | None = None

    def suggestion(self, skip_begin: int = SKIPPED_FIRST, skip_end: int = SKIPPED_LAST) -> float | None:
        """The rate at which the loss falls fastest per unit of the rate.

        Args:
            skip_begin: first points that don't count.
            skip_end: last points that don't count.

        Returns:
            The rate; None where fewer than two finite losses are left.
        """
        end = len(self.results["loss"]) - skip_end
        places = [index for index in range(skip_begin, end) if math.isfinite(self.results["loss"][index])]
        if len(places) < 2:
            rank_zero_warn(
                f"The learning rate finder can't suggest a rate: {len(places)} finite losses are left of "
                f"{len(self.results['loss'])} (skipped: {skip_begin} at the beginning, {skip_end} at the end). Give "
                "more `num_training` steps or a lower `min_lr`."
            )
            self._optimal_idx = None
            return None
        losses, at = ([self.results[key][index] for index in places] for key in ("loss", "lr"))
        slopes = np.gradient(np.array(losses), np.array(at))
        self._optimal_idx = places[int(np.argmin(slopes))]
        return self.results["lr"][self._optimal_idx]

    def plot(self, suggest: bool = False, show: bool = False, ax: Axes | None = None) -> Figure | Any:
        """Draw loss over rate.

        Args:
            suggest: mark the suggestion.
            show: show the figure.
            ax: axes to draw into; a figure of its own if left out.

        Returns:
            The figure.

        Raises:
            MisconfigurationException: matplotlib isn't installed.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise MisconfigurationException(
                "plotting needs matplotlib: pip install 'unstuck[plot]' (or matplotlib)"
            ) from error
        figure: Any
        if ax is None:
            figure, ax = plt.subplots()
        else:
            figure = ax.figure
        ax.plot(self.results["lr"], self.results["loss"])
        if self.mode == "exponential":
            ax.set_xscale("log")
        ax.set_xlabel("Learning rate")
        ax.set_ylabel("Loss")
        if suggest:
            self.suggestion()
            if self._optimal_idx is not None:
                place = self._optimal_idx
                ax.plot(self.results["lr"][place], self.results["loss"][place], markersize=10, marker="o", color="red")
        if show:
            plt.show()
        return figure


class RisingRate(Callback):
    """Sets the rate before every step and keeps the smoothed loss after it; ends the training where it explodes.

    Args:
        finder: where the results go.
        early_stop_threshold: times the lowest smoothed loss; None to go on to the end.

    Attributes:
        has_exploded: whether that has ended the test.
    """

    def __init__(self, finder: LRFinder, early_stop_threshold: float | None) -> None:
        self._finder = finder
        self._threshold = early_stop_threshold
        self._rates = rates(finder.mode, finder.lr_min, finder.lr_max, finder.num_training)
        self._average = 0.0
        self._lowest = math.inf
        self.has_exploded = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Schedules of the module's own would move the rate as well."""
        if len(trainer.optimizers) != 1:
            raise MisconfigurationException(
                f"the learning rate finder works with a single optimizer; `configure_optimizers` returned "
                f"{len(trainer.optimizers)}"
            )
        trainer.strategy.lr_scheduler_configs = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Set the rate."""
        step = min(trainer.global_step, len(self._rates) - 1)
        for group in trainer.optimizers[0].param_groups:
            group["lr"] = self._rates[step]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Keep the loss of a step that was taken."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches != 0:
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is None:
            return
        taken = len(self._finder.results["loss"]) + 1
        self._average = SMOOTHING * self._average + (1 - SMOOTHING) * float(loss)
        smoothed = self._average / (1 - SMOOTHING ** (taken + 1))
        self._finder.results["lr"].append(self._rates[min(taken, len(self._rates)) - 1])
        self._finder.results["loss"].append(smoothed)
        if self._threshold is not None and taken > 1 and smoothed > self._threshold * self._lowest:
            trainer.should_stop = self.has_exploded = True
        if smoothed < self._lowest or taken == 1:
            self._lowest = smoothed
