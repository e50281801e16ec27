"""optim.no-zero-grad: a step takes gradients that earlier steps have taken already, since nobody has cleared them.

``backward`` adds to what is there. Without clearing, or with clearing once per epoch, every step follows the sum of all
gradients so far, like a momentum of one: the loss falls at first and then runs away.

Found by following the gradients of a few parameters of each optimiser from step to step. Gathering gradients over
several passes before one step is wanted and isn't reported, nor are gradients that the program itself changes between
the step and the next pass (a decay, a trace), nor those that another loss leaves and that are cleared before use.
"""

from __future__ import annotations

from unstuck.diagnosis.optimizing import at_line
from unstuck.findings import Finding, Severity
from unstuck.record.order import OrderRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "optim.no-zero-grad"

FEWEST = 4
"""Steps that took old gradients, below which it is an accident."""

SHARE = 0.5
"""The same as a share of all steps."""


def rule(recording: Recording) -> list[Finding]:
    """One finding, for the optimiser with most such steps."""
    found = [item for item in recording.all(OrderRecord) if item.piled >= FEWEST and item.piled >= SHARE * item.judged]
    if not found:
        return []
    return [_finding(max(found, key=lambda item: item.piled))]


def _finding(order: OrderRecord) -> Finding:
    cleared = max(order.zero_at, key=lambda item: item.count, default=None)
    fed = max(order.fed_by, key=lambda item: item.count, default=None)
    # where clearing happens it happens at the wrong place; else it is missing around the pass
    chain = cleared.at if cleared is not None else (fed.at if fed is not None else order.made_at)
    often = (
        f"they are cleared {cleared.count} {'time' if cleared.count == 1 else 'times'} in {order.judged} steps"
        if cleared is not None
        else "they are never cleared"
    )
    return Finding(
        CODE,
        Severity.ERROR,
        f"gradients pile up: {order.piled} of {order.judged} steps of {order.kind} took gradients of earlier steps "
        f"with their own, since {often}",
        at_line(chain),
        {
            "steps": order.steps,
            "steps followed": order.judged,
            "with old gradients": order.piled,
            "cleared": sum(item.count for item in order.zero_at),
            "passes": order.fed,
            "optimizer": order.kind,
        },
        "call optimizer.zero_grad() once per step: before loss.backward(), or after optimizer.step()",
    )
