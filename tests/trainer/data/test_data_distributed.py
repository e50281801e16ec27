"""Each process's share of a loader."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from unstuck.errors import MisconfigurationException
from unstuck.trainer.data.distributed import (
    DistributedSamplerWrapper,
    UnrepeatedDistributedSampler,
    use_distributed_sampler,
)
from unstuck.trainer.data.loaders import set_epoch

NUMBERS: Any = range(10)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def indices(loader: Any) -> list[int]:
    return torch.cat(list(loader)).tolist()  # type: ignore[no-any-return]


def shares(loader: Any, replicas: int = 2, **kwargs: Any) -> list[list[int]]:
    return [indices(use_distributed_sampler(loader, num_replicas=replicas, rank=r, **kwargs)) for r in range(replicas)]


def test_sequential_loaders_are_shared_in_order() -> None:
    assert shares(DataLoader(NUMBERS, batch_size=2)) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_shuffled_loaders_are_shuffled_alike_for_training_only() -> None:
    loader = DataLoader(NUMBERS, batch_size=2, shuffle=True)
    first, second = shares(loader, seed=3)
    assert sorted(first + second) == list(NUMBERS)
    assert first != sorted(first)
    assert shares(loader, seed=3) == [first, second]
    assert shares(loader, seed=4) != [first, second]
    assert shares(loader, stage="val") == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_the_shuffle_takes_the_global_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "3")
    loader = DataLoader(NUMBERS, shuffle=True)
    assert shares(loader) == shares(loader, seed=3)


def test_the_order_changes_with_the_epoch() -> None:
    loader = use_distributed_sampler(DataLoader(NUMBERS, shuffle=True), num_replicas=2, rank=0)
    first = indices(loader)
    assert indices(loader) == first
    set_epoch(loader, 1)
    assert indices(loader) != first


def test_training_repeats_samples_and_prediction_does_not() -> None:
    loader = DataLoader(NUMBERS, batch_size=2)
    assert [len(share) for share in shares(loader, 3)] == [4, 4, 4]
    predicted = shares(loader, 3, stage="predict")
    assert [len(share) for share in predicted] == [4, 3, 3]
    assert sorted(chain(*predicted)) == list(NUMBERS)
    few = [use_distributed_sampler(DataLoader(range(1)), num_replicas=3, rank=r, stage="predict") for r in range(3)]  # type: ignore[arg-type]
    assert [len(loader) for loader in few] == [1, 0, 0]


def test_an_unrepeated_sampler_can_shuffle() -> None:
    samplers = [UnrepeatedDistributedSampler(NUMBERS, num_replicas=3, rank=rank, seed=1) for rank in range(3)]
    drawn = [list(sampler) for sampler in samplers]
    assert sorted(chain(*drawn)) == list(NUMBERS)
    assert list(chain(*drawn)) != list(NUMBERS)


def test_any_sampler_is_shared_without_touching_the_random_state() -> None:
    loader = DataLoader(NUMBERS, sampler=WeightedRandomSampler([1.0] * 10, 10, replacement=False))
    state = torch.get_rng_state()
    ranks = [use_distributed_sampler(loader, num_replicas=2, rank=rank).sampler for rank in range(2)]
    first, second = list(ranks[0]), list(ranks[1])
    assert torch.equal(state, torch.get_rng_state())
    assert sorted(first + second) == list(NUMBERS)
    ranks[0].set_epoch(1)
    assert list(ranks[0]) != first


def test_the_wrapped_sampler_is_told_the_epoch() -> None:
    inner: Any = DistributedSampler(NUMBERS, num_replicas=1, rank=0)
    wrapper = DistributedSamplerWrapper(inner, num_replicas=2, rank=0)
    wrapper.set_epoch(5)
    assert inner.epoch == wrapper.epoch == 5


def test_a_sampler_without_length_can_not_be_shared() -> None:
    class Endless:
        def __iter__(self) -> Iterator[int]:
            return iter(range(10))

    with pytest.raises(MisconfigurationException, match="Endless"):
        use_distributed_sampler(DataLoader(NUMBERS, sampler=Endless()), num_replicas=2, rank=0)


def test_batch_samplers_keep_their_kind() -> None:
    class Own(BatchSampler):
        pass

    loader = DataLoader(NUMBERS, batch_sampler=Own(SequentialSampler(NUMBERS), 3, drop_last=True))
    share = use_distributed_sampler(loader, num_replicas=2, rank=1)
    assert type(share.batch_sampler) is Own
    assert [batch.tolist() for batch in share] == [[1, 3, 5]]
    assert next(iter(loader)).tolist() == [0, 1, 2]


def test_prediction_drops_nothing() -> None:
    own = DataLoader(NUMBERS, batch_sampler=BatchSampler(SequentialSampler(NUMBERS), 3, drop_last=True))
    for loader in (own, DataLoader(NUMBERS, batch_size=3, drop_last=True)):
        share = use_distributed_sampler(loader, num_replicas=2, rank=1, stage="predict")
        assert [batch.tolist() for batch in share] == [[1, 3, 5], [7, 9]]


def test_a_batch_sampler_without_sampler_is_refused() -> None:
    loader = DataLoader(NUMBERS, batch_sampler=[[0, 1], [2]])
    with pytest.raises(MisconfigurationException, match="use_distributed_sampler=False"):
        use_distributed_sampler(loader, num_replicas=2, rank=0)


@pytest.mark.parametrize(
    "loader",
    [
        [1, 2],
        DataLoader(Stream()),
        DataLoader(NUMBERS, sampler=DistributedSampler(NUMBERS, num_replicas=2, rank=0)),
    ],
    ids=["list", "stream", "distributed already"],
)
def test_what_needs_no_share_is_left_alone(loader: Any) -> None:
    assert use_distributed_sampler(loader, num_replicas=2, rank=0) is loader
