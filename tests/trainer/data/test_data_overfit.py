"""Overfitting on a few batches: every epoch sees the same samples, whatever decides about them."""

from __future__ import annotations

import itertools
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from unstuck.errors import MisconfigurationException
from unstuck.trainer.data.combined import CombinedLoader, iterate
from unstuck.trainer.data.limits import Overfit
from unstuck.trainer.data.loaders import loader_names, set_epoch
from unstuck.trainer.data.overfit import freeze_loader, freeze_loaders, training_subset
from unstuck.trainer.data.replay import RecordedSampler, Recording, ReplayedLoader, copy_of

# Of a machine with one core only.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

NUMBERS: Any = range(20)


class Stream(IterableDataset[int]):
    """Random numbers, never the same twice."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield random.randrange(10**9)


class Queries(Dataset[int]):
    """A dataset that takes queries instead of indices, and takes them apart."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, query: dict[str, int]) -> int:
        return query.pop("index")


class QuerySampler(Sampler[Any]):
    def __iter__(self) -> Iterator[dict[str, int]]:
        return ({"index": index} for index in torch.randperm(20).tolist())

    def __len__(self) -> int:
        return 20


class PairSampler(QuerySampler):
    def __iter__(self) -> Iterator[Any]:
        return ((index, random.random()) for index in torch.randperm(20).tolist())


class Pairs(Dataset[float]):
    def __getitem__(self, pair: tuple[int, float]) -> float:
        return pair[0] + pair[1]

    def __len__(self) -> int:
        return 20


class Endless(Sampler[int]):
    """A sampler without length."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield random.randrange(20)


class Buckets(Sampler[list[int]]):
    """A batch sampler of the user's own: neighbours go together, the batches come in random order."""

    def __iter__(self) -> Iterator[list[int]]:
        starts = [0, 5, 10, 15]
        random.shuffle(starts)
        return ([start + offset for offset in range(5)] for start in starts)

    def __len__(self) -> int:
        return 4


class OwnInit(DataLoader[int]):
    def __init__(self, *, flavour: str, **kwargs: Any) -> None:
        super().__init__(NUMBERS, **kwargs)
        self.flavour = flavour


class OwnIteration(DataLoader[int]):
    """A loader that doesn't ask its sampler."""

    def __iter__(self) -> Any:
        return (torch.tensor([random.randrange(20) for _ in range(5)]) for _ in range(4))


class EpochsOfOneIterator(DataLoader[int]):
    """A loader that keeps its workers busy over the epochs: its one iterator is made at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.iterator: Any = itertools.cycle(super().__iter__())

    def __iter__(self) -> Any:
        return (next(self.iterator) for _ in range(len(self)))


class ComputedSampler(DataLoader[int]):
    @property
    def batch_sampler(self) -> Any:
        return BatchSampler(torch.randperm(20).tolist(), 5, False)

    @batch_sampler.setter
    def batch_sampler(self, value: Any) -> None:
        pass


class RandomSubclass(RandomSampler):
    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(20).tolist())


class RandomBatches:
    """A loader that is no DataLoader."""

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.randint(10**6, (5,)) for _ in range(4))


class ShufflingDistributed(DistributedSampler[int]):
    def __iter__(self) -> Iterator[int]:
        indices = list(super().__iter__())
        random.shuffle(indices)
        return iter(indices)


def distributed(**kwargs: Any) -> DistributedSampler[int]:
    return DistributedSampler(NUMBERS, num_replicas=2, rank=1, **kwargs)


def weighted() -> WeightedRandomSampler:
    return WeightedRandomSampler([1.0] * 20, 20)


def values(batch: Any) -> list[float]:
    return torch.as_tensor(batch).flatten().tolist()  # type: ignore[no-any-return]


def frozen(loader: Any, batches: float = 2, *, stage: str = "train", **options: Any) -> CombinedLoader:
    combined = CombinedLoader(loader, "max_size_cycle")
    names = loader_names("train_dataloader", loader)
    return freeze_loaders(combined, names, Overfit(batches, **options), stage=stage)


def epochs(combined: CombinedLoader, count: int = 3) -> list[list[Any]]:
    """What each epoch sees, batch by batch."""
    seen = []
    for epoch in range(count):
        for loader in combined.flattened:
            set_epoch(loader, epoch)
        seen.append([values(batch) for batch, *_ in iterate(combined)])
    return seen


SILENT: dict[str, Callable[[int], Any]] = {
    "sequential": lambda w: DataLoader(NUMBERS, batch_size=5, num_workers=w),
    "subset": lambda w: DataLoader(NUMBERS, batch_size=5, sampler=SubsetRandomSampler(NUMBERS), num_workers=w),
    "weighted": lambda w: DataLoader(NUMBERS, batch_size=5, sampler=weighted(), num_workers=w),
    "subclass of RandomSampler": lambda w: DataLoader(
        NUMBERS, batch_size=5, sampler=RandomSubclass(NUMBERS), num_workers=w
    ),
    "dicts": lambda w: DataLoader(Queries(), batch_size=5, sampler=QuerySampler(), num_workers=w),
    "tuples": lambda w: DataLoader(Pairs(), batch_size=5, sampler=PairSampler(), num_workers=w),
    "without length": lambda w: DataLoader(NUMBERS, batch_size=5, sampler=Endless(), num_workers=w),
    "BatchSampler as sampler": lambda w: DataLoader(
        torch.arange(20),  # type: ignore[arg-type]
        batch_size=None,
        sampler=BatchSampler(RandomSampler(NUMBERS), 5, False),
        num_workers=w,
    ),
    "BatchSampler as sampler, batched": lambda w: DataLoader(
        torch.arange(20),  # type: ignore[arg-type]
        batch_size=2,
        sampler=BatchSampler(RandomSampler(NUMBERS), 5, False),
        num_workers=w,
    ),
    "random batch sampler": lambda w: DataLoader(
        NUMBERS, batch_sampler=BatchSampler(RandomSampler(NUMBERS), 5, False), num_workers=w
    ),
    "own batch sampler": lambda w: DataLoader(NUMBERS, batch_sampler=Buckets(), num_workers=w),
    "stream": lambda w: DataLoader(Stream(), batch_size=5, num_workers=w),
    "own iteration": lambda w: OwnIteration(NUMBERS, batch_size=5, num_workers=w),
    "one iterator": lambda w: EpochsOfOneIterator(NUMBERS, batch_size=5, shuffle=True, num_workers=w),
    "computed sampler": lambda w: ComputedSampler(NUMBERS, batch_size=5, shuffle=True, num_workers=w),
    "distributed, own iteration": lambda w: DataLoader(
        NUMBERS, batch_size=5, sampler=ShufflingDistributed(NUMBERS, num_replicas=2, rank=0), num_workers=w
    ),
    "no DataLoader": lambda w: RandomBatches(),
    "generator": lambda w: (torch.randint(10**6, (5,)) for _ in range(4)),
    "list": lambda w: [3, 1, 2],
}
WARNING: dict[str, Callable[[int], Any]] = {
    "shuffle": lambda w: DataLoader(NUMBERS, batch_size=5, shuffle=True, num_workers=w),
    "own __init__": lambda w: OwnInit(flavour="vanilla", batch_size=5, shuffle=True, num_workers=w),
    "without batches": lambda w: DataLoader(NUMBERS, batch_size=None, shuffle=True, num_workers=w),
    "distributed": lambda w: DataLoader(NUMBERS, batch_size=5, sampler=distributed(), num_workers=w),
    "distributed batches": lambda w: DataLoader(
        NUMBERS, batch_sampler=BatchSampler(distributed(), 5, False), num_workers=w
    ),
}
WITH_WORKERS = ["sequential", "weighted", "dicts", "random batch sampler", "stream", "shuffle", "own __init__"]
CASES = [(name, 0) for name in [*SILENT, *WARNING]] + [(name, 2) for name in WITH_WORKERS]


def make(name: str, workers: int, **options: Any) -> CombinedLoader:
    """The frozen loader of a case; a case in WARNING must warn, naming the loader, the others mustn't."""
    if name in WARNING and options.get("order", "sequential") == "sequential":
        with pytest.warns(UserWarning, match="shuffling of `train_dataloader`"):
            return frozen(WARNING[name](workers), **options)
    return frozen((SILENT | WARNING)[name](workers), **options)


@pytest.mark.parametrize(("name", "workers"), CASES)
def test_every_epoch_sees_the_same_batches(name: str, workers: int) -> None:
    combined = make(name, workers)
    first, *others = epochs(combined)
    assert len(first) == 2
    assert others == [first, first]


@pytest.mark.parametrize("name", [*SILENT, *WARNING])
def test_replayed_batches_are_the_users_own(name: str) -> None:
    combined = make(name, 0, order="replay")
    assert isinstance(combined.flattened[0], ReplayedLoader)
    first, *others = epochs(combined)
    assert len(first) == 2
    assert others == [first, first]


@pytest.mark.parametrize("name", [*SILENT, *WARNING])
def test_a_shuffled_subset_stays_the_same(name: str) -> None:
    torch.manual_seed(1)
    combined = make(name, 0, order="shuffle")
    counts = [Counter(itertools.chain(*epoch)) for epoch in epochs(combined, 4)]
    assert counts[0].total() > 0
    assert all(count == counts[0] for count in counts)


def test_a_random_sampler_becomes_sequential_and_everything_else_is_kept() -> None:
    generator = torch.Generator()
    collate = torch.tensor
    loader = OwnInit(
        flavour="vanilla",
        batch_size=5,
        shuffle=True,
        collate_fn=collate,
        generator=generator,
        num_workers=2,
        prefetch_factor=3,
        persistent_workers=True,
        drop_last=True,
    )
    with pytest.warns(UserWarning, match="RandomSampler is replaced by a SequentialSampler"):
        combined = frozen(loader)
    copy = combined.iterables
    assert type(copy) is OwnInit
    assert type(copy.sampler) is type(copy.batch_sampler.sampler) is SequentialSampler
    assert copy.flavour == "vanilla"
    assert copy.collate_fn is collate
    assert copy.generator is generator
    assert (copy.num_workers, copy.prefetch_factor, copy.persistent_workers, copy.drop_last) == (2, 3, True, True)
    assert type(loader.sampler) is RandomSampler  # the user's loader is left as it was
    assert epochs(combined, 2) == [[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]] * 2
    combined.reset()
    assert copy._iterator is None


def test_a_tool_that_watches_all_loaders_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    original = DataLoader.__iter__
    monkeypatch.setattr(DataLoader, "__iter__", lambda self: original(self))
    loader = DataLoader(NUMBERS, batch_size=5)
    assert frozen(loader).iterables is loader


def test_a_random_sampler_of_a_part_stays_within_the_part() -> None:
    with pytest.warns(UserWarning, match="shuffling"):
        combined = frozen(DataLoader(NUMBERS, batch_size=2, sampler=RandomSampler(range(3))), 5)
    assert combined.limits == [2]
    assert epochs(combined, 1) == [[[0, 1], [2]]]


def test_a_sampler_that_promised_more_than_the_dataset_holds() -> None:
    loader = DataLoader(NUMBERS, batch_size=5, sampler=RandomSampler(NUMBERS, replacement=True, num_samples=100))
    with pytest.warns(UserWarning, match="shuffling"):
        combined = frozen(loader, 12)
    assert combined.limits == [4]
    assert combined.num_batches == 4


def test_a_distributed_sampler_no_longer_shuffles() -> None:
    loader = DataLoader(NUMBERS, batch_size=5, sampler=distributed())
    with pytest.warns(UserWarning, match="shuffle=False"):
        combined = frozen(loader)
    sampler = combined.iterables.sampler
    assert type(sampler) is DistributedSampler
    assert sampler.shuffle is False
    assert loader.sampler.shuffle is True  # type: ignore[attr-defined]
    assert epochs(combined, 1) == [[[1, 3, 5, 7, 9], [11, 13, 15, 17, 19]]]


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(NUMBERS, batch_size=5),
        DataLoader(NUMBERS, batch_size=5, sampler=distributed(shuffle=False)),
        DataLoader(NUMBERS, batch_sampler=BatchSampler(SequentialSampler(NUMBERS), 5, False)),
        DataLoader(NUMBERS, sampler=BatchSampler(SequentialSampler(NUMBERS), 5, False), batch_size=None),
        [3, 1, 2],
    ],
    ids=["sequential", "distributed", "batch sampler", "batches as samples", "list"],
)
@pytest.mark.parametrize("order", ["sequential", "shuffle"])
def test_what_is_sequential_is_the_same_object(loader: Any, order: Any) -> None:
    assert frozen(loader, order=order).iterables is loader


def test_drawn_batches_are_the_samplers_own_first_ones() -> None:
    torch.manual_seed(3)
    expected = list(itertools.islice(DataLoader(NUMBERS, batch_size=5, sampler=weighted()), 2))
    torch.manual_seed(3)
    assert epochs(frozen(DataLoader(NUMBERS, batch_size=5, sampler=weighted())), 1) == [[values(b) for b in expected]]


def test_samples_are_read_anew_in_every_epoch() -> None:
    class Augmented(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> torch.Tensor:
            return index + torch.rand(1)

    fresh = epochs(frozen(DataLoader(Augmented(), batch_size=5, sampler=weighted())), 2)
    assert fresh[0] != fresh[1]
    assert [[int(x) for x in batch] for batch in fresh[0]] == [[int(x) for x in batch] for batch in fresh[1]]
    kept = epochs(frozen(DataLoader(Augmented(), batch_size=5, sampler=weighted()), order="replay"), 2)
    assert kept[0] == kept[1]


def test_a_shuffled_subset_follows_the_users_shuffle() -> None:
    def seen(**kwargs: Any) -> list[list[Any]]:
        return epochs(frozen(DataLoader(NUMBERS, batch_size=5, **kwargs), order="shuffle"), 4)

    batches = seen(shuffle=True, generator=torch.Generator().manual_seed(2))
    assert len({frozenset(epoch[0]) for epoch in batches}) > 1  # the composition changes
    assert seen(shuffle=True, generator=torch.Generator().manual_seed(2)) == batches
    assert {frozenset(itertools.chain(*epoch)) for epoch in batches} == {frozenset(itertools.chain(*batches[0]))}


def test_batches_of_the_users_own_making_are_shuffled_whole() -> None:
    torch.manual_seed(0)
    batches = epochs(frozen(DataLoader(NUMBERS, batch_sampler=Buckets()), order="shuffle"), 6)
    assert {frozenset(map(tuple, epoch)) for epoch in batches} == {frozenset(map(tuple, batches[0]))}
    assert len({tuple(map(tuple, epoch)) for epoch in batches}) == 2


def test_all_of_an_endless_loader_can_not_be_shuffled() -> None:
    with pytest.raises(MisconfigurationException, match=r"train_dataloader"):
        frozen(DataLoader(Stream()), 1.0, order="shuffle")


def test_all_of_a_loader_without_length_is_kept_as_it_comes() -> None:
    class Short(IterableDataset[float]):
        def __iter__(self) -> Iterator[float]:
            return iter([random.random() for _ in range(5)])

    combined = frozen(DataLoader(Short(), batch_size=2), 1.0)
    assert combined.num_batches == math.inf
    first, second = epochs(combined, 2)
    assert first == second
    assert [len(batch) for batch in first] == [2, 2, 1]
    assert combined.num_batches == 3  # known by now


def test_a_fraction_of_the_training_batches() -> None:
    assert frozen(DataLoader(NUMBERS, batch_size=2), 0.35).limits == [3]
    assert frozen(DataLoader(NUMBERS, batch_size=2), 1.0).limits == [10]


@pytest.mark.parametrize("order", ["sequential", "replay", "shuffle"])
def test_a_fraction_without_a_batch_fails_before_anything_is_drawn(order: str) -> None:
    class Untouched(Dataset[int]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> int:
            raise AssertionError("drawn")

    with pytest.raises(MisconfigurationException, match=r"overfit_batches=0.05") as caught:
        frozen({"a": DataLoader(Untouched(), batch_size=4, shuffle=True)}, 0.05, order=order)
    message = str(caught.value)
    assert "`train_dataloader['a']`" in message
    assert "5 batches" in message
    assert "smallest valid fraction is 0.2" in message


def test_a_fraction_of_a_loader_without_length_is_refused() -> None:
    for stage in ("train", "val"):
        with pytest.raises(MisconfigurationException, match=r"overfit_batches=0.5.*no length"):
            frozen(DataLoader(Stream()), 0.5, stage=stage)


def test_validation_keeps_at_least_one_batch() -> None:
    loader = DataLoader(NUMBERS, batch_size=4)
    assert frozen(loader, 0.05, stage="val").limits == [1]
    assert frozen(loader, 0.5, stage="val").limits == [2]
    assert frozen(loader, 9, stage="val").limits == [5]
    assert frozen([], 0.5, stage="val").limits == [0]


def test_validation_is_frozen_too_but_never_shuffled() -> None:
    with pytest.warns(UserWarning, match="shuffling"):
        combined = frozen(DataLoader(NUMBERS, batch_size=5, shuffle=True), order="shuffle", stage="val")
    assert epochs(combined, 2) == [[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]] * 2


def test_every_loader_of_a_collection_is_limited_and_their_number_stays() -> None:
    loaders = {
        "a": DataLoader(NUMBERS, batch_size=2, shuffle=True),
        "b": [DataLoader(NUMBERS, batch_size=10, sampler=weighted()), DataLoader(Stream(), batch_size=1)],
    }
    with pytest.warns(UserWarning, match=r"`train_dataloader\['a'\]`"):
        combined = frozen(loaders, 3)
    assert combined.limits == [3, 2, 3]
    assert list(combined.iterables) == ["a", "b"]

    def epoch() -> list[Any]:
        return [(values(batch["a"]), values(batch["b"][0]), values(batch["b"][1])) for batch, *_ in iterate(combined)]

    first = epoch()
    assert len(first) == 3
    assert [a for a, *_ in first] == [[0, 1], [2, 3], [4, 5]]
    assert first[2][1] == first[0][1]  # the shorter loader starts anew
    assert epoch() == first


def test_a_longer_loader_is_not_used_beyond_its_limit_when_it_starts_anew() -> None:
    combined = frozen([DataLoader(NUMBERS, batch_size=2), DataLoader(NUMBERS, batch_size=5)], 0.4)
    assert combined.limits == [4, 1]
    second = {tuple(values(batch[1])) for batch, *_ in iterate(combined)}
    assert second == {(0, 1, 2, 3, 4)}


def test_validating_on_the_training_samples() -> None:
    with pytest.warns(UserWarning, match="shuffling"):
        combined = frozen(DataLoader(NUMBERS, batch_size=5, shuffle=True))
    subset = training_subset(combined)
    assert epochs(subset, 1) == epochs(combined, 1)
    assert subset.iterables is not combined.iterables


@pytest.mark.parametrize("order", ["sequential", "replay", "shuffle"])
@pytest.mark.parametrize("name", [*SILENT, *WARNING])
def test_the_training_samples_can_be_validated_in_the_middle_of_an_epoch(name: str, order: str) -> None:
    torch.manual_seed(4)
    combined = make(name, 0, order=order)
    subset = training_subset(combined)
    steps = iterate(combined)
    seen = [values(next(steps)[0])]
    validated = epochs(subset, 2)
    seen += [values(batch) for batch, *_ in steps]
    assert validated[0] == validated[1]
    assert Counter(itertools.chain(*validated[0])) == Counter(itertools.chain(*seen))


def test_processes_are_told_how_many_batches_they_train_on_together(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="unstuck")
    loader = DataLoader(NUMBERS, batch_size=5, sampler=distributed(shuffle=False))
    freeze_loaders(CombinedLoader(loader), ["train_dataloader"], Overfit(1), num_replicas=2)
    assert caplog.messages == [
        "`overfit_batches`: each of 2 processes trains on its own 1 batches of `train_dataloader`, 2 in total."
    ]


def test_what_is_kept_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="unstuck")
    for name in ("stream", "no DataLoader", "own iteration", "weighted", "own batch sampler"):
        make(name, 0)
    assert len(caplog.messages) == 5
    assert all("`train_dataloader`" in message and "replayed" in message for message in caplog.messages)


def test_a_batch_that_is_changed_in_place_comes_back_unchanged() -> None:
    loader = freeze_loader([{"x": torch.ones(2), "y": [1]} for _ in range(3)], 2, "train_dataloader", "replay")
    for _ in range(3):
        for batch in loader:
            assert batch["x"].tolist() == [1, 1]
            assert batch.pop("y") == [1]
            batch["x"] *= 0
    assert len(loader) == 2


def test_a_pass_that_ends_early_is_continued() -> None:
    drawn: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(9):
            drawn.append(number)
            yield number

    recording = Recording(numbers(), 4)
    with pytest.raises(TypeError, match="no length"):
        len(recording)
    assert next(iter(recording)) == 0
    first, second = iter(recording), iter(recording)
    assert [next(first), next(first), next(second)] == [0, 1, 0]
    assert list(recording) == [0, 1, 2, 3]
    assert list(second) == [1, 2, 3]
    assert list(first) == [2, 3]
    assert drawn == [0, 1, 2, 3]
    assert len(recording) == 4


def test_a_recording_that_ends_before_its_count() -> None:
    recording = Recording([5, 6], 4)
    assert len(recording) == 2
    assert list(recording) == list(recording) == [5, 6]
    assert list(Recording(iter([1]), 0)) == []


def test_workers_end_once_everything_is_kept() -> None:
    loader = DataLoader(Stream(), batch_size=5, num_workers=1, persistent_workers=True)
    kept = ReplayedLoader(loader, 2)
    first = [values(batch) for batch in kept]
    assert loader._iterator is None
    assert [values(batch) for batch in kept] == first


def test_a_replayed_loader_has_the_attributes_of_the_original() -> None:
    loader = DataLoader(Stream(), batch_size=5)
    kept = ReplayedLoader(loader, 2)
    assert kept.batch_size == 5
    assert kept.dataset is loader.dataset
    with pytest.raises(AttributeError):
        kept.nothing  # noqa: B018


def test_a_recorded_sampler_has_the_length_of_what_it_replays() -> None:
    assert len(RecordedSampler(weighted(), 7)) == 7
    assert len(RecordedSampler(weighted(), 70)) == 20
    assert len(DataLoader(NUMBERS, batch_size=5, sampler=RecordedSampler(weighted(), 10))) == 2


def test_tensors_in_a_graph_are_copied() -> None:
    weight = torch.ones(2, requires_grad=True)
    item = {"x": weight * 2}
    copy = copy_of(item)
    assert copy["x"].tolist() == [2, 2]
    assert copy["x"] is not item["x"]
    assert not copy["x"].requires_grad
