"""What a loss was called with, read from its autograd graph: prediction and target, whoever called it and however.

The nodes of torch's losses save their target. A hand-written ``-log_p[range(n), y]`` saves it as an index.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

__all__ = ["GraphLoss", "losses_of"]

_NODES = 400
"""Nodes of a graph that are looked at."""

_KINDS = {
    "NllLossBackward": "nll",
    "NllLoss2DBackward": "nll",
    "NllLossNdBackward": "nll",
    "BinaryCrossEntropyBackward": "bce",
    "BinaryCrossEntropyWithLogitsBackward": "bce with logits",
    "MseLossBackward": "mse",
    "SmoothL1LossBackward": "smooth l1",
    "HuberLossBackward": "huber",
    "SoftMarginLossBackward": "soft margin",
    "MultiMarginLossBackward": "multi margin",
    "MultilabelMarginLossBackward": "multilabel margin",
    "GatherBackward": "gather",
    "IndexBackward": "index",
    "PowBackward": "square",
    "AbsBackward": "absolute",
    "CtcLossBackward": "ctc",
}
_PLAIN = {"Tensor"}


class GraphLoss(NamedTuple):
    """A loss as its graph keeps it.

    Attributes:
        kind: ``nll``, ``bce``, ``bce with logits``, ``mse``, ``smooth l1``, ``huber``, ``soft margin``, ...; ``gather``
            and ``index`` for log-probabilities that are picked by hand; ``square`` and ``absolute`` for a hand-written
            difference, whose target the graph doesn't keep.
        node: of the graph.
        target: what the loss compares with; None where the graph doesn't keep it.
        prediction: log-probabilities for ``nll``, ``gather`` and ``index``; None where the graph doesn't keep it.
        ignored: class that doesn't count.
        whole: whether it was reduced to one number by itself, without weights for single samples.
        skipped: places along dimension 1 that were cut off at the beginning of what the loss compares.
        difference: prediction minus target, for ``square`` and ``absolute``.
    """

    kind: str
    node: Any
    target: torch.Tensor | None
    prediction: torch.Tensor | None
    ignored: int | None = None
    whole: bool = True
    skipped: int = 0
    difference: torch.Tensor | None = None


def losses_of(loss: torch.Tensor) -> list[GraphLoss]:
    """The losses that a tensor was made of, the one nearest to it first.

    The walk stops at each one, so that what lies behind it, the model, isn't searched.
    """
    found: list[GraphLoss] = []
    waiting = [(loss.grad_fn, False)]
    seen = {id(loss.grad_fn)}
    keep = [loss.grad_fn]  # nodes live as long as somebody holds them, and identities are compared
    while waiting and len(keep) < _NODES:
        node, weighted = waiting.pop(0)
        if node is None:
            continue
        known = _read(node)
        if known is not None:
            found.append(known._replace(whole=False) if weighted else known)
            continue
        weighted = weighted or _weighs(node)
        for following, _ in node.next_functions:
            if following is not None and id(following) not in seen:
                seen.add(id(following))
                keep.append(following)
                waiting.append((following, weighted))
    return found


def _weighs(node: Any) -> bool:
    """Whether a node multiplies by, or divides by, more than one number."""
    if not node.name().startswith(("MulBackward", "DivBackward")):
        return False
    for name in ("_saved_self", "_saved_other"):
        try:
            value = getattr(node, name, None)
        except RuntimeError:
            continue
        if isinstance(value, torch.Tensor) and value.numel() > 1:
            return True
    return False


def _read(node: Any) -> GraphLoss | None:
    kind = _KINDS.get(node.name().rstrip("0123456789"))
    if kind is None:
        return None
    try:
        return _READERS.get(kind, _read_loss)(kind, node)
    except (RuntimeError, AttributeError, IndexError):
        return None  # the saved tensor has been changed or freed since


def _read_loss(kind: str, node: Any) -> GraphLoss | None:
    ignored = int(node._saved_ignore_index) if kind == "nll" else None
    if ignored is not None and ignored >= 2**63:
        ignored -= 2**64
    prediction = node._saved_self
    whole = getattr(node, "_saved_reduction", 1) != 0
    return GraphLoss(kind, node, node._saved_target, prediction, ignored, whole, _cut(node))


def _read_ctc(kind: str, node: Any) -> GraphLoss | None:
    return GraphLoss(kind, node, node._saved_targets, None, int(node._saved_blank))


def _read_gather(kind: str, node: Any) -> GraphLoss | None:
    before = _log_softmax(node)
    if before is None:
        return None
    return GraphLoss(kind, node, node._saved_index, before._saved_result, whole=True, skipped=_cut(before))


def _read_index(kind: str, node: Any) -> GraphLoss | None:
    before = _log_softmax(node)
    indices = [item for item in node._saved_indices if isinstance(item, torch.Tensor)]
    if before is None or not indices or indices[-1].dtype is torch.bool:
        return None
    return GraphLoss(kind, node, indices[-1], before._saved_result, whole=True, skipped=_cut(before))


def _read_power(kind: str, node: Any) -> GraphLoss | None:
    if node.next_functions and node.next_functions[0][0] is not None:
        inner = node.next_functions[0][0].name()
        if inner.startswith(("SubBackward", "RsubBackward")):
            return GraphLoss(kind, node, None, None, difference=node._saved_self)
    return None


_READERS = {
    "gather": _read_gather,
    "index": _read_index,
    "square": _read_power,
    "absolute": _read_power,
    "ctc": _read_ctc,
}


def _log_softmax(node: Any) -> Any:
    """The log-softmax whose result a node picks from."""
    for _ in range(4):
        if not node.next_functions:
            return None
        node = node.next_functions[0][0]
        if node is None:
            return None
        if node.name().startswith("LogSoftmaxBackward"):
            return node
    return None


def _cut(node: Any) -> int:
    """Places that were cut off at the beginning of dimension 1 on the way to a loss."""
    for _ in range(10):
        if not node.next_functions:
            return 0
        node = node.next_functions[0][0]
        if node is None:
            return 0
        if node.name().startswith("SliceBackward") and node._saved_dim == 1 and node._saved_start < 2**40:
            start = int(node._saved_start)
            if start:
                return start
    return 0
