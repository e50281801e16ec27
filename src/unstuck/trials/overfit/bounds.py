"""What the best constant prediction would score on a batch, and what the best prediction at all would.

Both are found by minimising the loss over the predictions themselves, without a model, so they hold for any
differentiable loss: label smoothing, soft labels, weights and masks are part of it. Equal inputs get equal predictions,
so that conflicting labels show as a floor above zero.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["Bounds", "bounds_of", "groups_of_equal_inputs", "in_full_precision"]

Loss = Callable[[torch.Tensor, Any], torch.Tensor]

_ITERATIONS = 200
_FAR = 1e3
"""Standard deviations of a prediction at which a loss is looked at once more."""

_SMALL = 1e-2
"""Loss at the start below which it is scaled up to be minimised."""
_BOTTOMLESS = 50.0
"""Standard deviations of a prediction below which a falling loss is taken to have no lower end."""

_HISTORY, _NUMBERS_KEPT = 20, 40_000_000
"""Steps that the minimiser remembers, fewer where predictions hold so many numbers that memory would count."""

_MOST_NUMBERS = 20_000_000
"""Of a batch's predictions; larger ones would take gigabytes to minimise over, so that their bounds stay unknown."""

_SECONDS = 10.0
"""For each bound; a loss that isn't minimised by then has no known one."""


@dataclass(frozen=True)
class Bounds:
    """Two losses of a batch.

    Attributes:
        constant: of the best prediction that is the same for every sample; None where it can't be found.
        floor: of the best prediction that is a function of the input; None where the loss has no lower end or it
            can't be found.
        alike: whether there is but one sample, or all want the same, so that the best prediction is a constant one.
    """

    constant: float | None
    floor: float | None
    alike: bool = False


def bounds_of(loss_fn: Loss, output: torch.Tensor, target: Any, groups: torch.Tensor) -> Bounds:
    """Both bounds of one batch.

    Args:
        loss_fn: called with a prediction like ``output`` and ``target``; a scalar.
        output: predictions of a model, (samples, ...): their shape and range are what counts. Half precision is judged
            in float32.
        target: as the loss takes it.
        groups: (samples,) equal numbers for equal inputs, counted from 0.
    """
    if output.dim() == 0 or output.shape[0] != groups.shape[0] or not output.is_floating_point():
        return Bounds(None, None)
    if output.numel() > _MOST_NUMBERS:
        return Bounds(None, None)
    alike = torch.zeros_like(groups)
    # in half precision the steps between numbers would be taken for the lowest loss
    loss_fn, output, target = in_full_precision(loss_fn), in_full_precision(output), in_full_precision(target)
    with torch.enable_grad():
        return Bounds(_lowest(loss_fn, output, target, alike), _lowest(loss_fn, output, target, groups))


def in_full_precision(item: Any) -> Any:
    """The same with half precision replaced by float32, in tensors, containers of them, and a loss's own weights."""
    if isinstance(item, torch.nn.Module):
        halves = [value for value in (*item.parameters(), *item.buffers()) if _is_half(value)]
        return copy.deepcopy(item).float() if halves else item
    if not any(isinstance(leaf, torch.Tensor) and _is_half(leaf) for leaf in tree_leaves(item)):
        return item
    return tree_map(
        lambda leaf: leaf.detach().float() if isinstance(leaf, torch.Tensor) and _is_half(leaf) else leaf, item
    )


def _is_half(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() < 4


def groups_of_equal_inputs(inputs: Any, samples: int) -> torch.Tensor:
    """(samples,) a number for each sample; samples with the same number have equal inputs.

    Args:
        inputs: any nesting of tensors; those whose leading dimension is ``samples`` count.
        samples: how many there are.
    """
    leaves = [
        item.detach().reshape(samples, -1).cpu().double()
        for item in tree_leaves(inputs)
        if isinstance(item, torch.Tensor) and item.dim() and item.shape[0] == samples and not item.is_complex()
    ]
    if not leaves:
        return torch.arange(samples)
    rows = torch.cat(leaves, 1)
    if rows.shape[1] == 0:
        return torch.arange(samples)
    groups: torch.Tensor = torch.unique(rows, dim=0, return_inverse=True)[1]
    return groups


def _lowest(loss_fn: Loss, output: torch.Tensor, target: Any, groups: torch.Tensor) -> float | None:
    """The lowest loss over predictions that are equal within a group."""
    found = [
        loss
        for through in _forms(output)
        if (loss := _minimised(loss_fn, output.detach(), target, groups.to(output.device), *through)) is not None
    ]
    # a way without a lower end leaves nothing to go by: outputs may lie between 0 and 1 by chance
    return min(found) if found and not math.isinf(min(found)) else None


Form = tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]


def _forms(output: torch.Tensor) -> list[Form]:
    """Ways to write predictions so that they stay what the model's are: from free numbers to them, and back.

    Predictions that look like probabilities are tried as such first; as free numbers where a loss takes those.
    Vectors of length 1 stay that.
    """
    values = output.detach()
    if not bool(values.isfinite().all()):
        return []
    last = values.dim() > 1 and values.shape[-1] > 1
    if last and float((values.logsumexp(-1)).abs().max()) < 1e-3:
        return [(lambda free: free.log_softmax(-1), lambda given: given)]
    if bool((values >= 0).all()) and bool((values <= 1).all()):
        if last and float((values.sum(-1) - 1).abs().max()) < 1e-3:
            return [(lambda free: free.softmax(-1), lambda given: given.clamp_min(1e-6).log())]
        return [(torch.sigmoid, lambda given: given.clamp(1e-6, 1 - 1e-6).logit()), (_same, _same)]
    if last and float((values.norm(dim=-1) - 1).abs().max()) < 1e-3:
        return [(lambda free: torch.nn.functional.normalize(free, dim=-1), lambda given: given)]
    return [(_same, _same)]


def _same(values: torch.Tensor) -> torch.Tensor:
    return values


def _minimised(
    loss_fn: Loss,
    output: torch.Tensor,
    target: Any,
    groups: torch.Tensor,
    to_output: Callable[[torch.Tensor], torch.Tensor],
    to_free: Callable[[torch.Tensor], torch.Tensor],
) -> float | None:
    """The lowest loss in one form; minus infinity where it has no lower end, None where it can't be found."""
    count = int(groups.max()) + 1
    start = to_free(output.double() if output.dtype != torch.float64 else output)
    sums = torch.zeros((count, *start.shape[1:]), dtype=start.dtype, device=start.device).index_add_(0, groups, start)
    means = sums / torch.bincount(groups, minlength=count).reshape(-1, *(1,) * (start.dim() - 1))
    free = means.clone().requires_grad_()
    scale = float(start.std()) if start.numel() > 1 else 1.0
    history = max(3, min(_HISTORY, _NUMBERS_KEPT // max(1, free.numel())))
    deadline = time.monotonic() + _SECONDS
    optimizer = torch.optim.LBFGS([free], max_iter=_ITERATIONS, history_size=history, line_search_fn="strong_wolfe")
    lowest: list[float] = []

    def closure() -> torch.Tensor:
        if time.monotonic() > deadline:
            raise TimeoutError
        loss = loss_fn(to_output(free)[groups].to(output.dtype), target)
        lowest.append(float(loss.detach()))
        # its tolerances are absolute: a loss that is scaled down would count as minimised
        scaled = loss / abs(lowest[0]) if 0.0 < abs(lowest[0]) < _SMALL else loss
        (free.grad,) = torch.autograd.grad(scaled, free)  # and of nothing else that the loss may hold
        return scaled

    try:
        optimizer.step(closure)
        finite = [value for value in lowest if value - value == 0]
        if not finite:
            return None
        reached, size = min(finite), max(abs(finite[0]), 1.0)
        moved = float((free.detach() - means).abs().nan_to_num(torch.inf).max())
        scale = max(scale, 1.0)
        if reached < 0 and moved > _BOTTOMLESS * scale and finite[0] - reached > 10 * size:
            return -math.inf  # it would fall for ever
        if reached < 0 and _falls_far_off(closure, free, means, scale, reached, size):
            return -math.inf
    except Exception:  # noqa: BLE001 - the time is up, or the user's loss takes no such predictions
        return None
    return reached


def _falls_far_off(
    loss_at: Callable[[], torch.Tensor],
    free: torch.Tensor,
    means: torch.Tensor,
    scale: float,
    lowest: float,
    size: float,
) -> bool:
    """Whether predictions far away score much lower still: the search began on a ridge, or its line search gave up."""
    signs = torch.ones_like(means).flatten()
    signs[1::2] = -1.0
    for direction in (signs, -signs, torch.ones_like(signs), -torch.ones_like(signs)):
        with torch.no_grad():
            free.copy_(means + _FAR * scale * direction.reshape(means.shape))
        if float(loss_at().detach()) < lowest - 10 * size:
            return True
    return False
