"""The parts of a run, in one place, for the loops."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unstuck.trainer.checkpoints.trail import Trail
from unstuck.trainer.data.loaders import LoaderSource

if TYPE_CHECKING:
    from unstuck.strategies.single_device import SingleDeviceStrategy
    from unstuck.trainer.checkpoints.restore import Resumption
    from unstuck.trainer.interrupts import SignalGuard
    from unstuck.trainer.precision import Precision
    from unstuck.trainer.results import Logbook
    from unstuck.trainer.settings import Settings
    from unstuck.trainer.state import Progress, TrainerState
    from unstuck.trainer.trainer import Trainer
    from unstuck.trainer.watching import EvaluationWatcher, StepWatcher

__all__ = ["Run", "StageData"]


@dataclass
class StageData:
    """The loaders of one stage."""

    source: LoaderSource
    combined: Any = None
    """The :class:`CombinedLoader`, None before it was asked for."""
    max_batches: list[int | float] = field(default_factory=list)
    """Batches of each loader, limits applied."""
    batches: Any = None
    """The iterator of a pass that was begun, None without one."""
    running: Any = None
    """The iterator of the pass that a training epoch goes through."""
    is_fresh: bool = False
    """Whether the loaders were asked for and no pass over them was begun."""
    loaded_in_epoch: float = float("-inf")
    """The epoch in which the loaders were asked for."""
    seen: dict[int, int] = field(default_factory=dict)
    """Batches of each loader that evaluations have seen: the x axis of their step values."""


@dataclass
class Run:
    """What the loops work with. The Trainer makes one per call of fit, validate, test or predict."""

    trainer: Trainer
    """Handed to hooks; the loops read nothing from it."""
    module: Any
    datamodule: Any
    settings: Settings
    state: TrainerState
    progress: Progress
    strategy: SingleDeviceStrategy
    precision: Precision
    logbook: Logbook
    signals: SignalGuard
    profiler: Any
    """Measures the parts of the run, None where nobody asked for it."""
    train: StageData
    val: StageData
    test: StageData
    predict: StageData
    validates: bool = False
    """Whether a fit has a validation."""
    verbose: bool = True
    """Whether validate and test print their results."""
    return_predictions: bool = True
    predictions: list[list[Any]] = field(default_factory=list)
    """Of each loader, for each batch; only what is asked for or written."""
    batch_indices: list[int] | None = None
    """Indices of the samples of the batch that is predicted for, None where they aren't known."""
    epoch_batch_indices: list[list[list[int]]] = field(default_factory=list)
    """The same of all batches, of each loader."""
    val_check_batches: int | float | None = None
    """Training batches between validations; infinite: at the epoch's end; None: the time decides."""
    last_validation: float = 0.0
    """When the last validation ended (monotonic seconds)."""
    started: float = 0.0
    """When the training began (monotonic seconds)."""
    ckpt_path: str | None = None
    """The checkpoint to begin from, None without one."""
    ckpt_weights_only: bool | None = None
    """Whether only tensors and plain values of it are loaded (unless False)."""
    resumption: Resumption | None = None
    """Where a fit goes on, until it does."""
    trail: Trail = field(default_factory=Trail)
    """What a checkpoint needs to know of what is past."""
    said: set[str] = field(default_factory=set)
    """Messages that are told once per run."""
    watcher: StepWatcher | None = None
    """Looks for values that aren't finite in automatic optimisation, None where nobody does."""
    evaluation_watcher: EvaluationWatcher | None = None
    """The same for validations and tests."""
