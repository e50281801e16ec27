"""What the way to a batch costs, as a multiple of a bare loop over the same batches, measured in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from unstuck.trainer.data.combined import CombinedLoader, iterate
from unstuck.trainer.data.transfer import move_data_to_device

BATCHES = [(torch.ones(2), torch.ones(2))] * 5000
MOST_MICROSECONDS = 2.0


class Loader:
    def __len__(self) -> int:
        return len(BATCHES)

    def __iter__(self) -> Iterator[Any]:
        return iter(BATCHES)


def microseconds(function: Callable[[], None]) -> float:
    """CPU time per batch, the least of some turns."""
    turns = []
    for _ in range(7):
        start = time.process_time()
        function()
        turns.append(time.process_time() - start)
    return min(turns) / len(BATCHES) * 1e6


def test_fetching_and_moving_a_batch_on_the_cpu_costs_next_to_nothing() -> None:
    combined = CombinedLoader(Loader(), "max_size_cycle")
    device = torch.device("cpu")

    def raw() -> None:
        for _, _ in enumerate(Loader()):
            pass

    def ours() -> None:
        for batch, _, _, _ in iterate(combined):
            move_data_to_device(batch, device)

    assert microseconds(ours) - microseconds(raw) < MOST_MICROSECONDS
