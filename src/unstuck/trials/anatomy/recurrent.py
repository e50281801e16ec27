"""A recurrent layer of torch as one operation: what it takes, what it makes, which samples its results belong to.

On some machines such a layer is one operation of ATen, on others hundreds for each sequence, and nothing in between is
the user's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from unstuck.trials.tracing.lineage import reduced

__all__ = ["inputs_of", "is_recurrent", "outputs_of", "settings_of", "shadows_of"]

_LAYERS = (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU)
_SETTINGS = ("mode", "input_size", "hidden_size", "num_layers", "batch_first", "dropout", "bidirectional", "training")

Shadow = torch.Tensor


def is_recurrent(module: torch.nn.Module) -> bool:
    """Whether a module is a recurrent layer as torch has it."""
    return type(module) in _LAYERS


def inputs_of(module: torch.nn.Module, args: Any) -> list[tuple[str, torch.Tensor]]:
    """(argument, tensor): the sequence, first states where some are given, the weights."""
    found: list[tuple[str, torch.Tensor]] = []
    for position, value in enumerate(args if isinstance(args, tuple) else (args,)):
        name = "input" if position == 0 else "hx"
        if isinstance(value, PackedSequence):
            found.append((name, value.data))
        else:
            found += [(name, item) for item in (value if isinstance(value, tuple) else (value,))]
    found += [("weight", parameter) for parameter in module.parameters(recurse=False)]
    return [(name, item) for name, item in found if isinstance(item, torch.Tensor)]


def outputs_of(result: Any) -> list[torch.Tensor]:
    """The states of all times, and the last ones."""
    states, last = result
    found = [states.data if isinstance(states, PackedSequence) else states]
    return found + list(last if isinstance(last, tuple) else (last,))


def settings_of(module: torch.nn.Module, args: Any) -> dict[str, Any]:
    """What the layer was made with."""
    packed = bool(args) and isinstance(args[0], PackedSequence)
    return {name: getattr(module, name) for name in _SETTINGS} | {"packed": packed}


def shadows_of(module: torch.nn.Module, args: Any, result: Any, shadow: Shadow | None) -> list[Shadow | None]:
    """The shadows of the results; each depends on its sample's inputs at all times.

    Args:
        module: the layer.
        args: its positional arguments.
        result: what it returned.
        shadow: of the sequence that it took.
    """
    outputs = outputs_of(result)
    if shadow is None:
        return [None] * len(outputs)
    sequence = args[0]
    if isinstance(sequence, PackedSequence):
        rows = reduced(shadow, [1])
        first = rows[: int(sequence.batch_sizes[0])]
        if sequence.unsorted_indices is not None and first.shape[0] > 1:
            first = first[sequence.unsorted_indices.cpu()]
        return [rows, *(first.unsqueeze(0) for _ in outputs[1:])]
    if shadow.dim() == 2:  # one sequence without a dimension for samples
        whole = reduced(shadow, [0, 1])
        return [whole.expand((1,) * output.dim()) for output in outputs]
    batch = 0 if bool(module.batch_first) else 1
    rest = reduced(shadow, [dim for dim in range(3) if dim != batch])
    samples = rest.reshape(1, -1, 1)
    return [rest, *(samples for _ in outputs[1:])]
