"""What the loops note on their way so that a checkpoint can tell where to go on: random states and sums that are gone
when they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from unstuck.trainer.checkpoints.learning import Learning
from unstuck.trainer.checkpoints.random_state import RandomStates, capture, random_sources

__all__ = ["Trail", "Window", "gradients_of", "modules_in_eval_mode", "versions_of"]


def gradients_of(module: Any) -> dict[str, torch.Tensor]:
    """Copies of a module's gradients, on their device, by parameter name."""
    return {
        name: parameter.grad.detach().clone()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def versions_of(module: Any) -> list[int]:
    """How often each parameter was written to."""
    return [0 if parameter.is_inference() else parameter._version for parameter in module.parameters()]


def modules_in_eval_mode(module: Any) -> list[str]:
    """Names of the modules in eval mode."""
    return [name for name, child in module.named_modules() if not child.training]


@dataclass(frozen=True)
class Restart:
    """A loader that was through has begun anew within a pass, for longer ones beside it."""

    batch: int
    """The first batch of the pass with data from there."""
    random: RandomStates


@dataclass
class Window:
    """The moment before the first batch of an optimiser step, for a checkpoint of the last completed step."""

    batches: int
    """Batches of the epoch that were done."""
    random: RandomStates
    buffers: dict[str, torch.Tensor]
    """Copies of the module's buffers by name."""
    versions: list[int]
    """What :func:`versions_of` the module told."""
    sums: list[Any]
    """The epoch's sums of logged values."""
    metrics: dict[str, Any]
    """What metric objects have collected."""
    restarts: dict[int, Restart]
    """As :attr:`Trail.restarts`."""
    ahead: RandomStates | None
    """As :attr:`Trail.ahead`."""
    gradients: dict[str, torch.Tensor]
    """What batches before this moment have added to the step; empty but for a fit that goes on within one, and in
    manual optimisation, where only the module knows whether they still count."""


@dataclass
class Trail:
    """Random states of a fit at the moments from which it can be continued."""

    sources: list[Any] = field(default_factory=list)
    """Generators of the program's own, found in module and loaders."""
    searched: Any = None
    """The training loaders among these."""
    boundary: RandomStates | None = None
    """Before the hooks at the start of the epoch."""
    loaded_before: dict[str, float] = field(default_factory=dict)
    """The epochs in which the loaders of "train" and "val" had been asked for by then."""
    begun: RandomStates | None = None
    """When the pass over the training data was begun."""
    begun_early: bool = False
    """Whether that was before :attr:`boundary`, as for the first epoch of a fit."""
    drawn: RandomStates | None = None
    """Before the first batch of the pass was drawn."""
    restarts: dict[int, Restart] = field(default_factory=dict)
    """The last of each loader in this pass, by its position. Never changed in place."""
    ahead: RandomStates | None = None
    """Before the batch after the present one was drawn, in a pass that is one batch ahead."""
    running: dict[str, list[bool]] = field(default_factory=dict)
    """Of which loaders of "train" and "val" persistent workers ran when the pass was begun."""
    validation: RandomStates | None = None
    """When the validation that runs was begun."""
    running_in_validation: dict[str, list[bool]] = field(default_factory=dict)
    """As :attr:`running`, at that moment."""
    eval_modules: list[str] | None = None
    """Names of the modules in eval mode when that validation was begun."""
    learning: Learning | None = None
    """What learnt when the optimisers were made, before anything was unfrozen on the way."""
    keeps_windows: bool = False
    """Whether somebody wants a checkpoint when a batch fails."""
    window: Window | None = None
    _stages: dict[str, Any] = field(default_factory=dict)

    def find_sources(self, module: Any, train: Any, val: Any) -> None:
        """Looks for the program's own generators.

        Args:
            module: the module of the run.
            train: the data of the training, as far as it is loaded.
            val: that of the validation.
        """
        self.searched = train.combined
        self._stages = {"train": train, "val": val}
        owners = list(module.modules())
        for stage in (train, val):
            owners += [] if stage.combined is None else stage.combined.flattened
        self.sources = random_sources(owners)

    def now(self) -> RandomStates:
        """The present random states."""
        return capture(self.sources)

    def running_now(self) -> dict[str, list[bool]]:
        """Of which loaders persistent workers run."""
        return {
            name: [] if stage.combined is None else stage.combined.running() for name, stage in self._stages.items()
        }

    def loaded_now(self) -> dict[str, float]:
        """The epochs in which the loaders were asked for."""
        return {name: stage.loaded_in_epoch for name, stage in self._stages.items()}

    def note_restart(self, position: int, batch: int) -> None:
        """A loader begins anew within the pass.

        Args:
            position: of the loader.
            batch: the number of the batch that is drawn.
        """
        self.restarts = {**self.restarts, position: Restart(batch, self.now())}

    def note_look_ahead(self) -> None:
        """A pass that is one batch ahead draws."""
        self.ahead = self.now()

    def follow(self, combined: Any) -> None:
        """From now on the passes over training loaders tell what happens within them."""
        combined.on_restart, combined.on_look_ahead = self.note_restart, self.note_look_ahead

    def begin_validation(self, module: Any) -> None:
        """A validation within the fit comes."""
        self.validation, self.running_in_validation = self.now(), self.running_now()
        self.eval_modules = modules_in_eval_mode(module)

    def begin_pass(self) -> None:
        """A pass over the training data is about to begin."""
        self.begun, self.drawn, self.begun_early = self.now(), None, False
        self.running, self.restarts, self.ahead = self.running_now(), {}, None

    def begin_epoch(self) -> None:
        """The hooks at the start of an epoch come."""
        self.boundary, self.begun_early, self.window = self.now(), self.begun is not None, None
        self.loaded_before = self.loaded_now()

    def end_epoch(self) -> None:
        """The pass is over."""
        self.begun = self.drawn = self.ahead = self.window = None
        self.restarts = {}
        self.begun_early = False
