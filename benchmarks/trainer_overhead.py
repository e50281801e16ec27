"""What a Trainer adds to a training step: ours and Lightning's, against the same loop written by hand.

All three run the same two-layer network on the same batches, in turn within each round, on one thread and in that
thread's own processor time, so that a machine that is busy or slows down tells the same of all of them. Run it as
``python -m benchmarks.trainer_overhead``.
"""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

BATCHES = 60
BATCH_SIZE = 32
WIDTH = 64
ROUNDS = 40
TARGETS = {"unguarded": 1 / 8, "unstuck": 1 / 5}
"""Largest part of Lightning's overhead that ours may be: without the guard against NaN and infinity, and with it."""


QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "max_epochs": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def make_network() -> nn.Module:
    """The two-layer network."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))


def make_loader() -> DataLoader[Any]:
    """The batches; the collation costs all three the same."""
    generator = torch.Generator().manual_seed(0)
    samples = BATCHES * BATCH_SIZE
    x, y = torch.randn(samples, WIDTH, generator=generator), torch.randn(samples, 1, generator=generator)
    return DataLoader(_Batches(x, y), batch_size=None)


class _Batches(TensorDataset):
    """A dataset whose items are whole batches."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        rows = slice(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)
        return tuple(tensor[rows] for tensor in self.tensors)


def raw(logs: bool) -> float:
    """Seconds of the loop written by hand (which logs nothing)."""
    network, loader = make_network(), make_loader()
    optimizer = torch.optim.Adam(network.parameters())
    network.train()
    start = time.thread_time()
    for x, y in loader:
        loss = nn.functional.mse_loss(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.thread_time() - start


def trained_by(library: Any) -> Callable[[bool], float]:
    """Seconds of the same training by a Trainer, from the start of the training to its end."""

    class Module(library.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self, logs: bool) -> None:
            super().__init__()
            self.network, self.logs, self.seconds = make_network(), logs, 0.0

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            x, y = batch
            loss = nn.functional.mse_loss(self.network(x), y)
            if self.logs:
                self.log("loss", loss)
            return loss

        def on_train_start(self) -> None:
            self.seconds -= time.thread_time()

        def on_train_end(self) -> None:
            self.seconds += time.thread_time()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    def measure(logs: bool) -> float:
        module = Module(logs)
        library.Trainer(**QUIET).fit(module, make_loader())
        return float(module.seconds)

    return measure


def without_guard(measure: Callable[..., float]) -> Callable[..., float]:
    """The same measurement of a Trainer that doesn't watch for NaN and infinity."""

    def measured(*arguments: Any) -> float:
        from unstuck.trainer import entry

        original = vars(entry)["watched"]
        setattr(entry, "watched", contextlib.nullcontext)  # noqa: B010 - the name is no public one
        try:
            return measure(*arguments)
        finally:
            setattr(entry, "watched", original)  # noqa: B010

    return measured


def measure_all(logs: bool, rounds: int = ROUNDS) -> dict[str, float]:
    """Microseconds per step of each contender: the best of many short rounds, run in turn.

    Whatever else the machine does adds time and never takes it, so the best is the truest.
    """
    import lightning.pytorch as lightning

    import unstuck

    own = trained_by(unstuck)
    contenders = {"raw": raw, "unguarded": without_guard(own), "unstuck": own, "lightning": trained_by(lightning)}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for measure in contenders.values():
        measure(logs)
    for _ in range(rounds):
        for name, measure in contenders.items():
            seconds[name].append(measure(logs))
    return {name: min(values) / BATCHES * 1e6 for name, values in seconds.items()}


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    import lightning.pytorch  # noqa: F401 - it sets its logger's level when it is imported

    for name in ("lightning.pytorch", "unstuck"):
        logging.getLogger(name).setLevel(logging.ERROR)
    print(f"two-layer network, batch {BATCH_SIZE}, Adam, one thread; microseconds per step, best of {ROUNDS} rounds")
    print(f"{'':24}{'guard':>7}{'raw':>8}{'unstuck':>10}{'lightning':>11}{'added':>8}{'added by L.':>13}{'ratio':>8}")
    for text, logs in (("no logging", False), ("one self.log per step", True)):
        times = measure_all(logs)
        other = times["lightning"] - times["raw"]
        for name, target in TARGETS.items():
            own = times[name] - times["raw"]
            print(
                f"{text:24}{'on' if name == 'unstuck' else 'off':>7}{times['raw']:8.0f}{times[name]:10.0f}"
                f"{times['lightning']:11.0f}{own:8.1f}{other:13.1f}{own / other:8.3f} (at most {target:.3f})"
            )


if __name__ == "__main__":
    main()
