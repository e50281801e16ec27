"""Where loaders come from, what they are called, how long they are, and copies of them with another sampler."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from unstuck.errors import MisconfigurationException
from unstuck.messages import PossibleUserWarning
from unstuck.trainer.data.datamodule import LightningDataModule
from unstuck.trainer.data.loaders import (
    LoaderSource,
    check_iterable,
    draws_from_batch_sampler,
    find_source,
    generators_of,
    is_shuffled,
    length_of,
    loader_names,
    set_epoch,
    warn_if_evaluation_is_shuffled,
    with_batch_sampler,
    with_sampler,
    without_dropping,
)

# Of a machine with one core only.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

NUMBERS: Any = range(10)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class SizedStream(Stream):
    def __len__(self) -> int:
        return 10


class Module:
    def train_dataloader(self) -> Any:
        return "from the module"

    def val_dataloader(self) -> Any:
        return "from the module"


class Data(LightningDataModule):
    def train_dataloader(self) -> Any:
        return "from the data module"


class OwnInit(DataLoader[int]):
    """A loader whose ``__init__`` takes other arguments than a DataLoader's."""

    def __init__(self, numbers: Any, *, flavour: str, **kwargs: Any) -> None:
        super().__init__(numbers, **kwargs)
        self.flavour = flavour


class Slotted(DataLoader[int]):
    __slots__ = ("extra",)

    def __reduce__(self) -> Any:
        raise TypeError("not to be copied")


def doubled(numbers: list[int]) -> torch.Tensor:
    return torch.tensor(numbers) * 2


def test_passed_loaders_win_over_the_data_module_and_this_over_the_module() -> None:
    def source(hook: str, given: Any = None, datamodule: Any = None) -> Any:
        return find_source(hook, given, datamodule, Module()).request()

    assert source("train_dataloader", [1], Data()) == [1]
    assert source("train_dataloader", None, Data()) == "from the data module"
    assert source("train_dataloader") == "from the module"
    assert source("val_dataloader", None, Data()) == "from the module"


def test_a_hook_set_on_the_instance_counts() -> None:
    data = LightningDataModule()
    assert not find_source("test_dataloader", None, data, None).is_defined
    data.test_dataloader = lambda: [1]  # type: ignore[method-assign]
    assert find_source("test_dataloader", None, data, None).request() == [1]


def test_loaders_that_nobody_defines() -> None:
    source = find_source("test_dataloader", None, None, Module())
    assert not source.is_defined
    with pytest.raises(MisconfigurationException, match="`test_dataloader`"):
        source.request()


@pytest.mark.parametrize("bad", [5, None, DataLoader])
def test_what_can_not_be_iterated_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match="passed to the Trainer as `train_dataloaders`"):
        check_iterable(bad, LoaderSource("train_dataloader", given=[bad]))
    with pytest.raises(TypeError, match=r"returned by `Module.val_dataloader\(\)`"):
        check_iterable(bad, LoaderSource("val_dataloader", owner=Module()))


def test_lengths() -> None:
    assert length_of(DataLoader(NUMBERS, batch_size=4)) == 3
    assert length_of(DataLoader(Stream(), batch_size=4)) == math.inf
    assert length_of(DataLoader(SizedStream(), batch_size=4)) == 3
    assert length_of(iter([1])) == math.inf
    assert length_of([1, 2]) == 2


def test_names_tell_the_place_in_the_collection() -> None:
    assert loader_names("train_dataloader", NUMBERS) == ["train_dataloader"]
    assert loader_names("val_dataloader", [NUMBERS, NUMBERS]) == ["val_dataloader[0]", "val_dataloader[1]"]
    nested = {"a": [NUMBERS, NUMBERS], "b": NUMBERS}
    assert loader_names("train_dataloader", nested) == [
        "train_dataloader['a'][0]",
        "train_dataloader['a'][1]",
        "train_dataloader['b']",
    ]


def test_shuffling_is_recognised() -> None:
    def distributed(shuffle: bool) -> Any:
        return DistributedSampler(NUMBERS, num_replicas=2, rank=0, shuffle=shuffle)

    assert is_shuffled(DataLoader(NUMBERS, shuffle=True))
    assert not is_shuffled(DataLoader(NUMBERS))
    assert is_shuffled(DataLoader(NUMBERS, batch_sampler=BatchSampler(RandomSampler(NUMBERS), 2, False)))
    assert is_shuffled(DataLoader(NUMBERS, sampler=distributed(True)))
    assert not is_shuffled(DataLoader(NUMBERS, sampler=distributed(False)))
    assert not is_shuffled(DataLoader(Stream()))
    assert not is_shuffled([1, 2])


def test_shuffled_evaluation_is_warned_about() -> None:
    with pytest.warns(PossibleUserWarning, match=r"`val_dataloader\[1\]` has shuffling"):
        warn_if_evaluation_is_shuffled(DataLoader(NUMBERS, shuffle=True), "val_dataloader[1]")
    warn_if_evaluation_is_shuffled(DataLoader(NUMBERS), "val_dataloader")


def test_generators_are_found_once() -> None:
    own, shared = torch.Generator(), torch.Generator()
    loaders = [
        DataLoader(NUMBERS, shuffle=True, generator=shared),
        DataLoader(NUMBERS, sampler=RandomSampler(NUMBERS, generator=own), generator=shared),
        DataLoader(NUMBERS, batch_sampler=BatchSampler(RandomSampler(NUMBERS, generator=own), 2, False)),
        [1, 2],
    ]
    assert set(generators_of(loaders)) == {own, shared}
    assert len(generators_of(loaders)) == 2


def test_a_stream_has_the_generator_that_seeds_its_workers() -> None:
    generator = torch.Generator()
    assert generators_of([DataLoader(Stream(), batch_size=2), DataLoader(Stream(), generator=generator)]) == [generator]


def test_samplers_are_told_the_epoch() -> None:
    class Batches(BatchSampler):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    plain = DistributedSampler(NUMBERS, num_replicas=2, rank=0)
    set_epoch(DataLoader(NUMBERS, sampler=plain), 3)
    assert plain.epoch == 3
    inner = DistributedSampler(NUMBERS, num_replicas=2, rank=0)
    batches = Batches(inner, 2, False)
    set_epoch(DataLoader(NUMBERS, batch_sampler=batches), 4)
    assert (batches.epoch, inner.epoch) == (4, 4)
    set_epoch([1, 2], 5)


def test_who_composes_the_batches() -> None:
    assert not draws_from_batch_sampler(DataLoader(NUMBERS, batch_size=2))
    assert not draws_from_batch_sampler(DataLoader(NUMBERS, batch_size=None))
    assert draws_from_batch_sampler(
        DataLoader(NUMBERS, batch_sampler=BatchSampler(SequentialSampler(NUMBERS), 2, False))
    )
    assert not draws_from_batch_sampler(
        DataLoader(NUMBERS, sampler=BatchSampler(SequentialSampler(NUMBERS), 2, False), batch_size=None)
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_copy_keeps_everything_but_the_sampler(workers: int) -> None:
    generator = torch.Generator()
    options: dict[str, Any] = {"prefetch_factor": 3, "persistent_workers": True} if workers else {}
    loader = OwnInit(
        NUMBERS,
        flavour="vanilla",
        batch_size=3,
        drop_last=True,
        shuffle=True,
        collate_fn=doubled,
        num_workers=workers,
        generator=generator,
        timeout=30 if workers else 0,
        **options,
    )
    before = dict(vars(loader))
    copy = with_sampler(loader, SequentialSampler(NUMBERS))
    assert type(copy) is OwnInit
    assert {key: value for key, value in vars(copy).items() if key not in ("sampler", "batch_sampler")} == {
        key: value for key, value in before.items() if key not in ("sampler", "batch_sampler")
    }
    assert vars(loader) == before
    assert [batch.tolist() for batch in copy] == [[0, 2, 4], [6, 8, 10], [12, 14, 16]]  # type: ignore[attr-defined]
    assert len(copy) == 3
    if workers:
        assert loader._iterator is None  # the copy's persistent workers are its own
        assert copy._iterator is not None
        copy._iterator._shutdown_workers()  # type: ignore[attr-defined]


def test_a_copy_without_batches() -> None:
    loader = DataLoader(NUMBERS, batch_size=None, shuffle=True)
    copy = with_sampler(loader, SequentialSampler(NUMBERS))
    assert list(copy) == list(NUMBERS)
    assert copy.batch_sampler is None


def test_a_copy_with_other_batches() -> None:
    loader = DataLoader(NUMBERS, batch_sampler=BatchSampler(RandomSampler(NUMBERS), 5, False))
    copy = with_batch_sampler(loader, [[0, 1], [9]])
    assert [batch.tolist() for batch in copy] == [[0, 1], [9]]
    with pytest.raises(ValueError, match="with_batch_sampler"):
        with_sampler(loader, SequentialSampler(NUMBERS))


def test_a_class_that_can_not_be_copied_is() -> None:
    loader = Slotted(NUMBERS, batch_size=2, sampler=WeightedRandomSampler([1.0] * 10, 10))
    loader.extra = "kept"  # type: ignore[attr-defined]
    copy = with_sampler(loader, SequentialSampler(NUMBERS))
    assert copy.extra == "kept"  # type: ignore[attr-defined]
    assert len(list(copy)) == 5


def test_predictions_cover_every_sample() -> None:
    own = DataLoader(NUMBERS, batch_sampler=BatchSampler(SequentialSampler(NUMBERS), 4, drop_last=True))
    made = DataLoader(NUMBERS, batch_size=4, drop_last=True)
    for loader in (own, made):
        assert [len(batch) for batch in without_dropping(loader)] == [4, 4, 2]
        assert [len(batch) for batch in loader] == [4, 4]
    assert without_dropping(made).drop_last is False
    complete: Any
    for complete in (DataLoader(NUMBERS, batch_size=4), DataLoader(NUMBERS, batch_sampler=[[0], [1]]), [1, 2]):
        assert without_dropping(complete) is complete
