"""All instruments that `unstuck run` has on by default, at the start and later, with the share of each.

Three programs with steps of 5 ms or more: a stack of linear layers on one batch, a convolutional network with batch
normalisation and dropout on shuffled batches of digits, and a transformer on random tokens. The ratio to the plain loop
is told for the first 200 steps and for those from the 300th on; the shares are parts of a plain step.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.watching import loop
from unstuck.session import Ending, Session, SessionOptions
from unstuck.signals import SIGNALS

FIRST, SETTLED, LATER = 200, 300, 200
ROUNDS = 5
LIMITS = (1.25, 1.05)


def digits() -> Callable[[int], None]:
    """A convolutional network on the digits of scikit-learn, enlarged to 16 x 16."""
    images, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16.0
    inputs = nn.functional.interpolate(inputs, scale_factor=2.0)
    loader = DataLoader(TensorDataset(inputs, torch.tensor(labels)), batch_size=64, shuffle=True)
    model = nn.Sequential(
        *(nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU()),
        *(nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 64, 10)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def run(steps: int) -> None:
        done = 0
        while done < steps:
            for x, y in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                done += 1
                if done == steps:
                    break

    return run


class Language(nn.Module):
    """Predicts tokens with two encoder layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(128, 96)
        layer = nn.TransformerEncoderLayer(96, 4, 192, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(96, 128)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (batch, length, 128) of tokens (batch, length)."""
        out: torch.Tensor = self.head(self.encoder(self.embed(tokens)))
        return out


def tokens() -> Callable[[int], None]:
    """A transformer on random tokens, with clipping and a schedule."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)

    def run(steps: int) -> None:
        for _ in range(steps):
            batch = torch.randint(0, 128, (8, 33))
            logits = model(batch[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()

    return run


PROGRAMS: dict[str, Callable[[], Callable[[int], None]]] = {
    "linear layers": lambda: loop(12, 160, 256),
    "digits": digits,
    "tokens": tokens,
}


class Shares:
    """Times each instrument of a session, from when it is attached."""

    def __init__(self, session: Session) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        bus = session._bus
        for listener in bus.listeners:
            for signal in SIGNALS:
                if hasattr(listener, signal):
                    setattr(listener, signal, self._timed(listener.name, getattr(listener, signal)))
        bus._connect()

    def _timed(self, name: str, handler: Callable[..., None]) -> Callable[..., None]:
        def timed(*arguments: Any) -> None:
            begin = time.thread_time()
            handler(*arguments)
            self.seconds[name] += time.thread_time() - begin

        return timed

    def take(self) -> dict[str, float]:
        """Seconds by instrument since the last time."""
        taken = dict(self.seconds)
        self.seconds.clear()
        return taken


def measure(make: Callable[[], Callable[[int], None]]) -> tuple[float, list[float], list[dict[str, float]]]:
    """(seconds of a plain step, ratios of the first and of later steps, shares of each instrument in both)."""
    plain, first, later = [], [], []
    for _ in range(ROUNDS):
        before = _plain(make)
        times, _ = _watched(make)
        # a plain block on either side, so that a machine that drifts favours neither
        plain.append((before + _plain(make)) / 2)
        first.append(times[0] / plain[-1])
        later.append(times[1] / plain[-1])
    step = statistics.median(plain)
    # timing each instrument takes time as well, so that these steps tell nothing but the shares
    _, spent = _watched(make, shares=True)
    return (
        step,
        [statistics.median(first), statistics.median(later)],
        [{key: value / step for key, value in item.items()} for item in spent],
    )


def _plain(make: Callable[[], Callable[[int], None]]) -> float:
    run = make()
    run(20)
    return _timed(run, LATER)


def _watched(
    make: Callable[[], Callable[[int], None]], shares: bool = False
) -> tuple[tuple[float, float], list[dict[str, float]]]:
    """Seconds of the first and of later steps, and of each instrument in them if wanted."""
    spent: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        session = Session(SessionOptions(out=Path(folder)))
        session.start()
        timing = Shares(session) if shares else None
        run = make()
        first = _timed(run, FIRST)
        if timing is not None:
            spent.append({key: value / FIRST for key, value in timing.take().items()})
        run(SETTLED - FIRST)
        if timing is not None:
            timing.take()
        later = _timed(run, LATER)
        if timing is not None:
            spent.append({key: value / LATER for key, value in timing.take().items()})
        # trials aren't part of these ratios, and leave the interpreter's audit hook behind in this process
        session.options = replace(session.options, budget=0.0)
        session.finish(Ending("completed"))
    return (first, later), spent


def _timed(run: Callable[[int], None], steps: int) -> float:
    begin = time.thread_time()
    run(steps)
    return (time.thread_time() - begin) / steps


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    for name, make in PROGRAMS.items():
        step, ratios, shares = measure(make)
        print(f"{name}, {1e3 * step:.1f} ms a step")
        for phase, ratio, limit, share in zip(
            (f"first {FIRST}", f"from {SETTLED} on"), ratios, LIMITS, shares, strict=True
        ):
            print(f"  {phase:>12}: {ratio:.3f} (at most {limit})")
            told = sorted(share.items(), key=lambda item: -item[1])
            print("    " + ", ".join(f"{key} {100 * value:.2f} %" for key, value in told if value >= 1e-4))


if __name__ == "__main__":
    main()
