"""optim.grad-cleared: gradients are cleared after backward has computed them and before the step takes them.

Either all of them (``zero_grad`` stands between ``backward`` and ``step``: nothing is learnt), or all but the last
pass's, where gradients are meant to be gathered over several passes and are cleared before each.

Found by following the gradients of a few parameters of each optimiser, however they are cleared. The second kind needs
the same line to compute gradients several times per step, with clearing in between, in four of five steps; passes
of another line, which another network or an attack on the input needs, and gradients that the program collects and puts
back itself are not reported.
"""

from __future__ import annotations

from unstuck.diagnosis.optimizing import at_line
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.order import OrderRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "optim.grad-cleared"

FEWEST = 4
"""Steps below which it is an accident."""

SHARE = 0.5
"""Share of all steps that found their gradients cleared."""

MICRO_SHARE = 0.8
"""Share of all steps before which gradients were lost between passes."""


def rule(recording: Recording) -> list[Finding]:
    """One finding per kind, for the optimiser with most such steps."""
    orders = recording.all(OrderRecord)
    cleared = [item for item in orders if item.cleared >= FEWEST and item.cleared >= SHARE * item.judged]
    if cleared:
        return [_cleared(max(cleared, key=lambda item: item.cleared))]
    micro = [item for item in orders if item.micro >= FEWEST and item.micro >= MICRO_SHARE * item.judged]
    return [_micro(max(micro, key=lambda item: item.micro))] if micro else []


def _line(order: OrderRecord) -> tuple[Frame, ...]:
    steps = max(order.step_at, key=lambda item: item.count, default=None)
    return order.cleared_at or (steps.at if steps is not None else order.made_at)


def _cleared(order: OrderRecord) -> Finding:
    return Finding(
        CODE,
        Severity.ERROR,
        f"gradients are cleared between backward and the step: {order.cleared} of {order.judged} steps of {order.kind} "
        "had nothing to take",
        at_line(_line(order)),
        {"steps": order.steps, "steps without their gradients": order.cleared, "optimizer": order.kind},
        "clear gradients before loss.backward() or after optimizer.step(), never between them",
    )


def _micro(order: OrderRecord) -> Finding:
    passes = 1 + order.micro_passes / order.micro
    return Finding(
        CODE,
        Severity.WARNING,
        f"gradients are cleared before each pass although {order.kind} steps only every {passes:.3g} passes: all but "
        "those of the last pass are lost",
        at_line(_line(order)),
        {
            "steps": order.steps,
            "passes per step": passes,
            "passes lost": order.micro_passes,
            "optimizer": order.kind,
        },
        "clear gradients once per step, right after optimizer.step(), not once per pass",
    )
