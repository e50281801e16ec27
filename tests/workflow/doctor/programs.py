"""Programs that are examined: what a target returns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import unstuck

Target = Callable[[], Any]


def data(count: int = 256, features: int = 8) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, features, generator=generator)
    return TensorDataset(inputs, (inputs[:, :2].sum(1) > 0).long())


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(data(), batch_size=16, shuffle=True, **options)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))


def plain(model: nn.Module | None = None, rate: float = 1e-2) -> tuple[Any, ...]:
    model = network() if model is None else model
    return model, loader(), nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=rate)


class Module(unstuck.LightningModule):
    """Learns the data, and logs into whatever logger there is."""

    def __init__(self, rate: float = 1e-2) -> None:
        super().__init__()
        self.rate = rate
        self.net = network()
        self.seen: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.seen.append(loss.item())
        self.logger.experiment.add_scalar("loss", loss, self.global_step)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=self.rate)


class Reporting(Module):
    """Logs from its training step, and takes the logarithm of zeros from the fourth step on."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        p = self.net(batch[0]).softmax(-1) * (0.0 if self.global_step >= 3 else 1.0)
        logarithm = torch.log(p)  # of zeros
        loss = nn.functional.nll_loss(logarithm, batch[1])
        self.log("loss", loss)
        return loss


def detached() -> tuple[Any, ...]:
    model, batches, _, optimizer = plain()

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        output = output.detach()  # cut by the loss
        return nn.functional.cross_entropy(output, target)

    return model, batches, loss, optimizer


def detaching(base: Any) -> tuple[Any, ...]:
    """A LightningModule of ours or of Lightning."""

    class Detaching(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            with torch.no_grad():  # cut by the step
                output = self.net(batch[0])
            loss = nn.functional.cross_entropy(output, batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    return Detaching(), loader()


class Adversaries(Module):
    """Two networks against each other, in manual optimisation."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.judge = nn.Linear(2, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        makers, judges = self.optimizers()
        made = self.net(batch[0])
        for optimizer, sign, sample in ((makers, 1.0, made), (judges, -1.0, made.detach())):
            optimizer.zero_grad()
            self.manual_backward(sign * nn.functional.softplus(self.judge(sample)).mean())
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(item.parameters(), lr=1e-3) for item in (self.net, self.judge)]


class Locked(nn.Module):
    """Can't be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.net = network()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with self.lock:
            out: torch.Tensor = self.net(inputs)
            return out


class OfModel(torch.optim.Adam):
    """An optimiser with a constructor of its own."""

    def __init__(self, model: nn.Module, speed: float) -> None:
        super().__init__(model.parameters(), lr=speed)


def regression(scale: float = 1.0, rate: float = 1e-2) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(256, 8, generator=generator)
    targets = scale * inputs.sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    batches = DataLoader(TensorDataset(inputs, targets), batch_size=16, shuffle=True)
    return model, batches, nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=rate)


def climbing() -> tuple[Any, ...]:
    """One batch can be learnt; over the data, which are not shuffled, the loss climbs from step to step."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2560, 8, generator=generator) * torch.linspace(0.1, 30, 2560)[:, None]
    targets = inputs.sum(1, keepdim=True) ** 2 / 30
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    batches = DataLoader(TensorDataset(inputs, targets), batch_size=16)
    return model, batches, nn.MSELoss(), torch.optim.Adam(model.parameters(), lr=1e-2)


def outlier() -> tuple[Any, ...]:
    """One batch, the forty-first, holds numbers whose squares overflow."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1024, 8, generator=generator)
    targets = inputs.sum(1, keepdim=True)
    inputs[650] *= 1e30
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    batches = DataLoader(TensorDataset(inputs, targets), batch_size=16)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - target).pow(2).mean()  # overflows

    return model, batches, loss, torch.optim.SGD(model.parameters(), lr=1e-2)


class Unreadable(Dataset[Any]):
    """A sample, which comes after the first batches, can't be read."""

    def __len__(self) -> int:
        return 640

    def __getitem__(self, index: int) -> Any:
        if index == 40:
            raise OSError("cannot read sample 40")  # unreadable
        return torch.full((8,), float(index % 7)), index % 2


def line_of(mark: str) -> int:
    """The line of this file that ends with a mark."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(index for index, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))
