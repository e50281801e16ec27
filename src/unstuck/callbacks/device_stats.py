"""Writes how busy device and processor are, and how much memory is in use, to the loggers."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import torch

from unstuck.callbacks.callback import Callback
from unstuck.callbacks.writing import logs_are_due, write_metrics
from unstuck.errors import MisconfigurationException

if TYPE_CHECKING:
    from unstuck.callbacks.callback import StepOutput
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["DeviceStatsMonitor", "cpu_stats", "device_stats"]


class DeviceStatsMonitor(Callback):
    """Writes statistics before and after every batch that is logged, as ``DeviceStatsMonitor.<hook>/<name>``.

    On CUDA these are the numbers of torch's memory allocator, on the CPU the use of processor, memory and swap in
    percent (by the library psutil).

    Args:
        cpu_stats: whether the CPU's are written: None: where the CPU is the device; True: in any case; False: never.

    Raises:
        MisconfigurationException: at the start, a Trainer without logger.
        ModuleNotFoundError: at the start, psutil isn't installed but needed.
    """

    def __init__(self, cpu_stats: bool | None = None) -> None:
        self._cpu_stats = cpu_stats

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if not trainer.loggers:
            raise MisconfigurationException("`DeviceStatsMonitor` needs a logger; the Trainer has none.")
        on_cpu = trainer.strategy.root_device.type == "cpu"
        needed = self._cpu_stats or (self._cpu_stats is None and on_cpu)
        if needed and importlib.util.find_spec("psutil") is None:
            raise ModuleNotFoundError(
                "`DeviceStatsMonitor` reads the CPU's statistics from the library psutil, which isn't installed:"
                " `pip install unstuck[stats]`."
            )

    def _write(self, trainer: Trainer, hook: str, batch_idx: int | None = None) -> None:
        if not trainer.loggers or not logs_are_due(trainer, batch_idx):
            return
        device = trainer.strategy.root_device
        if device.type == "cpu":
            found = {} if self._cpu_stats is False else cpu_stats()
        else:
            found = device_stats(device) | (cpu_stats() if self._cpu_stats else {})
        separator = trainer.loggers[0].group_separator
        prefix = f"{type(self).__qualname__}.{hook}{separator}"
        write_metrics(trainer, {f"{prefix}{name}": value for name, value in found.items()})

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._write(trainer, "on_train_batch_start")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: StepOutput, batch: Any, batch_idx: int
    ) -> None:
        self._write(trainer, "on_train_batch_end")

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._write(trainer, "on_validation_batch_start", batch_idx)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: StepOutput,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._write(trainer, "on_validation_batch_end", batch_idx)

    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._write(trainer, "on_test_batch_start", batch_idx)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: StepOutput,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._write(trainer, "on_test_batch_end", batch_idx)


def device_stats(device: torch.device) -> dict[str, float]:
    """Return statistics of an accelerator's memory, by name; empty where torch has none."""
    if device.type == "cuda":
        return dict(torch.cuda.memory_stats(device))
    if device.type == "mps":
        return {
            "mps.current_allocated_bytes": torch.mps.current_allocated_memory(),
            "mps.driver_allocated_bytes": torch.mps.driver_allocated_memory(),
        }
    return {}


def cpu_stats() -> dict[str, float]:
    """Return the use of processor, memory and swap, in percent."""
    import psutil

    return {
        "cpu_vm_percent": psutil.virtual_memory().percent,
        "cpu_percent": psutil.cpu_percent(),
        "cpu_swap_percent": psutil.swap_memory().percent,
    }
