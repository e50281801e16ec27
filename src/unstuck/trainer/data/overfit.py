"""Training on the same few batches in every epoch, to see whether a model can memorise them (signatures; see ``freeze``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Overfit", "FrozenLoader", "freeze_loaders"]


@dataclass(frozen=True)
class Overfit:
    """What ``Trainer(overfit_batches=...)`` takes beside a number: the number with options."""

    batches: int | float
    order: Literal["sequential", "replay", "shuffle"] = "sequential"
    validate_on: Literal["val", "train"] = "val"


@dataclass(frozen=True)
class FrozenLoader:
    """A loader that shows the same samples in every epoch."""

    loader: Any
    num_batches: int | float


def freeze_loaders(
    loaders: list[Any], names: list[str], overfit: Overfit, *, stage: Literal["train", "val"] = "train"
) -> list[FrozenLoader]:
    """Limits and freezes each loader of a flat list (``CombinedLoader.flattened``); the user's loaders stay as they are.

    Warnings are raised through ``unstuck.trainer.messages``. Call it after distributed samplers are put in, before the first batch is drawn.
    Raises MisconfigurationException naming ``overfit_batches``, the loader, its length and the smallest valid value.
    """
    raise NotImplementedError
