"""What a loss was called with is read from its graph, in every spelling."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from unstuck.measure.graph_loss import losses_of

LOGITS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
IDS = torch.tensor([0, 3, 1, 2, 2, 0])

Loss = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        (lambda x: F.cross_entropy(x, IDS), "nll"),
        (lambda x: 0.5 * F.cross_entropy(x, IDS, label_smoothing=0.1) / 3, "nll"),
        (lambda x: F.nll_loss(torch.log_softmax(x, 1), IDS) + 1e-4 * x.square().sum(), "nll"),
        (lambda x: -torch.log_softmax(x, 1).gather(1, IDS[:, None]).mean(), "gather"),
        (lambda x: -torch.log_softmax(x, 1)[torch.arange(6), IDS].mean(), "index"),
        (lambda x: F.multi_margin_loss(x, IDS), "multi margin"),
    ],
)
def test_class_ids_are_found(loss: Loss, kind: str) -> None:
    parts = [part for part in losses_of(loss(LOGITS.clone().requires_grad_() * 1.0)) if part.kind == kind]
    assert len(parts) == 1
    target = parts[0].target
    assert target is not None and target.flatten().tolist() == IDS.tolist()


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        (F.mse_loss, "mse"),
        (F.smooth_l1_loss, "smooth l1"),
        (F.huber_loss, "huber"),
        (F.binary_cross_entropy_with_logits, "bce with logits"),
        (F.soft_margin_loss, "soft margin"),
    ],
)
def test_numbers_are_found(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], kind: str) -> None:
    target = torch.rand(6, 4, generator=torch.Generator().manual_seed(1))
    parts = losses_of(loss(LOGITS.clone().requires_grad_() * 1.0, target))
    assert [part.kind for part in parts] == [kind]
    assert parts[0].target is not None and torch.equal(parts[0].target, target)
    assert parts[0].whole


def test_a_loss_per_sample_is_not_whole_and_a_written_out_square_keeps_its_difference() -> None:
    logits = LOGITS.clone().requires_grad_() * 1.0
    weighted = (F.cross_entropy(logits, IDS, reduction="none") * torch.rand(6)).mean()
    assert [part.whole for part in losses_of(weighted)] == [False]
    chosen = torch.log_softmax(logits, 1).gather(1, IDS[:, None]).squeeze(1)
    assert [part.whole for part in losses_of(-(chosen * torch.rand(6)).mean())] == [False]
    assert [part.whole for part in losses_of(-0.5 * chosen.mean() / 3)] == [True]
    written = losses_of(((logits - 1.0) ** 2).mean())
    assert written[0].kind == "square" and written[0].difference is not None
    assert torch.equal(written[0].difference, logits.detach() - 1.0)


def test_outputs_that_were_cut_off_at_the_beginning_are_counted() -> None:
    logits = torch.randn(2, 7, 5, requires_grad=True) * 1.0
    labels = torch.zeros(12, dtype=torch.long)
    (cut,) = losses_of(F.cross_entropy(logits[:, 1:].reshape(-1, 5), labels))
    (kept,) = losses_of(F.cross_entropy(logits[:, :-1].reshape(-1, 5), labels))
    assert (cut.skipped, kept.skipped) == (1, 0)


def test_what_has_no_graph_has_no_loss() -> None:
    assert losses_of(torch.tensor(1.0)) == []
    assert losses_of(LOGITS.clone().requires_grad_().sum()) == []
