"""Writes batches, samples and operations per second to the loggers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from unstuck.callbacks.callback import Callback
from unstuck.callbacks.writing import logs_are_due, write_metrics
from unstuck.messages import rank_zero_warn
from unstuck.trainer.state import RunningStage
from unstuck.utilities.throughput import Throughput, get_available_flops

if TYPE_CHECKING:
    from unstuck.callbacks.callback import StepOutput
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["ThroughputMonitor"]


@dataclass
class _Stage:
    """What a stage has done so far."""

    throughput: Throughput
    began: float
    elapsed: float = 0.0
    batches: int = 0
    samples: int = 0
    lengths: int = 0

    @property
    def now(self) -> float:
        """When the last batch had been counted."""
        return self.began + self.elapsed


class ThroughputMonitor(Callback):
    """Writes the numbers of :class:`~unstuck.utilities.throughput.Throughput` as ``train/device/samples_per_sec`` and
    so on, for training, validation, test and prediction.

    A module's attribute or property ``flops_per_batch`` (see :func:`~unstuck.utilities.throughput.measure_flops`) adds
    operations per second, and the part of what the device could do. The time of validations isn't the training's.

    Args:
        batch_size_fn: returns the number of samples of a batch.
        length_fn: returns the number of items (tokens, ...) of a batch.
        kwargs: for :class:`~unstuck.utilities.throughput.Throughput`: ``window_size``, ``separator``.
    """

    def __init__(
        self, batch_size_fn: Callable[[Any], int], length_fn: Callable[[Any], int] | None = None, **kwargs: Any
    ) -> None:
        self.kwargs = kwargs
        self.batch_size_fn = batch_size_fn
        self.length_fn = length_fn
        self.available_flops: int | None = None
        self._stages: dict[RunningStage, _Stage] = {}
        self._has_flops = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        dtype = _compute_dtype(trainer.precision)
        self.available_flops = get_available_flops(trainer.strategy.root_device, dtype)
        self._has_flops = hasattr(pl_module, "flops_per_batch")
        if not self._has_flops:
            rank_zero_warn(
                f"`ThroughputMonitor` can't tell operations per second: {type(pl_module).__name__} has no"
                " `flops_per_batch`."
            )
        if stage == "fit":
            self._stages = {}

    def _start(self, trainer: Trainer) -> None:
        stage = trainer.state.stage
        if stage is None or trainer.sanity_checking:
            return
        throughput = Throughput(
            **{"available_flops": self.available_flops, "world_size": trainer.world_size, **self.kwargs}
        )
        self._stages[stage] = _Stage(throughput, time.perf_counter())

    @torch.no_grad()
    def _count(self, trainer: Trainer, module: LightningModule, batch: Any) -> _Stage | None:
        if trainer.state.stage is None or trainer.sanity_checking:
            return None
        stage = self._stages[trainer.state.stage]
        if trainer.strategy.root_device.type == "cuda":
            torch.cuda.synchronize()  # else the clock would tell when work was asked for
        stage.elapsed = time.perf_counter() - stage.began
        stage.batches += 1
        stage.samples += self.batch_size_fn(batch)
        if self.length_fn is not None:
            stage.lengths += self.length_fn(batch)
        flops: Any = module.flops_per_batch if self._has_flops else None
        stage.throughput.update(
            time=stage.elapsed,
            batches=stage.batches,
            samples=stage.samples,
            lengths=None if self.length_fn is None else stage.lengths,
            flops=flops,
        )
        return stage

    def _write(self, trainer: Trainer, stage: _Stage, step: int | None = None, epoch: int | None = None) -> None:
        if trainer.state.stage is not None:
            prefix = f"{trainer.state.stage.value}{stage.throughput.separator}"
            found = {f"{prefix}{name}": value for name, value in stage.throughput.compute().items()}
            write_metrics(trainer, found if epoch is None else {**found, "epoch": epoch}, step)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: StepOutput, batch: Any, batch_idx: int
    ) -> None:
        stage = self._count(trainer, pl_module, batch)
        # The time of the optimiser's step belongs to all batches that have accumulated.
        if stage is not None and not trainer.fit_loop._should_accumulate() and logs_are_due(trainer):
            self._write(trainer, stage, epoch=trainer.current_epoch)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start(trainer)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: StepOutput,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._evaluate(trainer, pl_module, batch, batch_idx)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        training, validation = self._stages.get(RunningStage.TRAINING), self._stages.get(RunningStage.VALIDATING)
        if (
            trainer.state.fn == "fit"
            and not trainer.sanity_checking
            and training is not None
            and validation is not None
        ):
            training.began += time.perf_counter() - training.now

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start(trainer)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: StepOutput,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._evaluate(trainer, pl_module, batch, batch_idx)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._start(trainer)

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._evaluate(trainer, pl_module, batch, batch_idx)

    def _evaluate(self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int) -> None:
        stage = self._count(trainer, module, batch)
        if stage is not None and logs_are_due(trainer, batch_idx):
            self._write(trainer, stage, stage.batches)


def _compute_dtype(precision: str) -> torch.dtype:
    """In which format a precision multiplies matrices."""
    if precision.startswith("bf16"):
        return torch.bfloat16
    return {"16": torch.float16, "64": torch.float64}.get(precision.split("-")[0], torch.float32)
