"""Recording the norms of all gradients: every step, and as often as the budget allows, as ratios to the raw loop.

A network of 51 layers of width 64 (104 parameters) under Adam. ``recording`` is the gradients' instrument alone on
top of what counts steps for it; ``watching`` is a whole session, with the guard against non-finite values.
Lightning's documented recipe is ``grad_norm`` in ``on_before_optimizer_step``; here only its computation is timed,
without the logging that costs most of it (see ``gradient_norm_logging``).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from unstuck.instruments.clipping import Clipping
from unstuck.instruments.gradients import Gradients
from unstuck.instruments.guard import Guard
from unstuck.instruments.inventory import Inventory
from unstuck.instruments.moments import Moments
from unstuck.record.recording import Recording
from unstuck.session import Ending, Session, SessionOptions
from unstuck.signals import Bus
from unstuck.sources.plain import PlainSource

ROUNDS, STEPS, WARM = 25, 12, 40
LIMIT_EVERY_STEP, LIMIT_BUDGET = 1.20, 1.03

Watcher = Callable[[], Callable[[], None]]
"""Begins to watch and returns what ends it."""


class _Count(Guard):
    """The guard's counters without its checks, so that recording gradients is measured alone."""

    def backward_begins(self, tensors: object, frame: object) -> None:
        self.passes += 1

    def backward_ended(self, tensors: object) -> None:
        pass

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: object, frame: object) -> None:
        self.optimizers.setdefault(id(optimizer), optimizer)

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: object) -> None:
        self.steps += 1


def recording(every_step: bool) -> Watcher:
    """Watch with the instruments for gradients alone."""

    def begin() -> Callable[[], None]:
        record, moments, inventory = Recording(), Moments(), Inventory()
        guard = _Count(moments, lambda incident: None)
        clipping = Clipping(record, guard)
        gradients = Gradients(record, guard, moments, inventory, clipping, every_step)
        source = PlainSource(Bus([guard, gradients, clipping]))
        source.open()
        return source.close

    return begin


def watching(every_step: bool) -> Watcher:
    """Watch with a whole session."""

    def begin() -> Callable[[], None]:
        session = Session(SessionOptions(every_gradient=every_step))
        session.start()
        return lambda: session.finish(Ending("completed")) and None

    return begin


def network() -> nn.Sequential:
    """51 hidden layers of width 64 and a head."""
    layers = [layer for _ in range(51) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def loop(between: Callable[[nn.Module], object] | None = None) -> Callable[[int], None]:
    """A training loop of so many steps; ``between`` is called with the model between backward and step."""
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))

    def run(steps: int) -> None:
        for _ in range(steps):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            if between is not None:
                between(model)
            optimizer.step()

    return run


def measure(ways: dict[str, tuple[Callable[[int], None], Watcher | None]]) -> tuple[float, dict[str, float]]:
    """(milliseconds of a raw step, median ratio of each way), all ways in turn in each round."""
    raw = loop()
    raw(WARM)
    times: list[float] = []
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (run, begin) in ways.items():
            plain = _timed(raw)
            end = begin() if begin is not None else None
            run(WARM)
            watched = _timed(run)
            if end is not None:
                end()
            plain = 0.5 * (plain + _timed(raw))
            times.append(plain)
            ratios[name].append(watched / plain)
    return 1e3 * statistics.median(times), {name: statistics.median(values) for name, values in ratios.items()}


def _timed(run: Callable[[int], None]) -> float:
    begin = time.thread_time()
    run(STEPS)
    return (time.thread_time() - begin) / STEPS


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    raw = loop()
    ways: dict[str, tuple[Callable[[int], None], Watcher | None]] = {
        "recording, every step": (raw, recording(True)),
        "recording, by budget": (raw, recording(False)),
        "watching, every step": (raw, watching(True)),
        "watching, by budget": (raw, watching(False)),
    }
    try:
        from lightning.pytorch.utilities import grad_norm
    except ImportError:
        pass
    else:
        ways["Lightning's grad_norm, not logged"] = (loop(lambda model: grad_norm(model, 2)), None)
    milliseconds, found = measure(ways)
    limits = {"recording, every step": LIMIT_EVERY_STEP, "recording, by budget": LIMIT_BUDGET}
    print(f"raw step {milliseconds:.2f} ms")
    for name, ratio in found.items():
        limit = limits.get(name)
        print(f"{name:36} {ratio:6.3f}" + ("" if limit is None else f"   limit {limit:.2f}"))


if __name__ == "__main__":
    main()
