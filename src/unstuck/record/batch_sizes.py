"""How many samples the passes of a model with batch normalisation were given: plain data, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["BatchSizes"]


@dataclass
class BatchSizes:
    """Leading dimensions of what one model was called with while it was trained.

    Attributes:
        kind: class name of the model.
        passes: how many there were.
        counts: passes by size; small ones first, at most a few hundred sizes.
        steps: of each size the steps at which it came, the first few.
    """

    kind: str
    passes: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    steps: dict[int, list[int]] = field(default_factory=dict)

    @property
    def usual(self) -> int:
        """The most frequent size, 0 for none."""
        return max(self.counts, key=lambda size: self.counts[size], default=0)
