"""The Trainer's own cost stays a small part of Lightning's, measured in the same run.

Figures come from many short rounds in which the contenders take turns; a machine that is busy with something else gets
a second and a third chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from benchmarks import gradient_norm_logging, trainer_overhead

pytestmark = pytest.mark.filterwarnings("ignore")

CHANCES = 3


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def least(measure: Callable[[], float], limit: float) -> float:
    """The least of some measurements; no more are made once one is within the limit."""
    smallest = float("inf")
    for _ in range(CHANCES):
        smallest = min(smallest, measure())
        if smallest <= limit:
            break
    return smallest


@pytest.mark.parametrize("logs", [False, True])
def test_overhead_per_step(logs: bool) -> None:
    """With and without the guard against NaN and infinity, each within its share of Lightning's."""

    def excess() -> float:
        times = trainer_overhead.measure_all(logs, rounds=25)
        shares = {
            name: (times[name] - times["raw"]) / (times["lightning"] - times["raw"])
            for name in trainer_overhead.TARGETS
        }
        return max(share / trainer_overhead.TARGETS[name] for name, share in shares.items())

    assert least(excess, 1.0) <= 1.0


def test_logging_all_gradient_norms() -> None:
    def ratio() -> float:
        return gradient_norm_logging.ratio(gradient_norm_logging.measure_all(rounds=3), "unstuck", "raw")

    target = gradient_norm_logging.TARGET_RAW
    assert least(ratio, target) <= target
