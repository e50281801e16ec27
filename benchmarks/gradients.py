"""Recording the norms of all gradients: every step, and as often as the budget allows, as ratios to the raw loop.

A network of 51 layers of width 64 (104 parameters) under Adam, and one of width 1024 whose gradients exceed the cache.
``recording`` is the gradients' instrument on top of what counts steps for it; what a whole session costs is measured by
``watching`` and ``instruments``. Lightning's documented recipe is ``self.log_dict(grad_norm(self, 2))`` in
``on_before_optimizer_step``: here its computation alone, and the whole of it as ``gradient_norm_logging`` measures it,
with the smaller batch of that benchmark.
"""

from __future__ import annotations

import logging
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.gradient_norm_logging import by_hand, trained_by
from unstuck.instruments.clipping import Clipping
from unstuck.instruments.gradients import Gradients
from unstuck.instruments.guard import Guard
from unstuck.instruments.inventory import Inventory
from unstuck.instruments.moments import Moments
from unstuck.record.recording import Recording
from unstuck.signals import Bus
from unstuck.sources.plain import PlainSource

ROUNDS, STEPS, WARM = 25, 12, 40
LIMIT_EVERY_STEP, LIMIT_BEYOND_CACHE, LIMIT_BUDGET = 1.20, 1.25, 1.03
NARROW, WIDE = 64, 1024
BATCH_SIZE = 256
WIDE_BATCH_SIZE, WIDE_ROUNDS, WIDE_STEPS, WIDE_WARM = 64, 7, 2, 3
RECIPE_ROUNDS = 5

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
        self.count_step(optimizer)


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


def network(width: int) -> nn.Sequential:
    """51 hidden layers of a width and a head."""
    layers = [layer for _ in range(51) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def loop(
    between: Callable[[nn.Module], object] | None = None, width: int = NARROW, batch: int = BATCH_SIZE
) -> Callable[[int], None]:
    """A training loop of so many steps; ``between`` is called with the model between backward and step."""
    torch.manual_seed(0)
    model = network(width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x, y = torch.randn(batch, width), torch.randint(0, 10, (batch,))

    def run(steps: int) -> None:
        for _ in range(steps):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            if between is not None:
                between(model)
            optimizer.step()

    return run


def measure(
    raw: Callable[[int], None],
    ways: dict[str, tuple[Callable[[int], None], Watcher | None]],
    rounds: int = ROUNDS,
    steps: int = STEPS,
    warm: int = WARM,
) -> tuple[float, dict[str, float]]:
    """(milliseconds of a raw step, median ratio of each way), all ways in turn in each round."""
    raw(warm)
    times: list[float] = []
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (run, begin) in ways.items():
            plain = _timed(raw, steps)
            end = begin() if begin is not None else None
            run(warm)
            watched = _timed(run, steps)
            if end is not None:
                end()
            plain = 0.5 * (plain + _timed(raw, steps))
            times.append(plain)
            ratios[name].append(watched / plain)
    return 1e3 * statistics.median(times), {name: statistics.median(values) for name, values in ratios.items()}


def _timed(run: Callable[[int], None], steps: int) -> float:
    begin = time.thread_time()
    run(steps)
    return (time.thread_time() - begin) / steps


def recipe() -> float:
    """How many times the raw loop Lightning's documented recipe takes, logging included."""
    import lightning.pytorch as lightning
    from lightning.pytorch.utilities import grad_norm

    raw, logged = by_hand(sweeps=False), trained_by(lightning, grad_norm)
    raw(), logged()
    return statistics.median(logged() / raw() for _ in range(RECIPE_ROUNDS))


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    raw = loop()
    ways: dict[str, tuple[Callable[[int], None], Watcher | None]] = {
        "recording, every step": (raw, recording(True)),
        "recording, by budget": (raw, recording(False)),
    }
    try:
        from lightning.pytorch.utilities import grad_norm
    except ImportError:
        compares = False
    else:
        compares = True
        ways["Lightning's grad_norm, not logged"] = (loop(lambda model: grad_norm(model, 2)), None)
    milliseconds, found = measure(raw, ways)
    limits = {"recording, every step": LIMIT_EVERY_STEP, "recording, by budget": LIMIT_BUDGET}
    print(f"width {NARROW}: raw step {milliseconds:.2f} ms")
    _print_rows(found, limits)
    if compares:
        warnings.simplefilter("ignore")
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        _print_rows({"Lightning's recipe, logged": recipe()}, {})
    wide = loop(width=WIDE, batch=WIDE_BATCH_SIZE)
    every = {"recording, every step": (wide, recording(True))}
    milliseconds, found = measure(wide, every, WIDE_ROUNDS, WIDE_STEPS, WIDE_WARM)
    print(f"width {WIDE}, gradients of {_mebibytes(WIDE):.0f} MiB: raw step {milliseconds:.2f} ms")
    _print_rows(found, {"recording, every step": LIMIT_BEYOND_CACHE})


def _mebibytes(width: int) -> float:
    return sum(item.numel() * item.element_size() for item in network(width).parameters()) / 2**20


def _print_rows(found: dict[str, float], limits: dict[str, float]) -> None:
    for name, ratio in found.items():
        limit = limits.get(name)
        print(f"{name:36} {ratio:6.3f}" + ("" if limit is None else f"   limit {limit:.2f}"))


if __name__ == "__main__":
    main()
