"""What passes tell together: bounds over all samples, and an accuracy only where the loss is of a classification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from unstuck.trials.overfit.evidence import accuracy_over, bounds_over
from unstuck.trials.overfit.training import Passed


def passed(loss_fn: Callable[[Any, Any], torch.Tensor], output: torch.Tensor, target: torch.Tensor) -> Passed:
    inputs = torch.arange(len(output), dtype=torch.float32).unsqueeze(1) + output.detach().sum()
    return Passed(loss_fn(output, target), output, target, inputs, loss_fn)


def test_a_constant_prediction_is_the_same_for_all_batches() -> None:
    wishes = torch.linspace(0.0, 10.0, 12).unsqueeze(1)
    passes = [passed(F.mse_loss, torch.randn(4, 1), part) for part in wishes.split(4)]
    found = bounds_over(passes)
    assert found.constant == pytest.approx(float(wishes.double().var(correction=0)), rel=1e-3)
    assert found.floor == pytest.approx(0.0, abs=1e-4)
    assert not found.alike


def test_batches_of_one_sample_are_alike_only_if_their_targets_are() -> None:
    other = [passed(F.mse_loss, torch.randn(1, 1), torch.full((1, 1), float(value))) for value in (1, 2)]
    same = [passed(F.mse_loss, torch.randn(1, 1), torch.ones(1, 1)) for _ in range(2)]
    assert (bounds_over(other).alike, bounds_over(same).alike) == (False, True)
    assert bounds_over(other).constant == pytest.approx(0.25, abs=1e-4)


def test_batches_of_other_shapes_have_their_own_bounds() -> None:
    passes = [passed(F.mse_loss, torch.randn(4, size), torch.randn(4, size)) for size in (2, 3)]
    constants = [float(item.target.double().var(0, correction=0).mean()) for item in passes]
    assert bounds_over(passes).constant == pytest.approx(sum(constants) / 2, rel=1e-3)


def clusters(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A contrastive loss: samples of one class lie close, whatever number the class has."""
    made = F.normalize(output, dim=1)
    scores = (made @ made.T / 0.1 - 1e9 * torch.eye(len(made))).log_softmax(1)
    partners = (target[:, None] == target).float() - torch.eye(len(made))
    return -(scores * partners).sum(1).div(partners.sum(1)).mean()


LABELS = torch.arange(12) % 3


@pytest.mark.parametrize(
    "loss_fn",
    [F.cross_entropy, F.multi_margin_loss, lambda output, wanted: F.nll_loss(output.log_softmax(1), wanted)],
)
def test_the_losses_of_classifications_have_an_accuracy(loss_fn: Any) -> None:
    scores = torch.randn(12, 3)
    accuracy, attainable = accuracy_over([passed(loss_fn, scores, LABELS)])
    assert (accuracy, attainable) == (float((scores.argmax(1) == LABELS).double().mean()), 1.0)


def test_two_classes_with_one_score() -> None:
    scores, wanted = torch.randn(12, 1), (LABELS[:, None] > 0).float()
    accuracy, _ = accuracy_over([passed(F.binary_cross_entropy_with_logits, scores, wanted)])
    assert accuracy == float(((scores > 0).float() == wanted).double().mean())


def test_scores_of_places_and_of_words() -> None:
    dense = torch.randint(0, 4, (2, 5, 5))
    assert accuracy_over([passed(F.cross_entropy, torch.randn(2, 4, 5, 5), dense)])[0] is not None
    words = torch.randint(0, 7, (3, 6))
    words[:, 4:] = -100

    def loss(output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output.flatten(0, 1), wanted.flatten())

    assert accuracy_over([passed(loss, torch.randn(3, 6, 7), words)])[0] is not None


@pytest.mark.parametrize("ignored", [255, -1, 0])
def test_decisions_that_the_loss_ignores_do_not_count(ignored: int) -> None:
    scores = torch.full((12, 3), -2.0).scatter_(1, LABELS[:, None], 2.0)
    scores[:6] = torch.tensor([0.0, 1.0, 2.0])
    labels = LABELS.clone()
    labels[:6] = ignored

    def loss(output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, wanted, ignore_index=ignored)

    accuracy, attainable = accuracy_over([passed(loss, scores, labels)])
    assert (accuracy, attainable) == (1.0, 1.0)


def test_places_that_are_masked_out_do_not_count() -> None:
    scores, wanted = torch.randn(12, 1), (LABELS[:, None] > 0).float()
    mask = torch.arange(12)[:, None] < 6

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        every = F.binary_cross_entropy_with_logits(output, target, reduction="none")
        return (every * mask).sum() / mask.sum()

    accuracy, _ = accuracy_over([passed(loss, scores, wanted)])
    assert accuracy == float(((scores > 0).float() == wanted)[mask].double().mean())


def test_no_target_is_taken_for_ignored_where_a_score_meets_it() -> None:
    scores, wanted = torch.randn(12, 1) + 0.5, (LABELS[:, None] > 0).float()
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.binary_cross_entropy_with_logits):
        accuracy, _ = accuracy_over([passed(loss, scores, wanted)])
        assert accuracy == float(((scores > 0).float() == wanted).double().mean())


def test_all_decisions_count_where_a_loss_takes_the_hardest() -> None:
    scores = torch.randn(12, 3)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, target, reduction="none").topk(4).values.mean()

    accuracy, _ = accuracy_over([passed(loss, scores, LABELS)])
    assert accuracy == float((scores.argmax(1) == LABELS).double().mean())


def test_a_loss_that_compares_samples_has_no_accuracy() -> None:
    assert accuracy_over([passed(clusters, torch.randn(12, 8), LABELS)]) == (None, None)


def test_a_loss_that_is_trained_itself_has_no_bounds() -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.spread = nn.Parameter(torch.zeros(()))

        def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return F.mse_loss(output, target) * (-self.spread).exp() + self.spread

    assert bounds_over([passed(Weighted(), torch.randn(4, 1), torch.randn(4, 1))]).floor is None
