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
    def share() -> float:
        times = trainer_overhead.measure_all(logs, rounds=25)
        return (times["unstuck"] - times["raw"]) / (times["lightning"] - times["raw"])

    target = trainer_overhead.TARGET if logs else trainer_overhead.TARGET_WITHOUT_LOGGING
    assert least(share, target) <= target


def test_logging_all_gradient_norms() -> None:
    def ratio() -> float:
        return gradient_norm_logging.ratio(gradient_norm_logging.measure_all(rounds=3), "unstuck", "raw")

    target = gradient_norm_logging.TARGET_RAW
    assert least(ratio, target) <= target
