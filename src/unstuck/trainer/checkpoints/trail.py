"""What the loops note on their way so that a checkpoint can tell where to go on: random states and sums that are gone
when they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from unstuck.trainer.checkpoints.random_state import RandomStates, capture, random_sources

__all__ = ["Trail", "Window", "gradients_of", "modules_in_eval_mode"]


def gradients_of(module: Any) -> dict[str, torch.Tensor]:
    """Copies of a module's gradients, on the CPU, by parameter name."""
    return {
        name: parameter.grad.detach().to("cpu", copy=True)
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def modules_in_eval_mode(module: Any) -> list[str]:
    """Names of the modules in eval mode."""
    return [name for name, child in module.named_modules() if not child.training]


@dataclass
class Window:
    """The moment before the first batch of an optimiser step, for a checkpoint of the last completed step."""

    batches: int
    """Batches of the epoch that were done."""
    global_step: int
    random: RandomStates
    buffers: dict[str, torch.Tensor]
    """Copies of the module's buffers by name."""
    sums: list[Any]
    """The epoch's sums of logged values."""
    gradients: dict[str, torch.Tensor]
    """What batches before this moment have added to the step; empty but for a fit that goes on within one."""


@dataclass
class Trail:
    """Random states of a fit at the moments from which it can be continued."""

    sources: list[Any] = field(default_factory=list)
    """Generators of the program's own, found in module and loaders."""
    searched: Any = None
    """The training loaders among these."""
    boundary: RandomStates | None = None
    """Before the hooks at the start of the epoch."""
    begun: RandomStates | None = None
    """When the pass over the training data was begun."""
    begun_early: bool = False
    """Whether that was before :attr:`boundary`, as for the first epoch of a fit."""
    drawn: RandomStates | None = None
    """Before the first batch of the pass was drawn."""
    validation: RandomStates | None = None
    """When the validation that runs was begun."""
    eval_modules: list[str] | None = None
    """Names of the modules in eval mode when that validation was begun."""
    keeps_windows: bool = False
    """Whether somebody wants a checkpoint when a batch fails."""
    window: Window | None = None

    def find_sources(self, module: Any, train: Any, val: Any) -> None:
        """Looks for the program's own generators.

        Args:
            module: the module of the run.
            train: the data of the training, as far as it is loaded.
            val: that of the validation.
        """
        self.searched = train.combined
        owners = list(module.modules())
        for stage in (train, val):
            owners += [] if stage.combined is None else stage.combined.flattened
        self.sources = random_sources(owners)

    def now(self) -> RandomStates:
        """The present random states."""
        return capture(self.sources)

    def begin_validation(self, module: Any) -> None:
        """A validation within the fit comes."""
        self.validation = self.now()
        self.eval_modules = modules_in_eval_mode(module)

    def begin_pass(self) -> None:
        """A pass over the training data is about to begin."""
        self.begun, self.drawn, self.begun_early = self.now(), None, False

    def begin_epoch(self) -> None:
        """The hooks at the start of an epoch come."""
        self.boundary, self.begun_early, self.window = self.now(), self.begun is not None, None

    def end_epoch(self) -> None:
        """The pass is over."""
        self.begun = self.drawn = self.window = None
        self.begun_early = False
