"""What a model's outputs depend on: single samples of a kept step's input are replaced, then all of them.

The replacement is another sample of the same batch, so that it is valid whatever the input is: images, token ids,
graphs' features. The model is in evaluation mode, where normalisation doesn't look at the batch and dropout is off, and
every call begins with the same random state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from unstuck.record.trials import DependenceTrial
from unstuck.trials.rehearsal import Rehearsal, RehearsalError

__all__ = ["try_dependence"]

_TOLERANCE = 1e-5
"""Part of the outputs' size by which one must move to count as changed: kernels may add in another order."""

_PLACES = 4
"""Samples that are replaced, each by itself: what a sample is mixed into may have been forgotten on the way to the
outputs, as the first steps of a sequence are."""


def try_dependence(rehearsal: Rehearsal, samples: int | None) -> DependenceTrial:
    """Replace inputs of the first kept step's first module call, and see which outputs move.

    Args:
        rehearsal: open; the tensors of its first step are written to and put back.
        samples: of the batch, where that is known.

    Raises:
        RehearsalError: the call can't be made again, or it can't be told which of its numbers belong to which sample.
    """
    rehearsal.start_again()
    module, args, kwargs = rehearsal.first_call(0)
    inputs = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor) and item.dim()]
    count = samples if samples is not None else (inputs[0].shape[0] if inputs else 0)
    given = [(item, dim) for item in inputs if (dim := _dim_of_samples(item, count)) is not None]
    if count < 2 or not given:
        raise RehearsalError("the model's input has no dimension of the batch's size")
    with _evaluating(module), torch.no_grad():
        usual = _outputs(rehearsal, count)
        if any(not torch.equal(a, b) for a, b in zip(usual, _outputs(rehearsal, count), strict=True)):
            raise RehearsalError("the model gives another output each time")
        pairs = _different(given, count)
        if not pairs:
            raise RehearsalError("all samples of the batch are the same")
        place, touched = pairs[0][0], 0
        for replaced, other in pairs:
            with _replaced(given, [other if index == replaced else index for index in range(count)]):
                moved = _moved(usual, _outputs(rehearsal, count))
            if sum(moved) - moved[replaced]:
                place, touched = replaced, sum(moved) - moved[replaced]
                break
        with _replaced(given, [(index + 1) % count for index in range(count)]):
            turned = _moved(usual, _outputs(rehearsal, count))
    return DependenceTrial(
        samples=count,
        place=place,
        touched=touched,
        depends=any(turned),
        model=len(rehearsal.kept.models) == 1 and module in rehearsal.kept.models.values(),
    )


def _dim_of_samples(tensor: torch.Tensor, count: int) -> int | None:
    """The dimension along which a tensor holds its samples."""
    return next((dim for dim in range(min(2, tensor.dim())) if tensor.shape[dim] == count), None)


def _outputs(rehearsal: Rehearsal, count: int) -> list[torch.Tensor]:
    """What the call returns, (samples, numbers) each."""
    found = []
    for leaf in tree_leaves(rehearsal.output(0)):
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or not leaf.dim():
            continue
        dim = _dim_of_samples(leaf, count)
        if dim is not None:
            found.append(leaf.detach().movedim(dim, 0).reshape(count, -1).clone())
    if not found:
        raise RehearsalError("the model's output has no dimension of the batch's size")
    return found


def _different(given: Sequence[tuple[torch.Tensor, int]], count: int) -> list[tuple[int, int]]:
    """Places all over the batch, the first and the last among them, each with the place of a sample that differs."""
    found = []
    for place in sorted({round(part * (count - 1) / (_PLACES - 1)) for part in range(_PLACES)}):
        others = (other for other in range(count) if _differ(given, place, other))
        other = next(others, None)
        if other is not None:
            found.append((place, other))
    return found


def _differ(given: Sequence[tuple[torch.Tensor, int]], one: int, other: int) -> bool:
    return any(not torch.equal(item.select(dim, one), item.select(dim, other)) for item, dim in given)


def _moved(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> list[bool]:
    """For each sample whether its outputs have moved."""
    moved = [False] * before[0].shape[0]
    for old, new in zip(before, after, strict=True):
        size = float(old.abs().max()) if old.numel() else 0.0
        far = (new - old).abs().amax(1) > _TOLERANCE * size if old.numel() else torch.zeros(len(moved))
        moved = [a or bool(b) for a, b in zip(moved, far.tolist(), strict=True)]
    return moved


@contextlib.contextmanager
def _replaced(given: Sequence[tuple[torch.Tensor, int]], order: list[int]) -> Iterator[None]:
    """Inside, the samples lie in another order."""
    copies = [item.clone() for item, _ in given]
    try:
        for (item, dim), copy in zip(given, copies, strict=True):
            item.copy_(copy.index_select(dim, torch.tensor(order, device=item.device)))
        yield
    finally:
        for (item, _), copy in zip(given, copies, strict=True):
            item.copy_(copy)


@contextlib.contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    modes: list[tuple[Any, bool]] = [(part, part.training) for part in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for part, training in modes:
            part.training = training
