"""Seeds and random states."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from unstuck.trainer.data.loaders import generators_of, seed_workers
from unstuck.trainer.data.seed import isolate_rng, pl_worker_init_function, seed_everything

# Of a machine with one core only.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setenv("PL_SEED_WORKERS", "0")
    with isolate_rng():
        yield


def numbers() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), torch.rand(1).item()


def test_everything_is_seeded() -> None:
    assert seed_everything(7) == 7
    first = numbers()
    assert os.environ["PL_GLOBAL_SEED"] == "7"
    assert os.environ["PL_SEED_WORKERS"] == "0"
    seed_everything(7, workers=True)
    assert numbers() == first
    assert os.environ["PL_SEED_WORKERS"] == "1"
    seed_everything(8)
    assert numbers() != first


def test_the_seed_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "2024")
    assert seed_everything() == 2024
    monkeypatch.delenv("PL_GLOBAL_SEED")
    assert seed_everything() == 0
    monkeypatch.setenv("PL_GLOBAL_SEED", "x")
    with pytest.raises(ValueError, match="PL_GLOBAL_SEED='x'"):
        seed_everything()


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_bounds(seed: int) -> None:
    with pytest.raises(ValueError, match="4294967295"):
        seed_everything(seed)
    assert seed_everything(2**32 - 1) == 2**32 - 1


def test_verbose(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="unstuck")
    seed_everything(3, verbose=False)
    assert caplog.messages == []
    seed_everything(3)
    assert caplog.messages == ["Seed set to 3"]


def test_isolation_puts_everything_back() -> None:
    generator = torch.Generator().manual_seed(1)
    seed_everything(5)
    expected = (*numbers(), torch.rand(1, generator=generator).item())
    seed_everything(5)
    generator.manual_seed(1)
    with isolate_rng(generators=[generator]):
        numbers()
        torch.rand(3, generator=generator)
    assert (*numbers(), torch.rand(1, generator=generator).item()) == expected


def test_isolation_puts_everything_back_after_an_error() -> None:
    seed_everything(5)
    expected = numbers()
    seed_everything(5)

    def fail() -> None:
        with isolate_rng():
            raise KeyError(numbers())

    with pytest.raises(KeyError):
        fail()
    assert numbers() == expected


def test_a_validation_leaves_the_training_order_alone() -> None:
    def order(validate: bool) -> list[list[int]]:
        seed_everything(1)
        shared = torch.Generator().manual_seed(2)
        train = [DataLoader(range(8), shuffle=True), DataLoader(range(8), shuffle=True, generator=shared)]  # type: ignore[arg-type, var-annotated]
        val = DataLoader(range(8), shuffle=True, generator=shared)  # type: ignore[arg-type, var-annotated]
        seen = []
        for _ in range(2):
            seen += [torch.cat(list(loader)).tolist() for loader in train]
            if validate:
                with isolate_rng(generators=generators_of(train)):
                    list(val)
                    numbers()
        return seen

    assert order(validate=True) == order(validate=False)


class WorkerNumbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(numbers(), dtype=torch.float64)


def draws(rank: int = 0) -> torch.Tensor:
    loader = DataLoader(WorkerNumbers(), num_workers=2, batch_size=2)
    seed_workers(loader, rank)
    return torch.cat(list(loader))


def test_workers_are_seeded_differently_and_reproducibly() -> None:
    seed_everything(3, workers=True)
    first = draws()
    assert len(set(first.flatten().tolist())) == first.numel()
    seed_everything(3, workers=True)
    assert torch.equal(draws(), first)
    seed_everything(3, workers=True)
    assert not torch.equal(draws(rank=1), first)


def test_only_loaders_that_ask_for_it_get_a_worker_init_function() -> None:
    loader = DataLoader(WorkerNumbers(), num_workers=1)
    seed_workers(loader, 0)
    assert loader.worker_init_fn is None  # seed_everything(workers=True) wasn't called
    os.environ["PL_SEED_WORKERS"] = "1"
    own = DataLoader(WorkerNumbers(), num_workers=1, worker_init_fn=print)
    without = DataLoader(WorkerNumbers())
    for each in (own, without, loader, [1]):
        seed_workers(each, 0)
    assert own.worker_init_fn is print
    assert without.worker_init_fn is None
    assert loader.worker_init_fn is not None


def test_the_worker_function_takes_the_rank_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    torch.manual_seed(5)
    pl_worker_init_function(0)
    expected = numbers()
    torch.manual_seed(5)
    pl_worker_init_function(0, rank=3)
    assert numbers() == expected
