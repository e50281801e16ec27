"""Random states survive a file that is loaded without running code, to the last bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, RandomSampler, Subset, TensorDataset

from unstuck.trainer.checkpoints.random_state import capture, pack, random_sources, restore


def draws(sources: list[Any]) -> list[Any]:
    values: list[Any] = [torch.rand(3).tolist(), np.random.randn(3).tolist(), random.gauss(0, 1), random.random()]
    for source in sources:
        if isinstance(source, torch.Generator):
            values.append(torch.rand(2, generator=source).tolist())
        elif isinstance(source, np.random.Generator):
            values.append(source.normal(size=3).tolist())
        elif isinstance(source, np.random.RandomState):
            values.append(source.randn(3).tolist())
        else:
            values.append(source.gauss(0, 1))
    return values


def test_all_kinds_of_generators(tmp_path: Path) -> None:
    sources: list[Any] = [
        torch.Generator().manual_seed(3),
        np.random.default_rng(4),
        np.random.Generator(np.random.MT19937(5)),
        np.random.Generator(np.random.Philox(6)),
        np.random.RandomState(7),
        random.Random(8),
    ]
    # An odd number of normal deviates leaves a spare one in the state.
    np.random.randn(1)
    random.gauss(0, 1)
    sources[4].randn(1)
    sources[5].gauss(0, 1)
    torch.save(pack(capture(sources)), tmp_path / "states.pt")
    expected = draws(sources)
    draws(sources)
    restore(torch.load(tmp_path / "states.pt", weights_only=True), sources)
    assert draws(sources) == expected


def test_fewer_generators_than_then_are_restored_as_far_as_they_go() -> None:
    first, second = random.Random(1), random.Random(2)
    states = pack(capture([first, second]))
    expected = first.random()
    restore(states, [first])
    assert first.random() == expected


def test_generators_are_found_where_people_keep_them() -> None:
    class Noisy(Dataset[Any]):
        def __init__(self) -> None:
            self.rng = np.random.default_rng(0)

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return self.rng.random()

    first, second, plain = Noisy(), Noisy(), TensorDataset(torch.zeros(4, 1))
    order, seeds = torch.Generator(), torch.Generator()
    wrapped = ConcatDataset([Subset(first, [0]), Subset(ConcatDataset([second, plain]), [1])])
    loader = DataLoader(wrapped, sampler=RandomSampler(wrapped, generator=order), generator=seeds)
    model = torch.nn.Module()
    model.noise = torch.Generator()  # type: ignore[assignment]
    found = random_sources([model, loader, DataLoader(first)])
    assert [id(source) for source in found][:1] == [id(model.noise)]
    assert {id(source) for source in found} == {id(s) for s in (model.noise, order, seeds, first.rng, second.rng)}
    assert len(found) == 5
