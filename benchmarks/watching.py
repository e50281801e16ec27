"""Watching a plain loop (guard, moments and recording on) as a ratio to the same loop alone.

Each loop runs in blocks, alternately under a session and without one, in one process. A session is opened and closed
around each of its blocks, outside the time that is taken.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from unstuck.session import Ending, Session, SessionOptions

ROUNDS = 15
WARM_UP = 300
"""Steps before those that are timed: the first ones look at everything (``benchmarks.instruments`` tells what that
costs)."""


def network(depth: int, width: int) -> nn.Module:
    """A stack of linear layers and ReLUs."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def loop(depth: int, width: int, batch: int) -> Callable[[int], None]:
    """A training loop of so many steps on random data."""
    model = network(depth, width)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x, y = torch.randn(batch, width), torch.randint(0, 10, (batch,))

    def run(steps: int) -> None:
        for _ in range(steps):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return run


def ratio(run: Callable[[int], None], steps: int, rounds: int = ROUNDS) -> tuple[float, float]:
    """(milliseconds of a plain step, ratio of a watched one)."""
    plain, watched = [], []
    with tempfile.TemporaryDirectory() as folder:
        # One session for all blocks would be watching while the plain ones run; each block has its own, warmed up.
        for index in range(rounds):
            before = _timed(run, steps)
            session = Session(SessionOptions(out=Path(folder) / str(index)))
            session.start()
            run(WARM_UP)
            watched.append(_timed(run, steps))
            # trials aren't part of these ratios, and leave the interpreter's audit hook behind in this process
            session.options = replace(session.options, budget=0.0)
            session.finish(Ending("completed"))
            # a plain block on either side, so that a machine that drifts favours neither
            plain.append((before + _timed(run, steps)) / 2)
    pairs = [after / before for before, after in zip(plain, watched, strict=True)]
    return 1e3 * statistics.median(plain) / steps, statistics.median(pairs)


def _timed(run: Callable[[int], None], steps: int) -> float:
    # Time of this thread's own work: what else runs on the machine doesn't count.
    begin = time.thread_time()
    run(steps)
    return time.thread_time() - begin


def start_up() -> float:
    """Seconds that a watched start takes beyond plain Python that imports torch, median of several."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text("import torch\n")
        ways = ([sys.executable, str(script)], [sys.executable, "-m", "unstuck", "run", str(script)])
        times: list[list[float]] = [[], []]
        for _ in range(7):
            for way, taken in zip(ways, times, strict=True):
                begin = time.perf_counter()
                subprocess.run(way, cwd=folder, check=True, capture_output=True)
                taken.append(time.perf_counter() - begin)
    return statistics.median(times[1]) - statistics.median(times[0])


MEMORY = """
import sys
import torch
from torch import nn
from benchmarks.watching import loop, peak
loop(12, 1024, 512)(12)
print("peak", peak())
"""


def peak() -> float:
    """Largest memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory() -> tuple[float, float]:
    """Peak memory in MiB of a training with about 50 MiB of weights, plain and watched, medians of several."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(MEMORY)
        root = str(Path(__file__).parent.parent)
        ways = ([sys.executable, str(script)], [sys.executable, "-m", "unstuck", "run", str(script)])
        found: list[list[float]] = [[], []]
        for _ in range(3):
            for way, peaks in zip(ways, found, strict=True):
                done = subprocess.run(
                    way, cwd=folder, check=True, capture_output=True, text=True, env={"PYTHONPATH": root, "PATH": ""}
                )
                peaks.append(float(done.stdout.split()[-1]))
    return statistics.median(found[0]), statistics.median(found[1])


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(f"{'step':>10} {'ratio':>7} {'at most':>8}")
    for depth, width, batch, steps, rounds, limit in (
        (2, 64, 32, 400, ROUNDS, 1.25),
        (6, 64, 64, 200, ROUNDS, 1.15),
        (12, 160, 256, 100, 5, 1.03),
        (8, 512, 128, 40, 5, 1.03),
    ):
        milliseconds, found = ratio(loop(depth, width, batch), steps, rounds)
        print(f"{milliseconds:>7.2f} ms {found:>7.3f} {limit:>8.2f}")
    print(f"start-up: {start_up():.2f} s over importing torch (at most 0.30)")
    before, after = memory()
    print(f"peak memory: {before:.0f} MiB plain, {after:.0f} MiB watched, ratio {after / before:.3f} (at most 1.05)")


if __name__ == "__main__":
    main()
