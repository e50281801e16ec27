"""Callbacks that tune the learning rate or the batch size before a fit begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unstuck.callbacks.callback import Callback

if TYPE_CHECKING:
    from unstuck.tuner.lr_finder import LRFinder

__all__ = ["BatchSizeFinder", "LearningRateFinder"]


class LearningRateFinder(Callback):
    """Runs the range test of :meth:`unstuck.tuner.Tuner.lr_find` when a fit is set up.

    Args:
        min_lr: first rate.
        max_lr: last rate.
        num_training_steps: steps of the test.
        mode: ``exponential`` or ``linear``.
        early_stop_threshold: end where the smoothed loss is so many times the lowest; None: never.
        update_attr: write the suggestion into the module's attribute.
        attr_name: its name.

    Attributes:
        optimal_lr: what the test has shown, None before.
    """

    def __init__(
        self,
        min_lr: float = 1e-8,
        max_lr: float = 1,
        num_training_steps: int = 100,
        mode: str = "exponential",
        early_stop_threshold: float | None = 4.0,
        update_attr: bool = True,
        attr_name: str = "",
    ) -> None:
        self._options: dict[str, Any] = {
            "min_lr": min_lr,
            "max_lr": max_lr,
            "num_training": num_training_steps,
            "mode": mode,
            "early_stop_threshold": early_stop_threshold,
            "update_attr": update_attr,
            "attr_name": attr_name,
        }
        self.optimal_lr: LRFinder | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before the optimisers are made, so that they get the rate."""
        if stage == "fit":
            from unstuck.tuner.tuner import Tuner

            self.optimal_lr = Tuner(trainer).lr_find(pl_module, **_data_of(trainer), **self._options)


class BatchSizeFinder(Callback):
    """Searches for the largest batch size, as :meth:`unstuck.tuner.Tuner.scale_batch_size`, when a run is set up.

    Args:
        mode: ``power`` or ``binsearch``.
        steps_per_trial: batches of a trial.
        init_val: first size.
        max_trials: sizes that are tried.
        batch_arg_name: attribute of the module, its ``hparams`` or the data module.
        margin: share that is kept free, for ``binsearch``.
        max_val: largest size that is tried.

    Attributes:
        optimal_batch_size: the size that was found, None before.
    """

    def __init__(
        self,
        mode: str = "power",
        steps_per_trial: int = 3,
        init_val: int = 2,
        max_trials: int = 25,
        batch_arg_name: str = "batch_size",
        margin: float = 0.05,
        max_val: int = 8192,
    ) -> None:
        self._options: dict[str, Any] = {
            "mode": mode,
            "steps_per_trial": steps_per_trial,
            "init_val": init_val,
            "max_trials": max_trials,
            "batch_arg_name": batch_arg_name,
            "margin": margin,
            "max_val": max_val,
        }
        self.optimal_batch_size: int | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before the loaders are asked for."""
        from unstuck.tuner.tuner import Tuner

        data = _data_of(trainer)
        given = {"train_dataloaders": data.get("train_dataloaders"), "datamodule": data.get("datamodule")}
        self.optimal_batch_size = Tuner(trainer).scale_batch_size(pl_module, method=stage, **given, **self._options)  # type: ignore[arg-type]


def _data_of(trainer: Any) -> dict[str, Any]:
    """The training data that were given to the run."""
    run = trainer._run
    return {"train_dataloaders": run.train.source.given, "datamodule": trainer.datamodule}
