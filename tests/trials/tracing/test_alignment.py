"""The table of alignments against the operations themselves: a NaN put into one element of an input must not turn up
where the table says that it can't."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from unstuck.trials.tracing.alignment import ALL, IGNORED, UNKNOWN, align
from unstuck.trials.tracing.ops import bound_arguments, operation, tensor_arguments

BOOL = torch.tensor([[True, False, True], [False, False, True]])


def r(*shape: int) -> torch.Tensor:
    return (torch.rand(*shape) * 0.5 + 0.25).requires_grad_()


PROGRAMS: dict[str, Any] = {
    "elementwise": lambda: (r(2, 3) * r(3) + r(2, 1)).pow(2).sqrt().atan2(r(2, 3)).lerp(r(3), 0.3).sum(),
    "clamp and where": lambda: torch.where(BOOL, r(2, 3).clamp(0.3, 0.5), r(3)).sum(),
    "softmax": lambda: (r(2, 3, 4).softmax(1) * r(2, 3, 4).log_softmax(-1)).sum(),
    "cumulative": lambda: (r(2, 3).cumsum(0) + r(2, 3).cumprod(1) + r(2, 3).logcumsumexp(1)).sum(),
    "reductions": lambda: (
        r(2, 3, 4).sum((0, 2)).std() + r(2, 3).logsumexp(1, keepdim=True).prod() + r(2, 3).var(0).sum()
    ),
    "extremes": lambda: r(2, 3).amax(0).sum() + r(2, 3).max(1).values.sum() + r(2, 3).norm(dim=1).mean(),
    "matrices": lambda: (
        (r(2, 3) @ r(3, 4)).sum() + torch.bmm(r(2, 3, 4), r(2, 4, 1)).sum() + torch.mv(r(2, 3), r(3)).sum()
    ),
    "sums of matrices": lambda: (
        torch.addmm(r(4), r(2, 3), r(3, 4)).sum() + torch.baddbmm(r(2, 3, 1), r(2, 3, 4), r(2, 4, 1)).sum()
    ),
    "linear": lambda: F.linear(r(2, 3, 4), r(5, 4), r(5)).sum() + torch.outer(r(3), r(2)).sum(),
    "convolution": lambda: (
        F.conv1d(r(2, 3, 5), r(4, 3, 2), r(4)).sum() + F.conv2d(r(2, 2, 4, 4), r(4, 1, 2, 2), groups=2).sum()
    ),
    "transposed": lambda: F.conv_transpose1d(r(2, 3, 5), r(3, 2, 2), r(2)).sum(),
    "pools": lambda: F.max_pool2d(r(2, 3, 4, 4), 2).sum() + F.avg_pool2d(r(2, 3, 4, 4), 2).sum(),
    "upsampling": lambda: (
        F.interpolate(r(2, 1, 3, 3), scale_factor=2).sum() + F.adaptive_avg_pool2d(r(2, 1, 3, 3), 2).sum()
    ),
    "layer norm": lambda: (F.layer_norm(r(2, 3, 4), (4,), r(4), r(4)) * r(2, 3, 4)).sum(),
    "layer norm, two dims": lambda: (F.layer_norm(r(2, 3, 4), (3, 4), r(3, 4), r(3, 4)) * r(4)).sum(),
    "rms norm": lambda: (F.rms_norm(r(2, 3, 4), (4,), r(4)) * r(2, 3, 4)).sum(),
    "group norm": lambda: (F.group_norm(r(2, 4, 3), 2, r(4), r(4)) * r(2, 4, 3)).sum(),
    "batch norm": lambda: (
        F.batch_norm(r(3, 2, 4), torch.zeros(2), torch.ones(2), r(2), r(2), True) * r(3, 2, 4)
    ).sum(),
    "frozen batch norm": lambda: (
        F.batch_norm(r(3, 2), torch.zeros(2), torch.ones(2), r(2), r(2), False) * r(3, 2)
    ).sum(),
    "cross entropy": lambda: F.cross_entropy(r(3, 4), torch.tensor([0, 3, 1]), weight=torch.rand(4)),
    "cross entropy, apart": lambda: (
        F.cross_entropy(r(3, 4, 2), torch.tensor([[0, 3], [1, 1], [2, 0]]), reduction="none") * r(3, 2)
    ).sum(),
    "nll, apart": lambda: (F.nll_loss(r(3, 4), torch.tensor([0, 3, 1]), reduction="none") * r(3)).sum(),
    "losses": lambda: (
        F.mse_loss(r(3), r(3)) + F.smooth_l1_loss(r(3), r(3), reduction="none").sum() + F.huber_loss(r(3), r(3))
    ),
    "probabilities": lambda: (
        F.binary_cross_entropy(r(3), r(3).detach()) + F.binary_cross_entropy_with_logits(r(3), r(3))
    ),
    "distances": lambda: (
        (torch.cdist(r(2, 3, 4), r(2, 5, 4)) * r(2, 3, 5)).sum() + F.cosine_similarity(r(2, 3), r(2, 3)).sum()
    ),
    "linear algebra": lambda: (
        torch.linalg.inv(r(2, 3, 3) + torch.eye(3)).sum() + torch.linalg.det(r(2, 3, 3) + torch.eye(3)).sum()
    ),
    "attention": lambda: (
        F.scaled_dot_product_attention(r(2, 2, 3, 4), r(2, 2, 3, 4), r(2, 2, 3, 4)) * r(2, 2, 3, 4)
    ).sum(),
    "scatter": lambda: (torch.zeros(2, 3).scatter_add(1, torch.tensor([[0, 2], [1, 1]]), r(2, 2)) * r(2, 3)).sum(),
    "index add": lambda: (torch.zeros(4, 3).index_add(0, torch.tensor([0, 2, 2]), r(3, 3)) * r(4, 3)).sum(),
    "activations": lambda: sum(
        f(r(2, 3)).sum() for f in (F.gelu, F.silu, F.elu, F.softplus, F.mish, F.logsigmoid, F.hardswish)
    ),
    "prelu and glu": lambda: F.prelu(r(2, 3, 2) - 0.5, r(3)).sum() + F.glu(r(2, 4), 1).sum(),
    "sorting": lambda: (
        (r(2, 4).sort(1).values * r(2, 4)).sum() + r(2, 4).topk(2, 1).values.sum() + r(2, 3).median(1).values.sum()
    ),
    "copies": lambda: (torch.zeros(2, 3).copy_(r(3)) * r(2, 3).half().float()).sum(),
    "ctc": lambda: F.ctc_loss(
        r(6, 2, 4).log_softmax(-1), torch.tensor([[1, 2], [3, 1]]), torch.tensor([6, 6]), torch.tensor([2, 2])
    ),
    "foreach": lambda: sum(t.sum() for t in torch._foreach_mul(torch._foreach_add([r(2), r(3)], [r(2), r(3)]), 2.0)),
}


class _Check(TorchDispatchMode):
    """Runs every operation again with a NaN in one element of one input, and compares with the table."""

    def __init__(self) -> None:
        super().__init__()
        self.checked: list[str] = []
        self.loose: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        op = operation(func)
        with torch.no_grad():
            if not op.view and not op.factory and not op.moving and not op.written and "dropout" not in op.name:
                self.check(op, func, args, kwargs)
        return func(*args, **kwargs)

    def check(self, op: Any, func: Any, args: Any, kwargs: Any) -> None:
        inputs = list(tensor_arguments(op, args, kwargs))
        operands = [(name, place, tuple(tensor.shape)) for name, place, tensor in inputs]
        arguments = bound_arguments(op, args, kwargs)
        results = _tensors(func(*_copied(args), **_copied(kwargs)))
        for index, (slot, result) in enumerate(results):
            if not result.is_floating_point():
                continue
            alignments = align(op, arguments, operands, tuple(result.shape), index if not op.foreach else 0, slot)
            for (name, place, tensor), alignment in zip(inputs, alignments, strict=True):
                if not tensor.is_floating_point() or tensor.numel() == 0:
                    continue
                for _ in range(3):
                    at = tuple(int(torch.randint(size, ())) for size in tensor.shape)
                    changed = _with_nan(op, args, kwargs, name, place, at)
                    try:
                        after = _tensors(func(*changed[0], **changed[1]))[index][1]
                    except RuntimeError:
                        continue  # it refuses NaN
                    got = after.isnan() & ~result.isnan()
                    allowed = _allowed(alignment, at, tuple(tensor.shape), tuple(result.shape))
                    assert not (got & ~allowed).any(), f"{op.name} output {index}: {name} is {alignment}"
                    if alignment == UNKNOWN:
                        self.loose.append(op.name)
                self.checked.append(op.name)


def _tensors(result: Any) -> list[tuple[int, torch.Tensor]]:
    found = []
    for position, item in enumerate(result if isinstance(result, (list, tuple)) else [result]):
        if isinstance(item, torch.Tensor):
            found.append((position, item))
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, (list, tuple)):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return {name: _copied(item) for name, item in value.items()}
    return value


def _with_nan(op: Any, args: Any, kwargs: Any, name: str, place: int, at: tuple[int, ...]) -> tuple[Any, Any]:
    args, kwargs = _copied(args), _copied(kwargs)
    holder = kwargs[name] if name in kwargs else args[op.parameters.index(name)]
    tensor = holder if isinstance(holder, torch.Tensor) else holder[place]
    tensor[at] = float("nan")
    return args, kwargs


def _allowed(alignment: Any, at: tuple[int, ...], source: tuple[int, ...], result: tuple[int, ...]) -> torch.Tensor:
    if alignment == IGNORED:
        return torch.zeros(result, dtype=torch.bool)
    mask = torch.ones(result, dtype=torch.bool)
    if alignment == UNKNOWN:
        return mask
    for dim, to in enumerate(alignment):
        if to != ALL and source[dim] != 1:
            here = torch.zeros(result[to], dtype=torch.bool)
            here[at[dim]] = True
            mask &= here.reshape(-1, *(1,) * (len(result) - 1 - to))
    return mask


@pytest.mark.parametrize("name", PROGRAMS)
def test_table_agrees_with_the_operations(name: str) -> None:
    torch.manual_seed(0)
    check = _Check()
    with check:
        PROGRAMS[name]().backward()
    assert check.checked
    assert not check.loose, sorted(set(check.loose))
