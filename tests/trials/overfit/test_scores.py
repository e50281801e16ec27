"""Hits are those that a loop over the decisions counts."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unstuck.trials.overfit.scores import class_targets, hits


def slow_hits(predicted: torch.Tensor, wanted: torch.Tensor, groups: torch.Tensor) -> tuple[int, int, int]:
    right = count = 0
    best: dict[tuple[int, int], dict[int, int]] = {}
    for sample in range(wanted.shape[0]):
        for place, (guess, label) in enumerate(zip(predicted[sample], wanted[sample], strict=True)):
            if label == -100:
                continue
            count += 1
            right += int(guess == label)
            kinds = best.setdefault((int(groups[sample]), place), {})
            kinds[int(label)] = kinds.get(int(label), 0) + 1
    return right, sum(max(kinds.values()) for kinds in best.values()), count


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 10_000))
def test_hits_agree_with_the_loop(samples: int, places: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    predicted = torch.randint(0, 3, (samples, places), generator=generator)
    wanted = torch.randint(0, 3, (samples, places), generator=generator)
    wanted[torch.rand(samples, places, generator=generator) < 0.2] = -100
    groups = torch.randint(0, 3, (samples,), generator=generator)
    assert hits(predicted, wanted, groups) == slow_hits(predicted, wanted, groups)


def test_shapes_of_classifications() -> None:
    labels = torch.tensor([0, 2])
    assert class_targets(torch.eye(3)[labels], labels)[0].tolist() == [0, 2]  # type: ignore[index]
    dense = torch.randint(0, 5, (2, 4, 4))
    assert class_targets(torch.randn(2, 5, 4, 4), dense)[0].shape == dense.shape  # type: ignore[index]
    words = torch.randint(0, 7, (2, 9))
    assert class_targets(torch.randn(2, 9, 7), words)[0].shape == words.shape  # type: ignore[index]
    assert class_targets(torch.tensor([[0.2], [0.9]]), torch.tensor([[0.0], [1.0]]))[0].flatten().tolist() == [0, 1]  # type: ignore[index]
    assert class_targets(torch.tensor([-2.0, 0.4]), torch.tensor([0.0, 1.0]))[0].tolist() == [0, 1]  # type: ignore[index]


def test_regressions_are_none() -> None:
    assert class_targets(torch.randn(4, 1), torch.randn(4, 1)) is None
    assert class_targets(torch.randn(4), torch.ones(4)) is None
    assert class_targets({"a": 1}, torch.ones(4)) is None
