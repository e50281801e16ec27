"""optim.grad-cleared: gradients are cleared after backward has computed them and before the step takes them.

Either all of them (``zero_grad`` stands between ``backward`` and ``step``: nothing is learnt), or all but the last
pass's, where gradients are meant to be gathered over several passes and are cleared before each.

Found by following the gradients of a few parameters of each optimiser, however they are cleared. The second kind needs
the same line to compute gradients several times per step, with clearing in between, in four of five steps; passes
of another line, which another network or an attack on the input needs, are reported only where a part of the
parameters that only such a pass trains never changes; gradients that the program collects and puts back itself are not.
"""

from __future__ import annotations

from unstuck.diagnosis.optimizing import at_line
from unstuck.diagnosis.wiring import FEW, common_module, connections, told
from unstuck.findings import Finding, Severity
from unstuck.places import Frame
from unstuck.record.connections import Connections, ParameterRecord
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
    if micro:
        return [_micro(max(micro, key=lambda item: item.micro))]
    return _of_another_loss(connections(recording), orders)


def _of_another_loss(record: Connections | None, orders: list[OrderRecord]) -> list[Finding]:
    """Of two losses with a pass each, the first one's gradients are cleared: what only it trains stands still."""
    for order in orders:
        if record is None or order.apart < FEWEST or order.apart < MICRO_SHARE * order.judged:
            continue
        own = [item for item in record.parameters if order.number in item.held_by and item.present]
        still = [item for item in own if item.fed >= FEW and not item.changed]
        if still and any(item.changed for item in own):
            return [_lost(order, still)]
    return []


def _lost(order: OrderRecord, still: list[ParameterRecord]) -> Finding:
    module = common_module([item.path.rpartition(".")[0] for item in still])
    return Finding(
        CODE,
        Severity.ERROR,
        f"gradients of one loss are cleared before another one's backward pass, in {order.apart} of {order.judged} "
        f"steps of {order.kind}: {told(still, module)} get gradients and never change",
        at_line(order.apart_at),
        {
            "steps": order.steps,
            "steps without the first gradients": order.apart,
            "parameters": [item.path for item in still[:8]],
            "optimizer": order.kind,
        },
        "clear gradients once per step, before the first backward pass, or call backward on the sum of the losses",
    )


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
