"""One process, one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from unstuck.trainer.checkpoints.files import remove

__all__ = ["SingleDeviceStrategy"]


class SingleDeviceStrategy:
    """Runs everything in this process on one device; collectives of one member return what they are given.

    Args:
        device: the device.

    Attributes:
        model: the module of the run, None before the first one.
        optimizers: the optimisers that ``configure_optimizers`` returned.
        run_backward: the backward pass of a loss, with the run's scaling and hooks; set for a fit in manual
            optimisation.
    """

    def __init__(self, device: torch.device) -> None:
        self.root_device = device
        self.model: Any = None
        self.optimizers: list[Optimizer] = []
        self.lr_scheduler_configs: list[Any] = []
        # The name is what a module of the real Lightning asks for in `self.optimizers()`.
        self._lightning_optimizers: list[Any] = []
        self.precision_plugin: Any = None
        self.run_backward: Callable[..., None] = Tensor.backward

    global_rank = 0
    local_rank = 0
    node_rank = 0
    world_size = 1
    num_nodes = 1
    is_global_zero = True

    @property
    def lightning_module(self) -> Any:
        """The module of the run."""
        return self.model

    def connect(self, model: Any) -> None:
        """Makes a module that of the Trainer before there is a run, so that its checkpoint can be saved."""
        self.model = model

    def backward(self, loss: Tensor, optimizer: Any = None, *args: Any, **kwargs: Any) -> None:
        """Runs the backward pass of a loss (``manual_backward``)."""
        self.run_backward(loss, *args, **kwargs)

    def barrier(self, name: str | None = None) -> None:
        """Waits for all processes: for this one."""

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """The object of the process ``src``."""
        return obj

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """The reduction of a tensor over all processes."""
        return tensor

    def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Tensor:
        """The tensors of all processes."""
        return tensor

    def remove_checkpoint(self, filepath: str) -> None:
        """Removes a checkpoint, once for all processes."""
        remove(filepath)

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:  # noqa: A002 - the name is interface
        """Whether all (or any) processes decide so."""
        return decision
