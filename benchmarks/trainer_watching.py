"""What the Trainer's guard against NaN and infinity adds to a step, beside what the Trainer itself adds.

The same fits with and without the guard, in turn within each round, in the thread's own processor time: of the small
network of :mod:`benchmarks.trainer_overhead`, and of one whose step takes about 5 ms. Run it as
``python -m benchmarks.trainer_watching``.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import unstuck
from benchmarks import trainer_overhead as small

ROUNDS = 15
STEP_SHARE = 0.03
"""Largest part of a step of 5 ms."""

SMALL_BATCHES = 500
LARGE_WIDTH, LARGE_BATCHES = 640, 40


class Large(unstuck.LightningModule):
    """A deep network, its step about 5 ms long."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [item for _ in range(6) for item in (nn.Linear(LARGE_WIDTH, LARGE_WIDTH), nn.Tanh())]
        self.network = nn.Sequential(*layers, nn.Linear(LARGE_WIDTH, 1))
        self.seconds = 0.0

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss: Tensor = self.network(batch).pow(2).mean()
        return loss

    def on_train_start(self) -> None:
        self.seconds -= time.thread_time()

    def on_train_end(self) -> None:
        self.seconds += time.thread_time()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def _large() -> float:
    module = Large()
    x: Any = torch.randn(LARGE_BATCHES, 32, LARGE_WIDTH, generator=torch.Generator().manual_seed(0))
    unstuck.Trainer(**small.QUIET).fit(module, DataLoader(x, batch_size=None))
    return module.seconds


def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """Microseconds per step of each contender: the best of many rounds."""
    small.BATCHES = SMALL_BATCHES  # long enough that the thorough first steps are what they are in a real run
    trained = small.trained_by(unstuck)
    contenders: dict[str, tuple[Callable[[], float], int]] = {
        "small, by hand": (lambda: small.raw(False), small.BATCHES),
        "small, bare": (small.without_guard(lambda: trained(False)), small.BATCHES),
        "small, watched": (lambda: trained(False), small.BATCHES),
        "large, bare": (small.without_guard(_large), LARGE_BATCHES),
        "large, watched": (_large, LARGE_BATCHES),
    }
    best = dict.fromkeys(contenders, float("inf"))
    for index in range(rounds):
        for name, (contender, steps) in contenders.items():
            if name.startswith("large") and index % 2:
                continue
            best[name] = min(best[name], contender() / steps * 1e6)
    return best


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("unstuck").setLevel(logging.ERROR)
    found = measure()
    for name, microseconds in found.items():
        print(f"{name:18}{microseconds:10.1f} us per step")
    own, added = found["small, bare"] - found["small, by hand"], found["small, watched"] - found["small, bare"]
    share = found["large, watched"] / found["large, bare"] - 1
    print(f"the guard adds {added:.1f} us, the Trainer itself {own:.1f} us")
    print(f"of a step of {found['large, bare'] / 1e3:.1f} ms {share:.1%} (target {STEP_SHARE:.0%})")


if __name__ == "__main__":
    main()
