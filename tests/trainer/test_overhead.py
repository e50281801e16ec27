"""The Trainer's own cost stays a small part of Lightning's, measured in the same run."""

from __future__ import annotations

import pytest
import torch

from benchmarks.trainer_overhead import TARGET, measure_all


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("logs", [False, True])
def test_overhead_per_step(logs: bool) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = measure_all(logs, rounds=40)
    finally:
        torch.set_num_threads(threads)
    assert times["unstuck"] - times["raw"] <= TARGET * (times["lightning"] - times["raw"]), times
