"""What the batches and the optimiser of an overfit test show by themselves, before and beside any training.

The rules over a recording ask for many batches of a run. Here the few batches are all there is, and they are at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from unstuck.diagnosis.memorised import Memory
from unstuck.findings import Finding, Severity
from unstuck.trials.overfit.bounds import groups_of_equal_inputs
from unstuck.trials.overfit.training import Passed

__all__ = ["causes_at_hand", "is_unexplained", "nonfinite_input"]

_FEWEST = 4
"""Samples of a batch below which equal inputs are no sign."""

_TORN = 0.02
"""Share of samples that can't be right, from which on it is told."""


def causes_at_hand(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, passes: Sequence[Passed], memory: Memory
) -> list[Finding]:
    """Causes that need no recording.

    Args:
        model: the copy that was trained.
        optimizer: the one that should have trained it.
        passes: one over each batch.
        memory: what came of the training.
    """
    found = [
        _held_elsewhere(model, optimizer) if memory.verdict != "memorised" else None,
        nonfinite_input(passes),
        _constant(passes) if memory.verdict != "memorised" else None,
    ]
    told = [item for item in found if item is not None]
    if not told and memory.attainable is not None and memory.attainable <= 1.0 - _TORN:
        told.append(_conflicting(memory.attainable, memory.floor))
    return told


def _held_elsewhere(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Finding | None:
    own = {id(item): name for name, item in model.named_parameters() if item.requires_grad}
    held = [item for group in optimizer.param_groups for item in group["params"]]
    if not own or not held or any(id(item) in own for item in held):
        return None
    shapes = sorted(tuple(item.shape) for item in held)
    same = shapes == sorted(tuple(item.shape) for item in model.parameters())
    return Finding(
        "optim.stale-parameters",
        Severity.ERROR,
        f"{type(optimizer).__name__} holds {len(held)} parameter{'s' if len(held) > 1 else ''} and none of the model's"
        + (": those of another model of the same shapes" if same else ""),
        evidence={"parameters": list(own.values())[:8], "count": len(own), "held": len(held)},
        remedy="construct the optimizer from the parameters of the model that is trained, after it has been built",
    )


def _leading(inputs: Any) -> list[torch.Tensor]:
    return [item for item in tree_leaves(inputs) if isinstance(item, torch.Tensor) and item.dim() > 0]


def nonfinite_input(passes: Sequence[Passed]) -> Finding | None:
    """The first batch whose inputs hold NaN or infinity, and whose loss isn't finite."""
    for index, item in enumerate(passes):
        for values in _leading(item.inputs):
            if not values.is_floating_point() or bool(torch.isfinite(loss := item.loss.detach()).all()):
                continue
            bad = ~torch.isfinite(values.detach()).reshape(values.shape[0], -1).all(1)
            samples = bad.nonzero().flatten().tolist()
            if samples:
                verb = "hold" if len(samples) > 1 else "holds"
                return Finding(
                    "data.nonfinite-input",
                    Severity.ERROR,
                    f"{len(samples)} of {values.shape[0]} samples of batch {index} {verb} NaN or infinity, the first "
                    f"is number {samples[0]}: the loss is {float(loss):g}",
                    evidence={"batch": index, "samples": samples[:16]},
                    remedy="clean the data, or replace what is missing",
                    confirmed=True,
                )
    return None


def _constant(passes: Sequence[Passed]) -> Finding | None:
    sizes = []
    for item in passes:
        leaves = _leading(item.inputs)
        samples = leaves[0].shape[0] if leaves else 0
        target = item.target
        if not isinstance(target, torch.Tensor) or target.dim() == 0 or target.shape[0] != samples:
            return None
        varied = bool((target != target[:1]).any())
        if samples < _FEWEST or not varied or int(groups_of_equal_inputs(item.inputs, samples).max()) > 0:
            return None
        sizes.append(samples)
    if not sizes:
        return None
    return Finding(
        "data.constant-input",
        Severity.ERROR,
        f"all {sizes[0]} samples of a batch have the same input, and their targets differ",
        evidence={"samples": sizes},
        remedy="look at two samples of the dataset side by side; its __getitem__ must depend on the index",
        confirmed=True,
    )


def _conflicting(attainable: float, floor: float | None) -> Finding:
    below = "" if floor is None else f", and no loss below {floor:.3g}"
    return Finding(
        "data.conflicting-labels",
        Severity.WARNING,
        f"equal inputs carry different labels: at most {100 * attainable:.1f} % of the samples can be right{below}",
        evidence={"attainable accuracy": attainable, "floor of the loss": floor},
        remedy="find where equal inputs get different labels (merged sources, shortened or rounded inputs), and keep "
        "one label for each",
        confirmed=True,
    )


def is_unexplained(findings: Sequence[Finding]) -> bool:
    """Whether none of the findings is a cause."""
    return not any(item.severity is Severity.ERROR for item in findings)
