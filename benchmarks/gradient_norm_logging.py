"""What it costs to log the norm of every gradient on every step: 51 layers of width 64, about a hundred parameters.

``self.log_dict(grad_norm(self, 2))`` in ``on_before_optimizer_step``, as Lightning documents it, under our Trainer and
under Lightning's, against the loop written by hand, without anything and with one bare fused sweep over the gradients.
They take turns on one thread, and that thread's own processor time counts, which a busy machine changes little. Run it
as ``python -m benchmarks.gradient_norm_logging``.
"""

from __future__ import annotations

import logging
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

LAYERS = 51
WIDTH = 64
BATCH_SIZE = 32
BATCHES = 20
ROUNDS = 20
# At most these times the loop without anything, and the loop with the bare sweep.
TARGET_RAW = 1.35
TARGET_SWEEP = 1.1

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "max_epochs": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def make_network() -> nn.Module:
    """The deep network: 51 hidden layers and a last one, 104 parameters."""
    torch.manual_seed(0)
    hidden = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(WIDTH, 1))


def make_loader() -> DataLoader[Any]:
    """Random samples."""
    generator = torch.Generator().manual_seed(0)
    samples = BATCHES * BATCH_SIZE
    x, y = torch.randn(samples, WIDTH, generator=generator), torch.randn(samples, 1, generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=BATCH_SIZE)


def by_hand(sweeps: bool) -> Callable[[], float]:
    """Seconds of the loop written by hand, with or without a bare sweep over the gradients."""

    def measure() -> float:
        network, loader = make_network(), make_loader()
        optimizer = torch.optim.Adam(network.parameters())
        parameters = list(network.parameters())
        start = time.thread_time()
        for x, y in loader:
            loss = nn.functional.mse_loss(network(x), y)
            optimizer.zero_grad()
            loss.backward()
            if sweeps:
                torch._foreach_norm([parameter.grad for parameter in parameters], 2)
            optimizer.step()
        return time.thread_time() - start

    return measure


def trained_by(library: Any, grad_norm: Any) -> Callable[[], float]:
    """Seconds of the same training by a Trainer that logs all norms."""

    class Module(library.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network, self.seconds = make_network(), 0.0

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return nn.functional.mse_loss(self.network(batch[0]), batch[1])

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            self.log_dict(grad_norm(self, 2))

        def on_train_start(self) -> None:
            self.seconds -= time.thread_time()

        def on_train_end(self) -> None:
            self.seconds += time.thread_time()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    def measure() -> float:
        module = Module()
        library.Trainer(**QUIET).fit(module, make_loader())
        return float(module.seconds)

    return measure


def measure_all(rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Microseconds per step of each contender in each round, in which they take turns, after one round to warm up."""
    import lightning.pytorch as lightning
    from lightning.pytorch.utilities import grad_norm as their_grad_norm

    import unstuck
    from unstuck.utilities import grad_norm

    contenders = {
        "raw": by_hand(sweeps=False),
        "raw and a bare sweep": by_hand(sweeps=True),
        "unstuck": trained_by(unstuck, grad_norm),
        "lightning": trained_by(lightning, their_grad_norm),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        for name, measure in contenders.items():
            times[name].append(measure() / BATCHES * 1e6)
    return {name: values[1:] for name, values in times.items()}


def ratio(times: dict[str, list[float]], name: str, other: str) -> float:
    """The median over the rounds of how many times the other's time a contender takes."""
    return statistics.median(own / plain for own, plain in zip(times[name], times[other], strict=True))


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    import lightning.pytorch  # noqa: F401 - it sets its logger's level when it is imported

    for name in ("lightning.pytorch", "unstuck"):
        logging.getLogger(name).setLevel(logging.ERROR)
    times = measure_all()
    print(f"{LAYERS} layers of width {WIDTH}, batch {BATCH_SIZE}, Adam, all norms logged on every step, one thread")
    for name, values in times.items():
        print(f"{name:24}{statistics.median(values):10.0f} us per step  {ratio(times, name, 'raw'):6.2f} x raw")
    to_raw, to_sweep = ratio(times, "unstuck", "raw"), ratio(times, "unstuck", "raw and a bare sweep")
    held = to_raw <= TARGET_RAW and to_sweep <= TARGET_SWEEP
    print(
        f"unstuck: {to_raw:.3f} x raw (target {TARGET_RAW}), {to_sweep:.3f} x raw with sweep (target {TARGET_SWEEP}):"
        f" {'held' if held else 'missed'}"
    )


if __name__ == "__main__":
    main()
