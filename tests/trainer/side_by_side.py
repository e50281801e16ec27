"""The same module and seed under Lightning's Trainer and under ours, in one process."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import unstuck

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}


@dataclass
class Library:
    """One of the two."""

    name: str
    Trainer: Any
    LightningModule: Any
    LightningDataModule: Any
    Callback: Any
    seed_everything: Any


OURS = Library(
    "ours",
    unstuck.Trainer,
    unstuck.LightningModule,
    unstuck.LightningDataModule,
    unstuck.Callback,
    unstuck.seed_everything,
)
THEIRS = Library("theirs", pl.Trainer, pl.LightningModule, pl.LightningDataModule, pl.Callback, pl.seed_everything)


@dataclass
class Outcome:
    """What a run has left."""

    losses: list[Tensor] = field(default_factory=list)
    weights: dict[str, Tensor] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    epochs: int = 0
    events: list[str] = field(default_factory=list)
    result: Any = None
    rng: Tensor | None = None


def data(samples: int = 24, seed: int = 5) -> TensorDataset:
    """Inputs of width 8 and targets of width 1 that depend on them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 8, generator=generator)
    y = (x[:, :1] * 2 - x[:, 1:2]) + 0.1 * torch.randn(samples, 1, generator=generator)
    return TensorDataset(x, y)


def loader(samples: int = 24, batch_size: int = 4, shuffle: bool = True, **kwargs: Any) -> DataLoader[Any]:
    return DataLoader(data(samples), batch_size=batch_size, shuffle=shuffle, **kwargs)


def make_net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 1))


def base_module(library: Library) -> type[Any]:
    """A regression module that logs, and remembers its losses."""

    class Regression(library.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = make_net()
            self.losses: list[Tensor] = []
            self.events: list[str] = []

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            loss = nn.functional.mse_loss(self.net(x), y)
            self.losses.append(loss.detach().clone())
            self.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            self.log("val_loss", nn.functional.mse_loss(self.net(x), y))

        def test_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            self.log("test_loss", nn.functional.mse_loss(self.net(x), y))

        def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            return self.net(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.02)

    return Regression


Make = Callable[[Library], Any]


def run(
    library: Library,
    make: Make = lambda library: base_module(library)(),
    train: Callable[[], Any] | None = loader,
    val: Callable[[], Any] | None = None,
    method: str = "fit",
    use: Callable[[Any, Any], Any] | None = None,
    **keywords: Any,
) -> Outcome:
    """Runs a fit (or another method) and collects what it leaves.

    Args:
        library: which of the two.
        make: builds the module.
        train: builds what is passed as training loaders (or as loaders of another method).
        val: builds the validation loaders.
        method: the Trainer's method.
        use: called with trainer and module in place of the method.
        keywords: the Trainer's.
    """
    torch.manual_seed(11)
    module = make(library)
    trainer = library.Trainer(**{**QUIET, **keywords})
    outcome = Outcome()
    with warnings.catch_warnings():
        if library is THEIRS:
            warnings.simplefilter("ignore")
        if use is not None:
            outcome.result = use(trainer, module)
        elif method == "fit":
            trainer.fit(module, train and train(), val and val())
        else:
            outcome.result = getattr(trainer, method)(module, train and train())
    outcome.losses = getattr(module, "losses", [])
    outcome.weights = {name: p.detach().clone() for name, p in module.state_dict().items()}
    outcome.metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    outcome.steps, outcome.epochs = trainer.global_step, trainer.current_epoch
    outcome.events = getattr(module, "events", [])
    outcome.rng = torch.get_rng_state()
    return outcome


def assert_same(ours: Outcome, theirs: Outcome) -> None:
    """Losses, weights, metrics and counters are the same, bit for bit."""
    assert len(ours.losses) == len(theirs.losses)
    for step, (own, other) in enumerate(zip(ours.losses, theirs.losses, strict=True)):
        assert torch.equal(own, other), f"the losses differ from step {step} on: {own.item()} and {other.item()}"
    assert ours.weights.keys() == theirs.weights.keys()
    for name, weight in ours.weights.items():
        assert torch.equal(weight, theirs.weights[name]), f"{name} differs"
    assert ours.metrics == theirs.metrics
    assert (ours.steps, ours.epochs) == (theirs.steps, theirs.epochs)
    assert ours.events == theirs.events
    assert torch.equal(ours.rng, theirs.rng)


def compare(*args: Any, **kwargs: Any) -> Outcome:
    """Runs under both, compares, and returns our outcome."""
    ours = run(OURS, *args, **kwargs)
    assert_same(ours, run(THEIRS, *args, **kwargs))
    return ours


def record_hooks(library: Library, log: list[str]) -> tuple[Callable[[type], type], Any]:
    """A way to record the hooks of a module or data module class, and a callback that records its own, into one log."""
    skipped = {"on_gpu", "on_save_checkpoint", "on_load_checkpoint", "configure_sharded_model"}
    prefixes = ("on_", "configure_", "optimizer_", "lr_scheduler_", "transfer_batch")
    names = {"setup", "teardown", "prepare_data", "backward"}
    names |= {f"{stage}_dataloader" for stage in ("train", "val", "test", "predict")}
    names |= {"training_step", "validation_step", "test_step", "predict_step"}

    def describe(value: Any) -> str:
        if isinstance(value, (bool, int, float, str, type(None))):
            return str(getattr(value, "value", value))
        kind = type(value).__name__
        return {"Closure": "closure", "AutomaticStep": "closure"}.get(kind, kind)

    def recorded(tag: str, name: str, function: Any) -> Any:
        @functools.wraps(function)
        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            shown = [describe(value) for value in (*args, *kwargs.values())]
            log.append(f"{tag}.{name}({', '.join(shown)})")
            return function(self, *args, **kwargs)

        return hook

    def decorate(base: type, tag: str = "module") -> type:
        hooks = {
            name: recorded(tag, name, getattr(base, name))
            for name in dir(base)
            if (name.startswith(prefixes) or name in names) and name not in skipped and callable(getattr(base, name))
        }
        return type(base.__name__, (base,), hooks)

    return decorate, decorate(library.Callback, "callback")
