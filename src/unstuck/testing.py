"""Assertions about models for people's own test suites: what must hold before a long training is worth its time.

Each works on a copy of the model and leaves random states, loaders and optimisers as they are. The message of a failed
one carries what the diagnosis found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from unstuck.errors import MisconfigurationException
from unstuck.findings import Finding
from unstuck.trials.overfit.copies import copied_model
from unstuck.workflow.overfit import OptimizerOrMaker, overfit
from unstuck.workflow.trial import Observed, observe, outputs_of, score_at_start

__all__ = [
    "assert_all_parameters_train",
    "assert_finite_training",
    "assert_loss_at_init_near",
    "assert_no_batch_mixing",
    "assert_overfits",
]

Loss = Callable[[Any, Any], torch.Tensor]
Step = Callable[[torch.nn.Module, Any], torch.Tensor]


def assert_overfits(
    model: torch.nn.Module,
    data: Any,
    loss_fn: Loss | None = None,
    optimizer: OptimizerOrMaker | None = None,
    **options: Any,
) -> None:
    """The model can learn a few batches by heart.

    Args:
        model: the model; a copy is trained.
        data: a loader, a list of batches, or one batch.
        loss_fn: called as ``loss_fn(output, target)``.
        optimizer: an optimiser of the model or a function that makes one from parameters.
        options: as for :func:`unstuck.overfit`.

    Raises:
        AssertionError: it can't, or it isn't certain after so many steps; with curve, rates that would, and findings.
    """
    result = overfit(model, data, loss_fn, optimizer, **{"progress": False, **options})
    if not result.memorised:
        raise AssertionError(str(result))


def assert_all_parameters_train(
    model: torch.nn.Module,
    data: Any,
    loss_fn: Loss | None = None,
    optimizer: OptimizerOrMaker | None = None,
    *,
    step: Step | None = None,
    steps: int = 5,
    except_for: Sequence[str] = (),
) -> None:
    """Every parameter that requires a gradient gets one that isn't zero, and is changed by the optimiser.

    Args:
        model: the model; a copy is trained.
        data: a loader, a list of batches, or one batch.
        loss_fn: called as ``loss_fn(output, target)``.
        optimizer: an optimiser of the model or a function that makes one from parameters.
        step: in the place of ``loss_fn``, called as ``step(model, batch)``.
        steps: optimiser steps within which each parameter must have had its turn.
        except_for: names of parameters, or of modules with all theirs, for which it needn't hold.

    Raises:
        AssertionError: names the parameters.
    """
    seen = observe(model, data, loss_fn, optimizer, step=step, steps=steps)
    _refuse_failed_pass(seen)
    free = tuple(except_for)
    without = [name for name in seen.without_gradient if not _is_among(name, free)]
    still = [name for name in seen.unchanged if not _is_among(name, free) and name not in without]
    complaints = []
    if without:
        complaints.append(f"no gradient in {steps} step{'s' if steps > 1 else ''}: {_listed(without)}")
    if still:
        complaints.append(f"a gradient, but not changed by the optimizer: {_listed(still)}")
    if complaints:
        raise AssertionError(_message("; ".join(complaints), seen.findings))


def assert_finite_training(
    model: torch.nn.Module,
    data: Any,
    loss_fn: Loss | None = None,
    optimizer: OptimizerOrMaker | None = None,
    *,
    step: Step | None = None,
    steps: int = 20,
    batches: int = 4,
) -> None:
    """Losses, gradients and parameters stay finite over the first steps.

    Args:
        model: the model; a copy is trained.
        data: a loader, a list of batches, or one batch.
        loss_fn: called as ``loss_fn(output, target)``.
        optimizer: an optimiser of the model or a function that makes one from parameters.
        step: in the place of ``loss_fn``, called as ``step(model, batch)``.
        steps: how many.
        batches: how many different ones of the loader's.

    Raises:
        AssertionError: with the operation and line that made the first NaN or infinity.
    """
    seen = observe(model, data, loss_fn, optimizer, step=step, steps=steps, batches=batches)
    _refuse_failed_pass(seen)
    numerical = [item for item in seen.findings if item.code.startswith(("numerics.", "data.nonfinite"))]
    if numerical or not all(math.isfinite(loss) for loss in seen.losses) or seen.nonfinite:
        what = f"non-finite parameters: {_listed(seen.nonfinite)}" if seen.nonfinite else "a loss that isn't finite"
        raise AssertionError(_message(what if not numerical else "the training isn't finite", numerical))


def assert_loss_at_init_near(
    model: torch.nn.Module,
    data: Any,
    loss_fn: Loss,
    expected: float | None = None,
    *,
    tolerance: float = 0.25,
) -> None:
    """The untrained model scores about what knowing nothing scores.

    A first loss far above tells of outputs far too large or a wrong loss; one far below of labels in the inputs.

    Args:
        model: the model, untrained.
        data: a loader, a list of batches, or one batch; the first one counts.
        loss_fn: called as ``loss_fn(output, target)``.
        expected: for a classification into n classes ``math.log(n)``; the score of the best constant prediction on
            this batch if it is left out.
        tolerance: relative deviation that is allowed.

    Raises:
        AssertionError: with both numbers.
        MisconfigurationException: nothing is expected, and no constant prediction can be scored.
    """
    loss, constant = score_at_start(model, data, loss_fn)
    wanted = constant if expected is None else expected
    if wanted is None:
        raise MisconfigurationException(
            "the best constant prediction can't be found for this loss, or tells nothing here (a single sample, equal "
            "targets); give `expected`"
        )
    if not abs(loss - wanted) <= tolerance * abs(wanted):
        source = "of the best constant prediction" if expected is None else "expected"
        raise AssertionError(
            f"the loss of the untrained model is {loss:.4g}, {source} {wanted:.4g}: not within {100 * tolerance:g} %"
        )


def assert_no_batch_mixing(
    model: torch.nn.Module, inputs: Any, *, sample: int | None = None, training: bool = False
) -> None:
    """What a sample gives depends on no other sample of its batch.

    One sample is replaced by another one; only its own output may change. Looked at are the outputs that have the
    samples along their first dimension; a single number (a loss, the mean of an auxiliary term) is made of all samples
    by its nature, so it says nothing and is passed over.

    Args:
        model: called with ``inputs`` (a tensor; a tuple: arguments; a mapping: keyword arguments); a copy is.
        inputs: tensors with at least two samples along the first dimension.
        sample: the one that is replaced; the middle one if it is left out.
        training: in training mode, where batch norm mixes on purpose and dropout must draw the same twice.

    Raises:
        AssertionError: names the samples whose output changed.
        MisconfigurationException: there is only one sample or none that differs, or no output has the samples along its
            first dimension.
    """
    clone = copied_model(model)[0].train(training)
    leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor) and leaf.dim()]
    size = leaves[0].shape[0] if leaves else 0
    if size < 2:
        raise MisconfigurationException(f"mixing shows from two samples on, got {size}")
    if sample is not None and not -size <= sample < size:
        raise MisconfigurationException(f"`sample` must be one of the {size} samples, got {sample}")
    at = (size // 2 if sample is None else sample) % size
    changed = _with_another_sample(inputs, at, size)
    before, after = outputs_of(clone, inputs, size), outputs_of(clone, changed, size)
    if not before:
        raise MisconfigurationException(f"no output of the model has {size} samples along its first dimension")
    if [item.shape for item in before] != [item.shape for item in after]:
        raise MisconfigurationException(
            f"the outputs can't be compared: with another sample {at} their shapes are "
            f"{[tuple(item.shape) for item in after]} instead of {[tuple(item.shape) for item in before]}; give inputs "
            "for which they stay"
        )
    mixed: set[int] = set()
    for first, second in zip(before, after, strict=True):
        differs = ~torch.isclose(first, second, rtol=1e-4, atol=1e-6, equal_nan=True)
        mixed |= {int(index) for index in differs.reshape(size, -1).any(1).nonzero().flatten()}
    mixed.discard(at)
    if mixed:
        others = "1 other sample" if len(mixed) == 1 else f"{len(mixed)} other samples"
        raise AssertionError(
            f"sample {at} was replaced, and the outputs of {others} changed "
            f"({_listed([str(index) for index in sorted(mixed)])}): the model mixes the samples of a batch (which "
            "are taken to lie along the first dimension)"
        )


def _with_another_sample(inputs: Any, at: int, size: int) -> Any:
    """The inputs with another sample's values in the place of one.

    Raises:
        MisconfigurationException: all samples are the same, and hold no numbers that could be changed.
    """
    leaves = [item for item in tree_leaves(inputs) if isinstance(item, torch.Tensor) and item.shape[:1] == (size,)]
    others = [(at + step) % size for step in range(1, size)]
    donor = next((other for other in others if any(not torch.equal(leaf[at], leaf[other]) for leaf in leaves)), None)
    if donor is None and not any(leaf.is_floating_point() for leaf in leaves):
        raise MisconfigurationException("all samples are the same; mixing shows only between different ones")

    def replaced(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.shape[:1] != (size,):
            return leaf
        changed = leaf.clone()
        if donor is not None:
            changed[at] = leaf[donor]
        elif leaf.is_floating_point():
            changed[at] = leaf[at] + 1
        return changed

    return tree_map(replaced, inputs)


def _refuse_failed_pass(seen: Observed) -> None:
    if seen.refused is not None:
        raise AssertionError(_message("no step can be taken", [seen.refused]))


def _is_among(name: str, free: Sequence[str]) -> bool:
    return any(name == item or name.startswith(f"{item}.") for item in free)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


def _message(what: str, findings: Sequence[Finding]) -> str:
    told = []
    for item in findings:
        place = f" ({item.where.file}:{item.where.line})" if item.where.file else ""
        told.append(f"{item.severity.value} {item.code}{place}: {item.summary}")
        told += [f"  {item.remedy}"] if item.remedy else []
    return "\n".join([what, *told])
