"""Several loaders as one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from unstuck.trainer.data.combined import CombinedLoader, as_combined, iterate

# Of a machine with one core only.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

MODES = ["min_size", "max_size_cycle", "max_size", "sequential"]


class Drawn:
    """An iterable that tells when it is iterated and when an item is drawn; with a length if asked."""

    def __init__(self, n: int, log: list[str]) -> None:
        self.n = n
        self.log = log

    def __iter__(self) -> Iterator[int]:
        self.log.append("iter")
        return self.items()

    def items(self) -> Iterator[int]:
        for item in range(self.n):
            self.log.append(f"draw {item}")
            yield item


class Sized(Drawn):
    def __len__(self) -> int:
        return self.n


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(5))


def test_modes() -> None:
    loaders = {"a": range(2), "b": [range(10, 13)]}

    def steps(mode: Any) -> list[Any]:
        return list(CombinedLoader(loaders, mode))

    assert steps("min_size") == [({"a": 0, "b": [10]}, 0, 0), ({"a": 1, "b": [11]}, 1, 0)]
    assert steps("max_size")[2] == ({"a": None, "b": [12]}, 2, 0)
    assert steps("max_size_cycle")[2] == ({"a": 0, "b": [12]}, 2, 0)
    assert steps("sequential") == [(0, 0, 0), (1, 1, 0), (10, 0, 1), (11, 1, 1), (12, 2, 1)]


def test_lengths() -> None:
    def length(mode: Any, limits: Any = None) -> float:
        combined = CombinedLoader([range(2), range(3)], mode)
        combined.limits = limits
        return combined.num_batches

    assert [length(mode) for mode in MODES] == [2, 3, 3, 5]
    assert [length(mode, 1) for mode in MODES] == [1, 1, 1, 2]
    assert [length(mode, [2, 1]) for mode in MODES] == [1, 2, 2, 3]
    stream = CombinedLoader([range(2), Drawn(3, [])], "sequential")
    assert stream.num_batches == math.inf
    with pytest.raises(TypeError, match="no length"):
        len(stream)
    stream.limits = [math.inf, 4]
    assert len(stream) == 6


def test_it_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="mode='shortest'"):
        CombinedLoader([], "shortest")  # type: ignore[arg-type]
    combined = CombinedLoader([range(2), range(3)])
    with pytest.raises(ValueError, match="1 limits don't fit 2 loaders"):
        combined.limits = [1]
    with pytest.raises(ValueError, match="1 loaders"):
        combined.flattened = [range(1)]
    with pytest.raises(RuntimeError, match="iter"):
        next(combined)


def test_loaders_can_be_replaced_in_their_structure() -> None:
    combined = CombinedLoader({"a": range(2), "b": [range(3)]})
    combined.flattened = [range(1), range(9)]
    assert combined.iterables == {"a": range(1), "b": [range(9)]}


def test_samplers_have_the_structure() -> None:
    loader = DataLoader(range(4))  # type: ignore[arg-type]
    combined = CombinedLoader({"a": loader, "b": range(3)})
    assert combined.sampler == {"a": loader.sampler, "b": None}
    assert combined.batch_sampler == {"a": loader.batch_sampler, "b": None}


def test_a_list_of_numbers_is_one_loader() -> None:
    assert CombinedLoader([1, 2, 3]).flattened == [[1, 2, 3]]
    assert list(CombinedLoader([1, 2], "sequential")) == [(1, 0, 0), (2, 1, 0)]


def test_an_empty_loader_ends_a_cycle() -> None:
    assert list(CombinedLoader([range(2), ()], "max_size_cycle")) == []


@pytest.mark.parametrize("mode", MODES)
def test_limits_of_each_loader(mode: Any) -> None:
    combined = CombinedLoader([range(5), range(10, 13)], mode)
    combined.limits = [3, 1]
    combined.limits_each = True
    seen = [batch for batch, *_ in iterate(combined)]
    assert (
        seen
        == {
            "min_size": [[0, 10]],
            "max_size_cycle": [[0, 10], [1, 10], [2, 10]],
            "max_size": [[0, 10], [1, None], [2, None]],
            "sequential": [0, 1, 2, 10],
        }[mode]
    )


def test_a_sized_pass_draws_a_batch_when_it_is_asked_for() -> None:
    log: list[str] = []
    steps = iterate(CombinedLoader(Sized(3, log), "max_size_cycle"))
    assert log == ["iter"]
    seen = []
    for step in steps:
        log.append("step")
        seen.append(step)
    assert seen == [(0, 0, 0, False), (1, 1, 0, False), (2, 2, 0, True)]
    assert log == ["iter", "draw 0", "step", "draw 1", "step", "draw 2", "step"]


@pytest.mark.parametrize("several", [False, True])
def test_a_limited_pass_draws_nothing_beyond(several: bool) -> None:
    log: list[str] = []
    loader = Drawn(9, log)
    combined = CombinedLoader([loader, range(9)] if several else loader, "max_size_cycle")
    combined.limits = 2
    assert [last for *_, last in iterate(combined)] == [False, True]
    assert log == ["iter", "draw 0", "draw 1"]


def test_a_pass_of_unknown_length_is_one_ahead() -> None:
    log: list[str] = []
    steps = iterate(CombinedLoader(Drawn(3, log), "max_size_cycle"))
    assert log == ["iter", "draw 0"]
    seen = []
    for step in steps:
        log.append("step")
        seen.append(step)
    assert seen == [(0, 0, 0, False), (1, 1, 0, False), (2, 2, 0, True)]
    assert log == ["iter", "draw 0", "draw 1", "step", "draw 2", "step", "step"]


def test_no_loader_is_touched_when_there_is_no_batch() -> None:
    log: list[str] = []
    combined = CombinedLoader(Sized(3, log), "sequential")
    combined.limits = 0
    assert list(iterate(combined)) == []
    assert log == []


def test_sequential_loaders_are_started_when_their_turn_comes() -> None:
    log: list[str] = []
    combined = CombinedLoader([Sized(1, log), Sized(1, log)], "sequential")
    steps = iterate(combined)
    assert log == ["iter"]
    assert [step[1:] for step in steps] == [(0, 0, False), (0, 1, True)]
    assert log == ["iter", "draw 0", "iter", "draw 0"]


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loaders(workers: int) -> None:
    loader: Any = DataLoader(torch.arange(6), batch_size=2, num_workers=workers)  # type: ignore[arg-type]
    stream: Any = DataLoader(Stream(), batch_size=2)
    combined = CombinedLoader({"a": loader, "b": stream}, "max_size_cycle")
    seen = [(batch["a"].tolist(), batch["b"].tolist(), last) for batch, _, _, last in iterate(combined)]
    assert seen == [([0, 1], [0, 1], False), ([2, 3], [2, 3], False), ([4, 5], [4], True)]


def test_reset_ends_persistent_workers() -> None:
    loader: Any = DataLoader(torch.arange(4), num_workers=1, persistent_workers=True)  # type: ignore[arg-type]
    combined = CombinedLoader(loader, "sequential")
    assert len(list(combined)) == 4
    workers = loader._iterator._workers
    assert workers[0].is_alive()
    combined.reset()
    assert loader._iterator is None
    assert not workers[0].is_alive()


def test_the_users_combination_is_kept_and_left_alone() -> None:
    own = CombinedLoader([range(3), range(2)], "min_size")
    combined = as_combined(own, "max_size_cycle")
    combined.limits = 1
    assert combined.mode == "min_size"
    assert combined.iterables == own.iterables
    assert own.limits is None
    assert as_combined([range(3)], "max_size_cycle").mode == "max_size_cycle"
