"""optim.no-step: parameters never change, since nothing steps them or since there is never a gradient to take.

``step`` is never called, is named but not called (``optimizer.step``), or is called on another optimiser; or
``backward`` is never called, so that every step is empty (in Lightning: ``training_step`` returns no loss).

Found by following each optimiser: passes leave gradients in what it holds and it never steps, and nothing else changes
these parameters either; or it steps, and in the whole run no pass leaves any gradient anywhere. Without an optimiser:
no parameter changes, and the program has a line that computes a new value from a gradient and drops it.
"""

from __future__ import annotations

from unstuck.diagnosis.wiring import connections, place, uncalled
from unstuck.findings import Finding, Severity, Where
from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy
from unstuck.record.connections import Connections, ParameterRecord
from unstuck.record.order import OrderRecord
from unstuck.record.recording import Recording

__all__ = ["CODE", "rule"]

CODE = "optim.no-step"

FEWEST = 8
"""Passes without a step, or empty steps, before which it may still come."""

NEAR = 12
"""Lines behind a pass in which its step is looked for."""

IN_VAIN = 0.9
"""Share of a line's steps without a new gradient from which it is the wrong optimiser's."""


def rule(recording: Recording) -> list[Finding]:
    """One finding."""
    record = connections(recording)
    orders = recording.all(OrderRecord)
    if record is None:
        return []
    if not orders:
        return _by_hand(record)
    passes = sum(item.count for item in record.passes)
    empty = [item for item in orders if item.judged >= FEWEST and item.bare >= item.judged]
    if not passes and empty and len(empty) == sum(item.steps > 0 for item in orders):
        return [_no_backward(recording, record, max(empty, key=lambda item: item.steps))]
    if any(item.skipped for item in recording.scalers):
        return []  # the program does step: its loss scaler has dropped the steps
    for order in orders:
        if order.steps == 0 and order.fed >= FEWEST and _stand_still(record, order):
            return [_never_stepped(record, orders, order)]
    return []


def _by_hand(record: Connections) -> list[Finding]:
    """Without an optimiser: an update written by hand whose result is put nowhere."""
    lines = [item for item in record.statements if item.kind == "dropped_update"]
    fed = [item for item in record.parameters if item.fed >= FEWEST]
    if not lines or not fed or any(item.changed for item in record.parameters):
        return []
    first = lines[0]
    return [
        Finding(
            CODE,
            Severity.ERROR,
            f"{len(fed)} parameters get gradients and never change: the new value that this line computes is a new "
            "tensor, which no parameter becomes",
            Where(file=first.file, line=first.line),
            {"statement": first.text.strip(), "passes looked at": sum(item.count for item in record.passes)},
            "change the parameter in place, under torch.no_grad(): p -= lr * p.grad or p.sub_(lr * p.grad)",
        )
    ]


def _stand_still(record: Connections, order: OrderRecord) -> bool:
    """Whether what an optimiser holds is trained by nobody."""
    own = [item for item in record.parameters if order.number in item.held_by]
    fed = [item for item in own if item.fed]
    return bool(fed) and not any(item.changed or _others(record, item) for item in fed)


def _others(record: Connections, item: ParameterRecord) -> bool:
    return any(record.holders[number].steps for number in item.held_by)


def _no_backward(recording: Recording, record: Connections, order: OrderRecord) -> Finding:
    step = max(order.step_at, key=lambda item: item.count).at if order.step_at else ()
    where = _uncalled(record, "backward") or place(_pass_line(recording, step) if order.closure else step)
    return Finding(
        CODE,
        Severity.ERROR,
        f"{order.kind} has stepped {order.steps} times without any gradient: nothing has called backward, so no "
        "parameter ever changes",
        where,
        {"steps": order.steps, "backward passes": 0, "optimizer": order.kind},
        "return the loss from training_step"
        if order.closure
        else "call loss.backward() before optimizer.step(), on a loss that is computed from the model's output",
    )


def _pass_line(recording: Recording, step: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Where the program's part of a step computes its loss: the first line inside of what steps it."""
    for anatomy in recording.all(Anatomy):
        for mark in anatomy.marks:
            chain = anatomy.chain(mark.chain)
            if mark.kind == "call" and len(chain) > len(step) and chain[: len(step)] == step:
                return chain[: len(step) + 1]
    return step


def _never_stepped(record: Connections, orders: list[OrderRecord], order: OrderRecord) -> Finding:
    fed = max(order.fed_by, key=lambda item: item.count)
    wrong = [
        site
        for other in orders
        for site in other.step_at
        if other is not order and site.count >= FEWEST and site.in_vain >= IN_VAIN * site.count
    ]
    where = _uncalled(record, "step") or place(wrong[0].at if wrong else _unreached(record, orders, fed.at))
    own = sum(order.number in item.held_by for item in record.parameters)
    how = "another optimizer is stepped in its place" if wrong else "its step is never called"
    return Finding(
        CODE,
        Severity.ERROR,
        f"{order.kind} with {own} parameters never steps although {order.fed} passes left gradients for it: {how}",
        where,
        {
            "passes": order.fed,
            "steps": 0,
            "parameters": own,
            "optimizer": order.kind,
            "made at line": order.made_at[-1].line if order.made_at else None,
        },
        "call optimizer.step() after loss.backward()",
    )


def _unreached(record: Connections, orders: list[OrderRecord], passed: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The line near a pass that would step, and is never reached; the pass itself if there is none."""
    reached = {(site.at[-1].file, site.at[-1].line) for order in orders for site in order.step_at if site.at}
    last = passed[-1]
    lines = [
        item.line
        for item in record.statements
        if item.kind == "step" and item.file == last.file and (item.file, item.line) not in reached
    ]
    after = [line for line in lines if last.line < line <= last.line + NEAR]
    return (*passed[:-1], Frame(last.file, min(after), last.function)) if after else passed


def _uncalled(record: Connections, method: str) -> Where | None:
    """A statement that names a method without calling it."""
    found = uncalled(record, method)
    return None if found is None else Where(file=found.file, line=found.line)
