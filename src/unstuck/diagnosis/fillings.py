"""Which line has given a parameter the numbers that it begins with."""

from __future__ import annotations

from unstuck.diagnosis.layers import Graph
from unstuck.places import Frame
from unstuck.record.fillings import Filling
from unstuck.record.recording import Recording

__all__ = ["filled_at"]

_OTHERS = {"weight": ("bias", "running_mean", "running_var"), "bias": ("weight", "running_mean", "running_var")}


def filled_at(
    recording: Recording, graph: Graph, parameter: str | None, number: float | None = None
) -> tuple[Frame, ...]:
    """The user's lines down to the one that filled a parameter, as far as it can be told; empty where it can't.

    A call of ``torch.nn.init`` is known for certain. Else a line that writes by hand into something of the
    parameter's name, or of a name that tells nothing (``p``), if there is only one such line.

    Args:
        recording: of the run.
        graph: of the first anatomy.
        parameter: dotted path.
        number: the number that all of its elements are, if they are equal.
    """
    told = graph.filled_at(parameter)
    if told or parameter is None:
        return told
    name = parameter.rpartition(".")[2]
    kind = "bias" if name.startswith("bias") else "weight"
    made = graph.made_at(parameter)
    likely = [
        item
        for item in recording.all(Filling)
        if item.target == name or (item.target not in _OTHERS[kind] and _is_loose(item, made))
    ]
    if number is not None:
        exact = [item for item in likely if item.number is not None and abs(item.number - number) <= 1e-6 * abs(number)]
        likely = exact or [item for item in likely if item.number is None]
    else:
        likely = [item for item in likely if item.how not in ("fill", "zero")]
    named = [item for item in likely if item.target == name] or likely
    lines = {(item.file, item.line) for item in named}
    if len(lines) != 1:
        return ()
    return (Frame(named[0].file, named[0].line, named[0].function),)


def _is_loose(item: Filling, made: tuple[Frame, ...]) -> bool:
    """Whether a line may be meant for any parameter: its target has a short name, in a file that makes the model."""
    return item.target in ("p", "param", "parameter", "params", "w", "tensor", "data", "t") and (
        not made or item.file in {frame.file for frame in made}
    )
