"""In which order a program computes, clears and takes the gradients of each optimiser: plain data, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from unstuck.places import Frame

__all__ = ["OrderRecord", "Site"]


@dataclass
class Site:
    """One line that does something to an optimiser's gradients.

    Attributes:
        at: the user's lines down to it.
        count: how often.
        in_vain: of a ``step``, calls without a gradient that came since the step before.
        before: of a ``backward``, steps of any optimiser that were complete at its first call.
    """

    at: tuple[Frame, ...]
    count: int = 0
    in_vain: int = 0
    before: int = 0


@dataclass
class OrderRecord:
    """One optimiser.

    A pass *feeds* an optimiser when it leaves gradients in parameters that it holds.

    Attributes:
        number: place among the optimisers, as :class:`unstuck.record.connections.Connections` counts them.
        kind: class name.
        made_at: the user's lines that constructed it.
        parameters: how many it holds.
        steps: steps that it took.
        judged: of these, the ones that were followed; what follows counts among them.
        first_step: steps of any optimiser that were complete before its first one.
        last_step: the same for its last one.
        bare: steps at which none of its parameters had a gradient.
        fresh: steps that took gradients which a pass had left since the one before, and no older ones.
        piled: steps that took, with those of new passes, gradients that an earlier step had taken already.
        cleared: steps before which passes had fed it, and gradients had been cleared again.
        micro: steps before which gradients of the same line were cleared between passes, so that only the last one's
            count, without a step of anybody in between.
        micro_passes: passes whose gradients were lost in this way.
        apart: steps before which gradients of another line than the last pass's were cleared by a call, without a step
            of anybody in between.
        apart_at: the line of such a call.
        fed: passes that fed it.
        fed_by: the lines of these passes.
        step_at: lines that step it.
        zero_at: lines that clear its gradients.
        cleared_at: line that cleared gradients before a step could take them.
        closure: its steps run a closure.
        manual: steps whose gradients no pass had left: the program sets them itself.
        reworked: steps whose gradients the program had changed itself, by other means than torch's clipping.
    """

    number: int
    kind: str
    made_at: tuple[Frame, ...] = ()
    parameters: int = 0
    steps: int = 0
    judged: int = 0
    first_step: int | None = None
    last_step: int | None = None
    bare: int = 0
    fresh: int = 0
    piled: int = 0
    cleared: int = 0
    micro: int = 0
    micro_passes: int = 0
    apart: int = 0
    apart_at: tuple[Frame, ...] = ()
    fed: int = 0
    fed_by: list[Site] = field(default_factory=list)
    step_at: list[Site] = field(default_factory=list)
    zero_at: list[Site] = field(default_factory=list)
    cleared_at: tuple[Frame, ...] = ()
    closure: bool = False
    manual: int = 0
    reworked: int = 0
