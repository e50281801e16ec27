"""What passes over a few batches tell together: the bounds of their mean loss, and which share is right."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from unstuck.trials.overfit.bounds import Bounds, bounds_of, groups_of_equal_inputs, in_full_precision
from unstuck.trials.overfit.scores import class_targets, hits
from unstuck.trials.overfit.training import Passed

__all__ = ["accuracy_over", "bounds_over", "mean_loss", "term_at_chance"]

_DRAWS = 2
"""Times that scores are drawn to see for which decisions a loss asks."""

_HALF = 0.5
"""Share of the way from a constant prediction to the floor below which a term counts as not learnt."""

_DIFFERENCE = 0.05
"""Share of a loss by which it must differ between right scores and wrong ones to be one of a classification."""


def bounds_over(passes: Sequence[Passed]) -> Bounds:
    """The bounds of several batches' mean loss; none where the loss isn't a fixed function of a tensor and a target.

    A constant prediction is the same for all samples of all batches, where their shapes allow that.
    """
    if not passes or not all(_is_function(item) for item in passes):
        return Bounds(None, None)
    if len(passes) == 1 or not _fit_together(passes):
        found = [
            bounds_of(_loss(item), item.output, item.target, groups_of_equal_inputs(item.inputs, len(item.output)))
            for item in passes
        ]
        constant, floor = _mean([item.constant for item in found]), _mean([item.floor for item in found])
        return Bounds(constant, floor, all(_alike(item) for item in passes))
    sizes = [len(item.output) for item in passes]

    made_of = [(_loss(item), in_full_precision(item.target)) for item in passes]

    def mean_of_all(output: torch.Tensor, target: object) -> torch.Tensor:
        parts = [loss(part, wanted) for (loss, wanted), part in zip(made_of, output.split(sizes), strict=True)]
        return torch.stack([part.reshape(()) for part in parts]).mean()

    inputs = [tree_leaves(item.inputs) for item in passes]
    groups = groups_of_equal_inputs([torch.cat(parts) for parts in zip(*inputs, strict=True)], sum(sizes))
    first = passes[0].target
    same = isinstance(first, torch.Tensor) and all(_same_wish(first, item.target) for item in passes)
    found_all = bounds_of(mean_of_all, torch.cat([item.output.detach() for item in passes]), None, groups)
    return Bounds(found_all.constant, found_all.floor, same and all(_alike(item) for item in passes))


def _is_function(item: Passed) -> bool:
    """Whether a pass's loss is a fixed function of a tensor with samples."""
    known = item.loss_fn is not None and not _is_trained(item.loss_fn)
    return known and isinstance(item.output, torch.Tensor) and item.output.dim() > 0


def _loss(item: Passed) -> Callable[[Any, Any], torch.Tensor]:
    """The loss of a pass that has one, in full precision."""
    assert item.loss_fn is not None
    loss_fn: Callable[[Any, Any], torch.Tensor] = in_full_precision(item.loss_fn)
    return loss_fn


def _fit_together(passes: Sequence[Passed]) -> bool:
    """Whether batches differ in nothing but their number of samples, so that they can be put one behind the other."""
    kinds = set()
    for item in passes:
        leaves = tree_leaves(item.inputs)
        if not all(isinstance(leaf, torch.Tensor) and leaf.shape[:1] == item.output.shape[:1] for leaf in leaves):
            return False
        kinds.add((item.output.shape[1:], item.output.dtype, *((leaf.shape[1:], leaf.dtype) for leaf in leaves)))
    return len(kinds) == 1


def _same_wish(first: torch.Tensor, target: object) -> bool:
    """Whether the first samples of two targets want the same."""
    if not isinstance(target, torch.Tensor) or target.dim() == 0 or target.shape[1:] != first.shape[1:]:
        return False
    return torch.equal(first[:1], target[:1])


def _is_trained(loss_fn: object) -> bool:
    return isinstance(loss_fn, torch.nn.Module) and any(item.requires_grad for item in loss_fn.parameters())


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
        if classes is None or classes[1].dim() == 0 or not _takes_scores(item, classes[1]):
            return None, None
        groups = groups_of_equal_inputs(item.inputs, classes[1].shape[0])
        counted = hits(*classes, groups, _in_loss(item, classes[1]))
        right, best, count = right + counted[0], best + counted[1], count + counted[2]
    return (right / count, best / count) if count else (None, None)


def _takes_scores(passed: Passed, wanted: torch.Tensor) -> bool:
    """Whether a loss wants a high score for each sample's own class.

    One that compares samples with one another (a contrastive one) doesn't care which number a class has.
    """
    output = passed.output.detach()
    if passed.loss_fn is None or not bool(output.isfinite().all()) or bool((output == output.flatten()[0]).all()):
        return False
    low, high = output.min(), output.max()

    def scored(classes: torch.Tensor) -> float:
        assert passed.loss_fn is not None
        if output.numel() == wanted.numel():
            scores = torch.where(classes.reshape(output.shape) > 0, high, low)
        else:
            dim = _class_dim(output, wanted)
            scores = torch.full_like(output, float(low)).scatter_(dim, classes.unsqueeze(dim), float(high))
        return float(passed.loss_fn(scores, passed.target))

    count = 2 if output.numel() == wanted.numel() else _classes(output, wanted)
    right = wanted.clamp(0, count - 1)
    try:
        with torch.no_grad():
            own, others = scored(right), scored((right + 1) % count)
    except Exception:  # noqa: BLE001 - the user's loss takes no such scores
        return False
    return abs(own - others) > _DIFFERENCE * max(abs(own), abs(others))


def _in_loss(passed: Passed, wanted: torch.Tensor) -> torch.Tensor | None:
    """For which decisions the loss asks, like ``wanted``; None where that can't be told.

    A target that is ignored (by whatever number, or by a mask) gives the scores of its decision no gradient, whatever
    those are. Scores between 0 and 1 are drawn, since certain ones may have none in the format's arithmetic either;
    where the decisions depend on the scores (the hardest ones count), all do.
    """
    assert passed.loss_fn is not None
    output = passed.output.detach()
    draws = torch.Generator().manual_seed(0)
    found = []
    try:
        with torch.enable_grad():
            for _ in range(_DRAWS):
                scores = torch.rand(output.shape, generator=draws).to(output).requires_grad_()
                (gradient,) = torch.autograd.grad(passed.loss_fn(scores, passed.target), scores)
                if not bool(gradient.isfinite().all()):
                    return None
                if output.numel() != wanted.numel():
                    gradient = gradient.abs().amax(_class_dim(output, wanted))
                found.append(gradient.reshape(wanted.shape) != 0)
    except Exception:  # noqa: BLE001 - the user's loss takes no such scores
        return None
    return found[0] if bool(found[0].any()) and all(torch.equal(found[0], item) for item in found) else None


def _class_dim(output: torch.Tensor, wanted: torch.Tensor) -> int:
    return 1 if tuple(output.shape[:1] + output.shape[2:]) == tuple(wanted.shape) else -1


def _classes(output: torch.Tensor, wanted: torch.Tensor) -> int:
    return output.shape[_class_dim(output, wanted)]


def term_at_chance(passes: Sequence[Passed]) -> str:
    """The first of a loss's terms that is hardly better than a constant prediction, in words; empty without one."""
    names = {tuple(term.name for term in item.terms) for item in passes}
    if len(names) != 1:
        return ""
    for term in zip(*(item.terms for item in passes), strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the loss warns of has been told by the step itself
            bounds = bounds_over(term)
        reached = mean_loss(term)
        if bounds.alike or bounds.constant is None or bounds.floor is None or reached is None:
            continue
        way = bounds.constant - bounds.floor
        if way > _DIFFERENCE * abs(bounds.constant) and bounds.constant - reached < _HALF * way:
            return (
                f"its term {term[0].name} stands at {reached:.4g}, where a constant prediction would score "
                f"{bounds.constant:.4g}"
            )
    return ""


def mean_loss(passes: Sequence[Passed]) -> float | None:
    """Mean of the losses, None without any."""
    return _mean([float(item.loss.detach()) for item in passes])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
