"""In which mode modules train and are evaluated, where the mode has an effect: plain data, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from unstuck.places import Frame

__all__ = ["EvaluationRecord", "ModeRecord"]


@dataclass
class ModeRecord:
    """One module that acts differently in the two modes, and that is part of what an optimiser trains.

    Attributes:
        path: dotted path.
        kind: ``dropout`` or ``batch norm``.
        on: steps whose passes it was in train mode for.
        off: steps whose passes it was in eval mode for.
        off_since: step at which the stretch in eval mode began that lasts to the end; None if there is none.
        fresh: for batch norm, whether its statistics were still those of a new layer when it was seen in eval mode.
        within: path of the outermost module that was in eval mode with all that it holds; empty for a whole model.
        whole: that module is a whole model.
        itself: eval mode was set on the layer itself, not on something around it.
        trains: parameters of that outermost module are trained.
        set_at: the user's lines that set eval mode; empty if that wasn't seen.
        made_at: the user's lines that made that outermost module.
        returned: the line that set it returns the module: it makes modules for others.
    """

    path: str
    kind: str
    on: int = 0
    off: int = 0
    off_since: int | None = None
    fresh: bool = False
    within: str = ""
    whole: bool = False
    itself: bool = False
    trains: bool = False
    set_at: tuple[Frame, ...] = ()
    made_at: tuple[Frame, ...] = ()
    returned: bool = False


@dataclass
class EvaluationRecord:
    """A line that calls a trained model without recording gradients.

    Attributes:
        at: the user's lines down to the call.
        path: the module.
        active: calls with active dropout or batch statistics, counted once between two steps.
        still: calls without.
        steps: steps that were complete at the first calls of that kind.
        repeated: the same input was given several times in a row: the spread is wanted.
        forced: train mode was set for it on purpose, in the same function.
        kinds: what is active.
    """

    at: tuple[Frame, ...]
    path: str
    active: int = 0
    still: int = 0
    steps: list[int] = field(default_factory=list)
    repeated: bool = False
    forced: bool = False
    kinds: list[str] = field(default_factory=list)
