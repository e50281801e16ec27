"""Between the loaders and the loops: asking for loaders, limiting them, and bringing batches to the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unstuck.messages import PossibleUserWarning, rank_zero_info, rank_zero_warn
from unstuck.profilers.actions import profiled
from unstuck.trainer.data.combined import CombinedLoader, as_combined, iterate
from unstuck.trainer.data.indices import PassIndices
from unstuck.trainer.data.limits import resolve_limit, resolve_val_check_interval
from unstuck.trainer.data.loaders import (
    check_iterable,
    length_of,
    loader_names,
    seed_workers,
    set_epoch,
    warn_if_evaluation_is_shuffled,
    without_dropping,
)
from unstuck.trainer.data.overfit import freeze_loaders, number_of_overfit_batches, training_subset
from unstuck.trainer.data.transfer import move_data_to_device
from unstuck.trainer.hooks import has_own, hook_action, is_overridden
from unstuck.trainer.run import Run, StageData
from unstuck.trainer.state import TrainerFn

__all__ = ["announce_epoch", "begin_pass", "bind_transfer", "load_evaluation", "load_training"]

Transfer = Callable[[Any, int], Any]


def load_training(run: Run) -> None:
    """Asks for the training loaders, where that is due, and finds out how many batches an epoch has.

    Raises:
        MisconfigurationException: a limit that fits no loader.
        ValueError: a combination of loaders that can't be trained on.
    """
    data, settings, progress = run.train, run.settings, run.progress
    limits = settings.limits
    if limits.train == 0 or not (data.combined is None or _reload_is_due(run, data)):
        return
    combined = _combine(run, data, "max_size_cycle")
    if combined.mode == "sequential":
        raise ValueError(
            "The training loaders can't be combined one after the other: `CombinedLoader(mode='sequential')` is for"
            " evaluation."
        )
    names = loader_names(data.source.hook, combined.iterables)
    if limits.overfit is None:
        combined.limits = [
            resolve_limit(limits.train, length_of(loader), name="limit_train_batches", loader=name)
            for loader, name in zip(combined.flattened, names, strict=True)
        ]
    else:
        combined = freeze_loaders(combined, names, limits.overfit, num_replicas=run.strategy.world_size)
        counts = list(combined.limits or ())
        plural = "" if counts == [1] else "es"
        rank_zero_info(f"`overfit_batches`: every epoch trains on the same {_listed(counts)} batch{plural}.")
    for loader in combined.flattened:
        seed_workers(loader, run.strategy.global_rank)
    data.max_batches = list(combined.limits or ())
    if run.watcher is not None:
        combined.drawn = PassIndices()  # a batch's number tells nothing of its samples where they are shuffled
    combined.take_over_running(data.combined)
    data.combined = combined
    data.batches, data.is_fresh = None, True
    progress.num_training_batches = combined.num_batches
    if progress.num_training_batches == 0:
        return
    data.loaded_in_epoch = progress.current_epoch
    run.val_check_batches = resolve_val_check_interval(
        limits.val_check_interval,
        progress.num_training_batches,
        every_n_epochs=settings.check_val_every_n_epoch,
        validates=limits.val > 0,
    )
    _warn_of_few_batches(run)


def load_evaluation(run: Run, data: StageData, limit: int | float, limit_name: str) -> None:
    """Asks for the loaders of a validation, test or prediction.

    Args:
        run: the run.
        data: the stage's data, filled in here.
        limit: batches of each loader.
        limit_name: the Trainer's argument, for errors.
    """
    fitting = run.state.fn == TrainerFn.FITTING
    if fitting and not (data.combined is None or _reload_is_due(run, data)):
        return
    if limit == 0:
        data.max_batches = []
        return
    data.loaded_in_epoch = run.progress.current_epoch
    data.seen = {}
    overfit = run.settings.limits.overfit if fitting else None
    if overfit is not None and overfit.validate_on == "train":
        load_training(run)
        data.combined = training_subset(run.train.combined)
        data.max_batches = list(data.combined.limits or ())
        rank_zero_info("`overfit_batches`: the fit validates on the samples that it trains on.")
        return
    # Who predicts wants an answer for every sample.
    combined = _combine(run, data, "sequential", completely=data is run.predict)
    names = loader_names(data.source.hook, combined.iterables)
    if overfit is None:
        for loader, name in zip(combined.flattened, names, strict=True):
            warn_if_evaluation_is_shuffled(loader, name)
        data.max_batches = _limited(run, data, combined, names, limit, limit_name)
    else:
        combined = freeze_loaders(combined, names, overfit, stage="val")
        data.max_batches = list(combined.limits or ())
        rank_zero_info(
            f"`overfit_batches`: the fit validates on the first batches ({_listed(data.max_batches)}) of the validation"
            " data, which are other samples than those that it trains on. `Overfit(..., validate_on='train')` validates"
            " on these."
        )
    for loader in combined.flattened:
        seed_workers(loader, run.strategy.global_rank)
    combined.take_over_running(data.combined)
    data.combined = combined


def _limited(
    run: Run, data: StageData, combined: CombinedLoader, names: list[str], limit: int | float, limit_name: str
) -> list[int | float]:
    """Batches of each loader of an evaluation."""
    overfit = run.settings.limits.overfit
    if overfit is not None and data is run.val:
        # The limit of a validation outside of a fit is that of `overfit_batches` too.
        return [
            number_of_overfit_batches(overfit, loader, name, stage="val")
            for loader, name in zip(combined.flattened, names, strict=True)
        ]
    return [
        resolve_limit(limit, length_of(loader), name=limit_name, loader=name)
        for loader, name in zip(combined.flattened, names, strict=True)
    ]


def begin_pass(data: StageData) -> None:
    """Makes the iterators of a pass over a stage's loaders. A loader with a random sampler draws its seed here."""
    data.batches = iterate(data.combined)


def announce_epoch(data: StageData, epoch: int) -> None:
    """Tells the samplers which epoch it is."""
    for loader in data.combined.flattened:
        set_epoch(loader, epoch)


def bind_transfer(run: Run) -> Transfer:
    """How a batch gets to the device: the hooks of the data module, or of the module, around the move.

    The callable takes a batch and the index of its loader.
    """
    return profiled(run.profiler, f"[Strategy]{type(run.strategy).__name__}.batch_to_device", _bind_transfer(run))


def _bind_transfer(run: Run) -> Transfer:
    precision, device = run.precision, run.strategy.root_device
    owners = {
        name: _owner(run, name)
        for name in ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
    }
    is_plain = not any(has_own(name, owner) for name, owner in owners.items()) and not precision.converts_batches
    if is_plain and run.profiler is None:
        return lambda batch, dataloader_idx: move_data_to_device(batch, device)
    before, move, after = (
        profiled(run.profiler, hook_action(owner, name), getattr(owner, name)) for name, owner in owners.items()
    )

    def transfer(batch: Any, dataloader_idx: int) -> Any:
        if precision.converts_batches:
            batch = precision.convert_batch(batch)
        batch = before(batch, dataloader_idx)
        batch = move(batch, device, dataloader_idx)
        return after(batch, dataloader_idx)

    return transfer


def _owner(run: Run, name: str) -> Any:
    """The data module where it has its own version of a transfer hook, else the module."""
    if run.datamodule is not None and is_overridden(name, run.datamodule):
        if is_overridden(name, run.module):
            rank_zero_warn(f"`{name}` is written in both the module and the data module; the data module's is used.")
        return run.datamodule
    return run.module


def _combine(run: Run, data: StageData, mode: Any, completely: bool = False) -> CombinedLoader:
    """Asks for the loaders of a stage; ``completely`` lets them show a last incomplete batch too."""
    request = data.source.request
    if run.profiler is not None and data.source.given is None:
        request = profiled(run.profiler, hook_action(data.source.owner, data.source.hook), request)
    loaders = request()
    combined = as_combined(loaders, mode)
    for loader in combined.flattened:
        check_iterable(loader, data.source)
    if completely:
        combined.flattened = [without_dropping(loader) for loader in combined.flattened]
    for loader, name in zip(combined.flattened, loader_names(data.source.hook, combined.iterables), strict=True):
        if length_of(loader) == 0:
            rank_zero_warn(f"`{name}` has no batches (its length is 0). Make sure that this is meant.")
    return combined


def _reload_is_due(run: Run, data: StageData) -> bool:
    every = run.settings.reload_dataloaders_every_n_epochs
    if run.settings.limits.overfit is not None:
        # New loaders would draw other samples, and every epoch has to see the same.
        return False
    return every > 0 and run.progress.current_epoch - data.loaded_in_epoch >= every


def _listed(numbers: list[int | float]) -> str:
    return ", ".join(map(str, numbers))


def _warn_of_few_batches(run: Run) -> None:
    batches, every = run.progress.num_training_batches, run.settings.log_every_n_steps
    if run.logbook.loggers and batches < every and not run.settings.limits.fast_dev_run:
        rank_zero_warn(
            f"An epoch has {batches} training batches, fewer than `log_every_n_steps={every}`, so step values of an"
            " epoch may reach no"
            " logger. Lower it to see them.",
            PossibleUserWarning,
        )
