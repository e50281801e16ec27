"""Skill is about one where targets follow from inputs, and about zero where they have nothing to do with them."""

from __future__ import annotations

import math

import torch

from unstuck.measure.association import linear_fit, nearest, skill_of_neighbours, standardised, word_counts


def table(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (300, 1), generator=generator)
    centres = 3 * torch.randn(3, 8, generator=generator)
    rows = centres[labels[:, 0]] + torch.randn(300, 8, generator=generator)
    return rows * torch.tensor([1e3, 1, 1, 1, 1e-3, 1, 1, 1]), labels.float()


def test_classes_that_follow_and_classes_that_do_not() -> None:
    rows, labels = table()
    features = standardised(rows)
    fit = linear_fit(features, labels, classes=True)
    assert fit is not None and fit.skill > 0.9 and fit.loss < 0.3
    shuffled = labels[torch.randperm(300, generator=torch.Generator().manual_seed(1))]
    chance = linear_fit(features, shuffled, classes=True)
    assert chance is not None and chance.skill < 0.15 and chance.loss > 0.9 * math.log(3)
    near = nearest(features)
    assert skill_of_neighbours(near, labels, classes=True) > 0.9
    assert skill_of_neighbours(near, shuffled, classes=True) < 0.15


def test_numbers_that_follow_and_numbers_that_do_not() -> None:
    rows, _ = table()
    features = standardised(rows)
    wanted = features[:, :1] - 2 * features[:, 2:3]
    fit = linear_fit(features, wanted, classes=False)
    assert fit is not None and fit.skill > 0.99
    noise = torch.randn(300, 1, generator=torch.Generator().manual_seed(2))
    chance = linear_fit(features, noise, classes=False)
    assert chance is not None and chance.skill < 0.1


def test_nothing_is_told_from_constant_columns_one_class_or_constant_targets() -> None:
    rows, labels = table()
    assert standardised(torch.ones(40, 3)).shape == (40, 0)
    assert linear_fit(standardised(torch.ones(40, 3)), labels[:40], classes=True) is None
    assert linear_fit(standardised(rows), torch.zeros(300, 1), classes=True) is None
    assert linear_fit(standardised(rows), torch.zeros(300, 1), classes=False) is None


def test_the_global_random_state_is_left_alone() -> None:
    rows, labels = table()
    before = torch.random.get_rng_state()
    linear_fit(standardised(rows), labels, classes=True)
    assert torch.equal(before, torch.random.get_rng_state())


def test_words_are_counted() -> None:
    counts = word_counts(torch.tensor([[1.0, 1.0, 4.0], [0.0, 2.0, 2.0]]))
    assert counts[0, 1] == 2 and counts[0, 4] == 1 and counts[1, 2] == 2 and counts.sum() == 6
