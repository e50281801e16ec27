"""The classes of records that a recording keeps beside losses, gradients and incidents, by the name on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unstuck.record.anatomy import Anatomy
from unstuck.record.batch_sizes import BatchSizes
from unstuck.record.batches import BatchesRecord
from unstuck.record.connections import Connections
from unstuck.record.fillings import Filling
from unstuck.record.incident import SkippedStep, UnderflowRecord
from unstuck.record.modes import EvaluationRecord, ModeRecord
from unstuck.record.order import OrderRecord
from unstuck.record.schedules import ScheduleRecord
from unstuck.record.trials import DependenceTrial, LearningTrials

__all__ = ["KINDS", "kind_named", "name_of_kind"]

KINDS: Mapping[str, type[Any]] = {
    "anatomy": Anatomy,
    "learning trials": LearningTrials,
    "dependence": DependenceTrial,
    "connections": Connections,
    "evaluation": EvaluationRecord,
    "mode": ModeRecord,
    "step order": OrderRecord,
    "schedule": ScheduleRecord,
    "batches": BatchesRecord,
    "batch sizes": BatchSizes,
    "filling": Filling,
    "skipped step": SkippedStep,
    "underflow": UnderflowRecord,
}
"""Names never change their meaning: old recordings are read by them."""


def kind_named(name: str) -> type[Any] | None:
    """The class of a name, None for one that this version doesn't know."""
    return KINDS.get(name)


def name_of_kind(record: Any) -> str:
    """The name under which a record is written.

    Raises:
        KeyError: its class isn't among the kinds.
    """
    return {kind: name for name, kind in KINDS.items()}[type(record)]
