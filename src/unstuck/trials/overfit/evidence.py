"""What passes over a few batches tell together: the bounds of their mean loss, and which share is right."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unstuck.trials.overfit.bounds import Bounds, bounds_of, groups_of_equal_inputs
from unstuck.trials.overfit.scores import class_targets, hits
from unstuck.trials.overfit.training import Passed

__all__ = ["accuracy_over", "bounds_over", "mean_loss"]


def bounds_over(passes: Sequence[Passed]) -> Bounds:
    """The bounds of several batches' mean loss; none where the loss isn't a function of a tensor and a target."""
    found = []
    for item in passes:
        if item.loss_fn is None or not isinstance(item.output, torch.Tensor) or item.output.dim() == 0:
            return Bounds(None, None)
        groups = groups_of_equal_inputs(item.inputs, item.output.shape[0])
        found.append(bounds_of(item.loss_fn, item.output, item.target, groups))
    constant, floor = _mean([item.constant for item in found]), _mean([item.floor for item in found])
    return Bounds(constant, floor, all(_alike(item) for item in passes))


def _alike(passed: Passed) -> bool:
    """Whether a pass has a single sample, or the same target for all."""
    if passed.output.shape[0] == 1:
        return True
    target = passed.target
    fits = isinstance(target, torch.Tensor) and target.dim() > 0 and target.shape[0] == passed.output.shape[0]
    return fits and bool((target == target[:1]).all())


def accuracy_over(passes: Sequence[Passed]) -> tuple[float | None, float | None]:
    """(accuracy, the largest that the labels allow) over all decisions; None where the task is no classification."""
    right = best = count = 0
    for item in passes:
        classes = class_targets(item.output, item.target)
        if classes is None or classes[1].dim() == 0:
            return None, None
        counted = hits(*classes, groups_of_equal_inputs(item.inputs, classes[1].shape[0]))
        right, best, count = right + counted[0], best + counted[1], count + counted[2]
    return (right / count, best / count) if count else (None, None)


def mean_loss(passes: Sequence[Passed]) -> float | None:
    """Mean of the losses, None without any."""
    return _mean([float(item.loss) for item in passes])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
