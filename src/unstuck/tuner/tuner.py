"""``Tuner(trainer).lr_find`` and ``scale_batch_size``."""

from __future__ import annotations

import math
from typing import Any, Literal

from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_info, rank_zero_warn
from unstuck.trainer.trainer import Trainer
from unstuck.tuner.batch_size import free_memory, is_out_of_memory, largest_size
from unstuck.tuner.lr_finder import FEWEST_STEPS, SKIPPED_FIRST, LRFinder, RisingRate
from unstuck.tuner.trial import copied_module, run_trial

__all__ = ["Tuner"]

Method = Literal["fit", "validate", "test", "predict"]
_METHODS = ("fit", "validate", "test", "predict")
_RATE_NAMES = ("lr", "learning_rate")


class Tuner:
    """Tries out learning rates and batch sizes with a Trainer's settings; the Trainer stays as it is.

    Args:
        trainer: the Trainer.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def lr_find(
        self,
        model: Any,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        dataloaders: Any = None,
        datamodule: Any = None,
        method: Method = "fit",
        min_lr: float = 1e-8,
        max_lr: float = 1,
        num_training: int = 100,
        mode: str = "exponential",
        early_stop_threshold: float | None = 4.0,
        update_attr: bool = True,
        attr_name: str = "",
    ) -> LRFinder | None:
        """Train a copy of the module for some steps with a rising rate.

        It ends after ``num_training`` steps, where the loss explodes, or, as in Lightning, after the Trainer's
        ``max_epochs``, whichever comes first; a warning tells of the last.

        Args:
            model: the module; nothing but its rate attribute is changed.
            train_dataloaders: training data, or a data module.
            val_dataloaders: not needed.
            dataloaders: not used by ``fit``.
            datamodule: a data module.
            method: ``fit`` is the only one.
            min_lr: first rate, positive.
            max_lr: last rate, larger than the first.
            num_training: steps. For a suggestion 13 are needed: the first 10 and the last don't count.
            mode: ``exponential`` or ``linear``.
            early_stop_threshold: end where the smoothed loss is so many times the lowest; None: never.
            update_attr: write the suggestion into the module's attribute.
            attr_name: its name; ``lr`` or ``learning_rate``, of the module or its ``hparams``, if left out.

        Returns:
            The results; None with ``fast_dev_run``.

        Raises:
            MisconfigurationException: another method, several optimisers, a mode that doesn't exist, rates that don't
                rise, no step.
            AttributeError: ``update_attr``, and the module has no such attribute.
        """
        if method != "fit":
            raise MisconfigurationException(f"the learning rate finder works with method='fit' only, got {method!r}")
        if self._trainer.fast_dev_run:
            rank_zero_warn("`fast_dev_run` is on: the learning rate finder is skipped.")
            return None
        name = _rate_attribute(model, attr_name) if update_attr else None
        data = _data_of(method, train_dataloaders, val_dataloaders, dataloaders, datamodule)
        finder = LRFinder(mode, min_lr, max_lr, num_training)
        _check_range(min_lr, max_lr, num_training)
        clone = copied_module(model, self._trainer)
        if name is not None:
            _set_attribute(clone, name, min_lr)
        rising = RisingRate(finder, early_stop_threshold)
        trial = run_trial(
            self._trainer,
            clone,
            data,
            "fit",
            max_steps=num_training,
            max_epochs=self._trainer.max_epochs,
            callbacks=[rising],
        )
        if trial.global_step < num_training and not rising.has_exploded:
            rank_zero_warn(
                f"The learning rate finder has taken {trial.global_step} of {num_training} steps, up to the rate "
                f"{finder.results['lr'][-1] if finder.results['lr'] else min_lr:.3g}, since the Trainer's "
                f"`max_epochs={self._trainer.max_epochs}` end there. Give it more epochs, or fewer `num_training`."
            )
        if name is not None:
            suggested = finder.suggestion()
            if suggested is not None:
                _set_attribute(model, name, suggested)
                rank_zero_info(f"Learning rate set to {suggested}")
        return finder

    def scale_batch_size(
        self,
        model: Any,
        train_dataloaders: Any = None,
        val_dataloaders: Any = None,
        dataloaders: Any = None,
        datamodule: Any = None,
        method: Method = "fit",
        mode: str = "power",
        steps_per_trial: int = 3,
        init_val: int = 2,
        max_trials: int = 25,
        batch_arg_name: str = "batch_size",
        margin: float = 0.05,
        max_val: int = 8192,
    ) -> int | None:
        """Find the largest batch size that fits into memory, and write it where loaders are made from it.

        Args:
            model: the module; nothing but its batch size is changed.
            train_dataloaders: refused: a loader that is made already has its batch size.
            val_dataloaders: the same.
            dataloaders: the same.
            datamodule: a data module.
            method: ``fit``, ``validate``, ``test`` or ``predict``.
            mode: ``power`` or ``binsearch``.
            steps_per_trial: batches of a trial.
            init_val: first size.
            max_trials: sizes that are tried.
            batch_arg_name: attribute of the module, its ``hparams`` or the data module.
            margin: share that is kept free, for ``binsearch``.
            max_val: largest size that is tried.

        Returns:
            The size; None with ``fast_dev_run``.

        Raises:
            MisconfigurationException: loaders were given, no such attribute, a mode that doesn't exist, or numbers
                that are out of bounds.
            ValueError: a method that doesn't exist.
        """
        _check_method(method)
        if any(item is not None for item in (train_dataloaders, val_dataloaders, dataloaders)):
            raise MisconfigurationException(
                "the batch size can be scaled only where the module or data module makes its loaders "
                "(`train_dataloader` reads the batch size); loaders that were given have theirs already"
            )
        if mode not in ("power", "binsearch"):
            raise MisconfigurationException(f"`mode` must be 'power' or 'binsearch', got {mode!r}")
        _check_search(steps_per_trial, init_val, max_trials, margin, max_val)
        if self._trainer.fast_dev_run:
            rank_zero_warn("`fast_dev_run` is on: the batch size is not scaled.")
            return None
        owner = next((item for item in (datamodule, model) if item is not None and _has(item, batch_arg_name)), None)
        if owner is None:
            raise MisconfigurationException(
                f"neither the module, its hparams nor the data module has an attribute {batch_arg_name!r}"
            )

        def fits(size: int) -> bool:
            clone = copied_module(model, self._trainer)
            data_clone = None if datamodule is None else copied_module(datamodule, self._trainer)
            for item in (clone, data_clone):
                if item is not None and _has(item, batch_arg_name):
                    _set_attribute(item, batch_arg_name, size)
            try:
                run_trial(self._trainer, clone, {"datamodule": data_clone}, method, **_limits(method, steps_per_trial))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                rank_zero_info(f"Batch size {size} doesn't fit.")
                return False
            finally:
                del clone, data_clone
                free_memory()
            return True

        found = largest_size(fits, mode, init_val, max_trials, margin, max_val)
        for item in (datamodule, model):
            if item is not None and _has(item, batch_arg_name):
                _set_attribute(item, batch_arg_name, found)
        rank_zero_info(f"Batch size set to {found}")
        return found


def _check_range(min_lr: float, max_lr: float, num_training: int) -> None:
    """Refuse rates between which nothing rises, and a test without a step; warn of one that can suggest nothing."""
    if not 0.0 < min_lr < max_lr < math.inf:
        raise MisconfigurationException(
            f"the rate must rise from a positive `min_lr` to a larger `max_lr`, got {min_lr!r} and {max_lr!r}"
        )
    if isinstance(num_training, bool) or not isinstance(num_training, int) or num_training < 1:
        raise MisconfigurationException(f"`num_training` must be a whole number of at least 1, got {num_training!r}")
    if num_training < FEWEST_STEPS:
        rank_zero_warn(
            f"`num_training={num_training}` can't give a suggestion: the first {SKIPPED_FIRST} losses and the last "
            f"don't count, and two more are needed. Give at least {FEWEST_STEPS}, or ask `suggestion` to skip fewer."
        )


def _check_search(steps_per_trial: int, init_val: int, max_trials: int, margin: float, max_val: int) -> None:
    named = {"steps_per_trial": steps_per_trial, "init_val": init_val, "max_trials": max_trials, "max_val": max_val}
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise MisconfigurationException(f"`{name}` must be a whole number of at least 1, got {value!r}")
    if not 0.0 <= margin < 1.0:
        raise MisconfigurationException(f"`margin` must be a share of at least 0 and less than 1, got {margin!r}")


def _limits(method: str, steps: int) -> dict[str, Any]:
    if method == "fit":
        return {"max_steps": steps, "limit_train_batches": None}
    return {f"limit_{'val' if method == 'validate' else method}_batches": steps, "max_epochs": 1}


def _check_method(method: str) -> None:
    if method not in _METHODS:
        raise ValueError(f"`method` must be one of {', '.join(_METHODS)}, got {method!r}")


def _data_of(method: str, train: Any, val: Any, dataloaders: Any, datamodule: Any) -> dict[str, Any]:
    if dataloaders is not None:
        raise MisconfigurationException(
            "`dataloaders` belongs to evaluation; give `train_dataloaders` for method='fit'"
        )
    return {"train_dataloaders": train, "val_dataloaders": val, "datamodule": datamodule}


def _rate_attribute(model: Any, name: str) -> str:
    if name:
        if not _has(model, name):
            raise AttributeError(f"neither the module nor its hparams has the attribute {name!r} (`attr_name`)")
        return name
    for known in _RATE_NAMES:
        if _has(model, known):
            return known
    raise AttributeError(
        "the learning rate finder writes its suggestion into `lr` or `learning_rate` of the module or its hparams, and "
        "there is neither; add one, name another by `attr_name`, or give update_attr=False"
    )


def _has(owner: Any, name: str) -> bool:
    return hasattr(owner, name) or name in (getattr(owner, "hparams", None) or {})


def _set_attribute(owner: Any, name: str, value: Any) -> None:
    if hasattr(owner, name):
        setattr(owner, name, value)
    hparams = getattr(owner, "hparams", None) or {}
    if name in hparams:
        hparams[name] = value
