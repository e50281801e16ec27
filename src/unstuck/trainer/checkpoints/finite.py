"""Weights that are NaN or infinite: a checkpoint of them must not take the place of a good one."""

from __future__ import annotations

import os
from pathlib import Path

from torch import nn

from unstuck.measure.finiteness import all_finite, first_nonfinite
from unstuck.messages import rank_zero_warn
from unstuck.trainer.checkpoints.files import exists, is_remote

__all__ = ["keep_finite", "nonfinite_weight"]


def nonfinite_weight(module: nn.Module) -> str | None:
    """Name of the first trained weight, or running statistic of a normalisation, that holds NaN or infinity.

    Frozen parameters and other buffers are left out: masks may hold infinity on purpose.
    """
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    for prefix, child in module.named_modules():
        for name in ("running_mean", "running_var"):
            statistic = child._buffers.get(name)
            if statistic is not None:
                named.append((f"{prefix}.{name}" if prefix else name, statistic))
    tensors = [tensor for _, tensor in named if not nn.parameter.is_lazy(tensor)]
    if not tensors or all_finite(tensors):
        return None
    index = first_nonfinite(tensors)
    return None if index is None else named[index][0]


def keep_finite(module: nn.Module, path: str | os.PathLike[str]) -> str:
    """The path where a checkpoint of the module is saved: ``path``, or one beside it for weights that aren't finite
    where there is a file already.
    """
    text = os.fspath(path)
    name = nonfinite_weight(module)
    if name is None:
        return text
    if not exists(text):
        rank_zero_warn(f"The checkpoint {text!r} is saved with weights that aren't finite ({name}).")
        return text
    folder, _, file = text.rpartition("/") if is_remote(text) else (str(Path(text).parent), "", Path(text).name)
    stem, suffix = os.path.splitext(file)
    beside = f"{folder}/{stem}-nonfinite{suffix}"
    rank_zero_warn(
        f"The weights aren't finite ({name}), so {text!r}, which is there already, isn't replaced: the checkpoint is"
        f" saved as {beside!r}."
    )
    return beside
