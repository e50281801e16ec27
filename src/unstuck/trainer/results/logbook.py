"""What the run has logged: published at the moments at which callbacks, loggers and the progress bar expect it.

The loops tell the logbook what happens, in this order::

    logbook.start(module, device)
    logbook.enter("train")
    for each epoch:
        for each batch:
            logbook.begin_batch(batch)
            ...                                     # hooks and the step; the module logs into logbook.store
            logbook.end_batch()
            logbook.write_train_step(step, epoch)   # where an optimiser step was made
        logbook.reach_epoch_end()
        ...                                         # on_train_epoch_end
        logbook.publish_epoch()
        logbook.write_train_epoch(step, epoch)
    logbook.leave()

and for an evaluation, alone or between the batches or at the end of a training epoch::

    logbook.enter("validate")                       # or "test", or "sanity_check", of which nothing is kept
    for each loader:
        for each batch:
            logbook.begin_batch(batch, dataloader_idx)
            ...
            logbook.end_batch()
            logbook.write_evaluation_step(step)
        logbook.close_dataloader()
    logbook.reach_epoch_end()
    ...                                             # on_validation_epoch_end
    outputs = logbook.finish_evaluation(step, epoch)
    ...                                             # on_validation_end
    logbook.leave()

Nothing is computed for a step that nobody looks at: a step's values are published when they are read, written, or about
to be replaced by those of an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from unstuck.trainer.results.holders import Reduce, RunContext
from unstuck.trainer.results.store import Published, ResultStore
from unstuck.trainer.results.values import to_scalars

__all__ = ["Logbook", "Loop", "MetricWriter"]

Loop = Literal["train", "validate", "test", "sanity_check"]


class MetricWriter(Protocol):
    """What the logbook needs of a logger."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None: ...

    def save(self) -> None: ...


class Logbook:
    """Collects what the loops log and hands it on.

    Args:
        loggers: where metrics are written.
        log_every_n_steps: how often step values are written; 0 for never.

    Attributes:
        loggers: as given; may be replaced before a run.
        store: what the running loop logs into, None where none runs or the loop keeps no metrics (prediction).
    """

    def __init__(self, loggers: Sequence[MetricWriter] = (), log_every_n_steps: int = 50) -> None:
        self.loggers = list(loggers)
        self.log_every_n_steps = log_every_n_steps
        self.store: ResultStore | None = None
        self._context = RunContext()
        self._stores: dict[str, ResultStore] = {}
        self._entered: list[tuple[ResultStore | None, bool]] = []
        self._sanity_checking = False
        self._published = Published()
        self._step_is_unpublished = False
        self._outputs: list[dict[str, Tensor]] = []

    # What callbacks read.

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """All newest values, by plain name and by the name that tells step from epoch."""
        self._publish()
        return self._published.callback

    @property
    def logged_metrics(self) -> dict[str, Tensor]:
        """The newest values logged with ``logger=True``."""
        self._publish()
        return self._published.logged

    @property
    def progress_bar_metrics(self) -> dict[str, Any]:
        """The newest values logged with ``prog_bar=True``, as Python numbers. Reading it waits for the device."""
        self._publish()
        return to_scalars(self._published.progress_bar)

    def logs_in_training(self, name: str) -> bool:
        """Whether the training loop itself logs a metric under this name."""
        store = self._stores.get("train")
        return store is not None and store.has(name)

    # Runs and loops.

    def start(self, module: nn.Module | None, device: torch.device, reduce: Reduce | None = None) -> None:
        """A run begins: forget the one before.

        Args:
            module: the module that logs.
            device: its device.
            reduce: reduces a tensor over all processes for ``sync_dist=True``; None where there is only one.
        """
        self._context = RunContext(module, device, reduce, bool(self.loggers))
        self._stores = {}
        self._entered = []
        self.store = None
        self._sanity_checking = False
        self.forget()

    def forget(self) -> None:
        """Forget what was published and what the running loop has logged, as before and after a sanity check."""
        if self.store is not None:
            self.store.reset()
        self._published = Published()
        self._step_is_unpublished = False
        self._outputs = []

    def enter(self, loop: Loop) -> ResultStore:
        """A loop begins, maybe inside another one.

        Returns:
            Where its values go, also as :attr:`store`.
        """
        self._publish_step()
        self._entered.append((self.store, self._sanity_checking))
        self._sanity_checking = loop == "sanity_check"
        name = "validate" if self._sanity_checking else loop
        if name not in self._stores:
            self._stores[name] = ResultStore(training=name == "train", context=self._context)
        outer, self.store = self.store, self._stores[name]
        if outer is not None:
            self.store.begin_inside(outer)
        self._outputs = []
        return self.store

    def leave(self) -> None:
        """The innermost loop ends: forget its values, but for what was published, and go on with the loop around it."""
        self._publish_step()
        if self.store is not None:
            self.store.reset()
        self.store, self._sanity_checking = self._entered.pop()

    # Continuing what another process began.

    def training_sums(self) -> list[list[Any]]:
        """Return what the training epoch has collected so far, for :meth:`continue_epoch`."""
        store = self._stores.get("train")
        return [] if store is None else store.sums()

    def continue_epoch(self, sums: list[list[Any]]) -> None:
        """Go on within a training epoch, whose loop was entered just now."""
        assert self.store is not None
        self.store.continue_epoch(sums)

    def restore_published(self, metrics: dict[str, Tensor]) -> None:
        """Show callbacks the values that they saw when the run was interrupted."""
        self._published.callback.update(metrics)

    # Batches and epochs.

    def begin_batch(self, batch: Any, dataloader_idx: int | None = None) -> None:
        """A batch comes: its size weighs the values logged until :meth:`end_batch`.

        Args:
            batch: of any structure.
            dataloader_idx: index of the loader in an evaluation with more than one, else None.
        """
        assert self.store is not None
        if dataloader_idx != self.store.dataloader_idx:
            self._publish_step()
        self.store.begin_batch(batch, dataloader_idx)

    def end_batch(self) -> None:
        """The hooks of a batch have run: its values are visible from now on."""
        assert self.store is not None
        self.store.end_batch()
        self._step_is_unpublished = True

    def reach_epoch_end(self) -> None:
        """All batches were seen, the hooks at the end of the epoch come."""
        self._publish_step()
        assert self.store is not None
        self.store.reach_epoch_end()
        self.store.dataloader_idx = None

    def publish_epoch(self) -> None:
        """The hooks at the end of the epoch have run: the epoch's values are visible from now on."""
        self._publish()
        assert self.store is not None
        self.store.close_epoch()

    def close_dataloader(self) -> None:
        """One of an evaluation's loaders is exhausted: its epoch values are visible from now on."""
        self._publish_step()
        assert self.store is not None
        self.store.reach_epoch_end()
        self._outputs.append({} if self._sanity_checking else self._publish().logged)

    def finish_evaluation(self, step: int, epoch: int) -> list[dict[str, Tensor]]:
        """The hooks at the end of an evaluation have run: publish and write its values.

        Args:
            step: under which they are written.
            epoch: current epoch.

        Returns:
            For each loader the logged epoch values, with those that no loader owns. Empty ones after a sanity check.
        """
        self.publish_epoch()
        if self._sanity_checking:
            return self._outputs
        common = self._publish().logged
        everything: dict[str, Tensor] = {}
        for output in reversed(self._outputs):
            everything.update(output)
        everything.update(common)
        for output in self._outputs:
            output.update(common)
        self.write(everything, step=None, default_step=step, epoch=epoch)
        return self._outputs

    # What goes to the loggers.

    def is_due(self, step: int) -> bool:
        """Tell whether the values of optimiser step ``step`` (counted from 0) are written."""
        return self.log_every_n_steps > 0 and (step + 1) % self.log_every_n_steps == 0

    def write_train_step(self, step: int, epoch: int, force: bool = False) -> None:
        """Write a step's values if they are due.

        Args:
            step: optimiser steps made before this one.
            epoch: current epoch.
            force: write them in any case: the run is about to stop.
        """
        if self.loggers and (force or self.is_due(step)):
            self.write(self._publish().logged, default_step=step, epoch=epoch)

    def write_train_epoch(self, step: int, epoch: int) -> None:
        """Write an epoch's values and begin the next one."""
        assert self.store is not None
        if self.loggers:
            self.write(self._publish().logged, default_step=step, epoch=epoch)
        self.store.reset()

    def write_evaluation_step(self, step: int) -> None:
        """Write the step values of an evaluation's batch.

        Args:
            step: number of this loader's batches seen before this one, over all epochs.
        """
        if self.loggers and not self._sanity_checking:
            self.write(self._publish().logged, step=step)

    def write(
        self, metrics: Mapping[str, Any], step: int | None = None, default_step: int | None = None, epoch: int = 0
    ) -> None:
        """Write metrics to all loggers. It waits for the device once.

        Args:
            metrics: numbers and tensors with one element.
            step: under which they are written; None to take it from an entry ``"step"`` in ``metrics``, else from
                ``default_step``, where the epoch is written along.
            default_step: see there.
            epoch: current epoch.
        """
        if not self.loggers or not metrics:
            return
        self._published.logged.update(metrics)
        scalars = to_scalars(metrics)
        if step is None:
            logged_step = scalars.pop("step", None)
            if logged_step is not None:
                step = int(logged_step)
            else:
                scalars.setdefault("epoch", epoch)
                step = default_step
        for logger in self.loggers:
            logger.log_metrics(metrics=scalars, step=step)
            logger.save()

    def move_to_cpu(self) -> None:
        """The run has ended: keep what was published, but nothing on the device."""
        self._publish_step()
        for metrics in (self._published.callback, self._published.logged, self._published.progress_bar):
            metrics.update({name: value.cpu() for name, value in metrics.items()})

    # How it becomes visible.

    def _publish(self) -> Published:
        """Publish what the running loop has to show now, and return that part."""
        self._step_is_unpublished = False
        if self.store is None:
            return Published()
        newest = self.store.published()
        self._published.update(newest)
        return newest

    def _publish_step(self) -> None:
        if self._step_is_unpublished:
            self._publish()
