"""What trials on the program's own steps have shown: loss curves under other settings. Plain data, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["DependenceTrial", "LearningTrial", "LearningTrials"]


@dataclass(frozen=True)
class LearningTrial:
    """One training from the program's own start on batches that its loop has received.

    Attributes:
        name: ``own`` for the run's own settings, else what is changed (``rate x 0.1``, ``no weight decay``).
        rate: largest learning rate of the groups.
        factor: that rate over the run's highest.
        changes: settings of the optimiser that are other than the run's (``eps``, ``weight_decay``), ``clip`` for
            clipping that is left out, ``gradient`` for a factor on the gradients.
        steps: numbers of steps after which the loss was measured; the first is 0.
        losses: mean loss of the batches that were held out, at these.
        training: loss of each step's own batch before the step.
        whole: whether it came to its end; False where the loss ran away or the time was up.
        timed_out: the time was up.
    """

    name: str
    rate: float
    factor: float
    changes: dict[str, float]
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    training: tuple[float, ...]
    whole: bool = True
    timed_out: bool = False

    @property
    def curve(self) -> list[list[float]]:
        """[step, loss on held-out batches] for a report."""
        return [[step, loss] for step, loss in zip(self.steps, self.losses, strict=True)]


@dataclass(frozen=True)
class DependenceTrial:
    """What the outputs of the first module call of a step depend on, tried in evaluation mode with other inputs.

    Attributes:
        samples: of the batch.
        place: of the sample that was replaced by another one of the batch: of several the one that moved others, else
            the first.
        touched: other samples whose outputs moved with it.
        depends: whether any output moved when all samples changed places.
        model: whether the module that was called is the whole model.
    """

    samples: int
    place: int
    touched: int
    depends: bool
    model: bool


@dataclass(frozen=True)
class LearningTrials:
    """All trials of one optimiser.

    Attributes:
        optimizer: index among the recording's optimisers.
        suspicions: what they were made for.
        batches: recorded batches that they trained on.
        held_out: batches that were held out to measure on.
        length: steps that each was to make.
        trials: in the order in which they were made; the first is the run's own.
        seconds: that they took.
        since: optimiser steps of the program before the first of this optimiser's.
        step: optimiser steps that the program had made when they were tried.
    """

    optimizer: int
    suspicions: tuple[str, ...]
    batches: int
    held_out: int
    length: int
    trials: tuple[LearningTrial, ...]
    seconds: float = 0.0
    since: int = 0
    step: int | None = None

    def named(self, name: str) -> LearningTrial | None:
        """The trial of this name."""
        return next((item for item in self.trials if item.name == name), None)

    def evidence(self, *others: LearningTrial) -> dict[str, Any]:
        """Curves of the run's own settings and of others, for a finding."""
        own = self.named("own")
        shown = [item for item in (own, *others) if item is not None]
        return {
            "trial": f"{self.length} steps on {self.batches} recorded batches, loss on {self.held_out} others",
            "curves": {item.name: item.curve for item in shown},
        }
