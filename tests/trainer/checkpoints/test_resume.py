"""A run that is interrupted and resumed ends bit for bit as one that ran through."""

from __future__ import annotations

import logging
import multiprocessing
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset

import unstuck
from tests.trainer.checkpoints.training_with_state import (
    NoisyDigits,
    Regression,
    SaveAt,
    Stop,
    assert_same_end,
    fit,
    val_loader,
)
from unstuck.callbacks import GradientAccumulationScheduler, ModelCheckpoint

pytestmark = pytest.mark.filterwarnings(
    "ignore::unstuck.messages.PossibleUserWarning", "ignore:The schedule of", "ignore:.*multi-threaded.*fork"
)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="unstuck")


def interrupted(hook: str, at: int, path: Path, callbacks: tuple[Any, ...] = (), **keywords: Any) -> bool:
    """Trains until the hook's ``at``-th call, where a checkpoint is saved; False if it isn't called so often."""
    saver = SaveAt(hook, at, path, Stop())
    try:
        fit(callbacks=[saver, *callbacks], **keywords)
    except Stop:
        return True
    return saver.saved


def assert_exact(path: Path, through: tuple[Any, Any], **keywords: Any) -> None:
    """Resuming in a program with other random numbers leads to the same end, with the same batches on the way."""
    resumed = fit(ckpt_path=path, seed=99, **keywords)
    assert_same_end(resumed, through)
    seen = resumed[1].seen
    assert seen == through[1].seen[len(through[1].seen) - len(seen) :]


GRID: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulation": {"accumulate_grad_batches": 2},
    "scaler": {"precision": "16-mixed"},
    "scaler and accumulation": {"precision": "16-mixed", "accumulate_grad_batches": 3},
    "double": {"precision": "64-true"},
    "validation within": {"val_check_interval": 2},
    "isolated validation": {"isolate_validation": True, "val_check_interval": 2},
    "validation every 2 epochs": {"check_val_every_n_epoch": 2},
    "no validation": {"validates": False},
    "limited": {"limit_train_batches": 3},
    "clipping": {"gradient_clip_val": 0.1},
    "sanity check": {"num_sanity_val_steps": 2},
}


@pytest.mark.parametrize("case", GRID)
def test_interrupted_after_any_batch(case: str, tmp_path: Path) -> None:
    keywords, path = GRID[case], tmp_path / "x.ckpt"
    through = fit(**keywords)
    at = 0
    while interrupted("on_train_batch_end", at := at + 1, path, **keywords):
        assert_exact(path, through, **keywords)
    assert at - 1 == len(through[1].seen) >= 6


@pytest.mark.parametrize(
    "hook",
    [
        "on_fit_start",
        "on_train_start",
        "on_train_epoch_start",
        "on_validation_start",
        "on_validation_batch_end",
        "on_validation_end",
        "on_train_epoch_end",
        "on_train_end",
    ],
)
@pytest.mark.parametrize("keywords", [{}, {"val_check_interval": 3, "accumulate_grad_batches": 2}], ids=str)
def test_interrupted_in_any_hook(hook: str, keywords: dict[str, Any], tmp_path: Path) -> None:
    path, at = tmp_path / "x.ckpt", 0
    through = fit(**keywords)
    while interrupted(hook, at := at + 1, path, **keywords):
        assert_exact(path, through, **keywords)
    assert at > 1


@pytest.mark.parametrize("keywords", [{}, {"accumulate_grad_batches": 2, "precision": "16-mixed"}], ids=str)
def test_interrupted_with_workers(keywords: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    through = fit(workers=2, **keywords)
    for at in (2, 8):
        assert interrupted("on_train_batch_end", at, path, workers=2, **keywords)
        assert_exact(path, through, workers=2, **keywords)


@pytest.mark.parametrize("hook", ["on_train_batch_start", "on_after_backward", "on_before_optimizer_step"])
@pytest.mark.parametrize("keywords", [{}, {"accumulate_grad_batches": 3, "precision": "16-mixed"}], ids=str)
def test_failed_within_a_batch(hook: str, keywords: dict[str, Any], tmp_path: Path) -> None:
    """With `save_on_exception` the checkpoint is one of the last completed step, as if the failing one never began."""

    through = fit(**keywords)
    for at in (4, 5, 7):
        folder = tmp_path / str(at)
        try:
            fit(callbacks=[Fails(hook, at), _keeper(folder)], **keywords)
        except Stop:
            (path,) = folder.glob("*.ckpt")
            resumed = fit(ckpt_path=path, seed=99, callbacks=[_keeper(folder)], **keywords)
            assert_same_end(resumed, through)
        else:
            assert hook == "on_before_optimizer_step" and keywords and at > 4


def test_resumed_again_and_again(tmp_path: Path) -> None:
    """The checkpoint of a resumed epoch can be resumed as well, also where several fits share one epoch."""
    through = fit()
    path = None
    for at in range(1, 10):
        saver = SaveAt("on_train_batch_end", 1, tmp_path / f"{at}.ckpt", Stop())
        with pytest.raises(Stop):
            fit(callbacks=[saver], ckpt_path=path, seed=3 if at == 1 else at)
        path = tmp_path / f"{at}.ckpt"
    assert_exact(path, through)


def test_saved_by_a_run_that_hasnt_gone_on_yet(tmp_path: Path) -> None:
    """It stands where the checkpoint was written that it began from."""
    through = fit()
    assert interrupted("on_train_batch_end", 7, tmp_path / "a.ckpt")
    assert interrupted("on_train_start", 1, tmp_path / "b.ckpt", ckpt_path=tmp_path / "a.ckpt", seed=5)
    assert_exact(tmp_path / "b.ckpt", through)
    keeper = ModelCheckpoint(dirpath=tmp_path / "c", save_on_exception=True, every_n_epochs=0)
    with pytest.raises(Stop):
        fit(
            callbacks=[SaveAt("on_train_start", 1, tmp_path / "d.ckpt", Stop()), keeper],
            ckpt_path=tmp_path / "a.ckpt",
        )
    assert not (tmp_path / "c").exists(), "without a new step there is nothing to save at an exception"


def test_saved_in_the_sanity_check(tmp_path: Path) -> None:
    through = fit(num_sanity_val_steps=1)
    for hook in ("on_validation_batch_end", "on_validation_end"):
        assert interrupted(hook, 1, tmp_path / "a.ckpt", num_sanity_val_steps=1)
        assert_exact(tmp_path / "a.ckpt", through, num_sanity_val_steps=1)


def test_what_follows_the_last_of_all_steps_is_made_up_for(tmp_path: Path) -> None:
    keywords: dict[str, Any] = {"max_steps": 4, "val_check_interval": 1}
    through = fit(**keywords)
    assert interrupted("on_validation_start", 4, tmp_path / "a.ckpt", **keywords)
    assert_exact(tmp_path / "a.ckpt", through, **keywords)


def test_resumed_with_more_epochs(tmp_path: Path) -> None:
    through = fit(max_epochs=4)
    first = ModelCheckpoint(dirpath=tmp_path, filename="end")
    fit(callbacks=[first], max_epochs=2)
    again = ModelCheckpoint(dirpath=tmp_path, filename="end")
    resumed = fit(callbacks=[again], max_epochs=4, ckpt_path=tmp_path / "end.ckpt", seed=5)
    assert_same_end(resumed, through)


# Orders of other kinds.


class OwnGenerators(Dataset[Any]):
    """Samples with noise of a generator of the dataset's own, which numpy has made."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.other = random.Random(4)

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        x = torch.full((4,), float(index)) + float(self.rng.random()) + self.other.random()
        return x / 20, x.sum(0, keepdim=True) / 80


class OwnSampler(Sampler[int]):
    """An order from a generator of the sampler's own, that goes on from epoch to epoch."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(1)

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(20, generator=self.generator).tolist())

    def __len__(self) -> int:
        return 20


class EpochSampler(Sampler[int]):
    """An order that depends on the epoch, as a distributed sampler's does."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(20, generator=torch.Generator().manual_seed(self.epoch)).tolist())

    def __len__(self) -> int:
        return 20


class Stream(IterableDataset[Any]):
    """Samples without length."""

    def __iter__(self) -> Iterator[Any]:
        for index in range(20):
            x = torch.full((4,), index / 20.0)
            yield x, x.sum(0, keepdim=True)


class Batches:
    """An iterable that is no DataLoader."""

    def __iter__(self) -> Iterator[Any]:
        return ((torch.full((4, 4), index / 5), torch.full((4, 1), index / 2)) for index in range(5))


LOADERS: dict[str, Any] = {
    "in order": lambda: DataLoader(NoisyDigits(), batch_size=4),
    "generator": lambda: DataLoader(
        NoisyDigits(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(8)
    ),
    "generators of the dataset": lambda: DataLoader(OwnGenerators(), batch_size=4, shuffle=True),
    "sampler": lambda: DataLoader(NoisyDigits(), batch_size=4, sampler=OwnSampler()),
    "sampler by epoch": lambda: DataLoader(NoisyDigits(), batch_size=4, sampler=EpochSampler()),
    "weighted": lambda: DataLoader(
        NoisyDigits(), batch_size=4, sampler=torch.utils.data.WeightedRandomSampler(torch.arange(1, 21).float(), 20)
    ),
    "stream": lambda: DataLoader(Stream(), batch_size=4),
    "any iterable": lambda: Batches(),
    "no automatic batches": lambda: DataLoader(
        [(torch.full((4, 4), i / 5), torch.full((4, 1), i / 2)) for i in range(5)], batch_size=None, shuffle=True
    ),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_order_of_loaders_of_all_kinds(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    through = fit(loader=LOADERS[kind])
    for at in (2, 7):
        assert interrupted("on_train_batch_end", at, path, loader=LOADERS[kind])
        assert_exact(path, through, loader=LOADERS[kind])


def test_two_loaders_together(tmp_path: Path) -> None:
    class Both(Regression):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            first, second = batch["a"], batch["b"]
            return super().training_step((first[0] + second[0], first[1] + second[1]), batch_idx)

    def both() -> Any:
        return {
            "a": DataLoader(NoisyDigits(), batch_size=4, shuffle=True),
            "b": DataLoader(NoisyDigits(), batch_size=4, shuffle=True),
        }

    path = tmp_path / "x.ckpt"
    through = fit(loader=both, make=Both)
    assert interrupted("on_train_batch_end", 8, path, loader=both, make=Both)
    assert_exact(path, through, loader=both, make=Both)


class Counted(Dataset[Any]):
    """Counts the samples that are read."""

    def __init__(self) -> None:
        self.read = 0

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        self.read += 1
        return torch.full((4,), index / 20.0), torch.full((1,), index / 5.0)


def test_what_is_done_is_not_loaded_again(tmp_path: Path) -> None:
    path, dataset = tmp_path / "x.ckpt", Counted()
    assert interrupted("on_train_batch_end", 8, path, loader=lambda: DataLoader(Counted(), batch_size=4, shuffle=True))
    fit(ckpt_path=path, loader=lambda: DataLoader(dataset, batch_size=4, shuffle=True))
    assert dataset.read == 2 * 4


class Stateful:
    """A loader that knows where it stands, without length and with an order of its own."""

    def __init__(self) -> None:
        self.position, self.passes, self.drawn = 0, 0, 0

    def __iter__(self) -> Iterator[Any]:
        if self.position == 5:
            self.position, self.passes = 0, self.passes + 1
        order = torch.randperm(5, generator=torch.Generator().manual_seed(self.passes)).tolist()
        while self.position < 5:
            value = order[self.position] / 5.0
            self.position += 1
            self.drawn += 1
            yield torch.full((4, 4), value), torch.full((4, 1), value)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position, "passes": self.passes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position, self.passes = state["position"], state["passes"]


class StatefulWithLength(Stateful):
    def __len__(self) -> int:
        return 5


@pytest.mark.parametrize("kind", [Stateful, StatefulWithLength])
@pytest.mark.parametrize("at", [2, 5, 8])
def test_stateful_loader_goes_on_by_itself(kind: type[Stateful], at: int, tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    through = fit(loader=kind)
    assert interrupted("on_train_batch_end", at, path, loader=kind)
    loader = kind()
    assert_exact(path, through, loader=lambda: loader)
    assert loader.drawn == 10 - at


# What can't be continued is told.


class Restless(Sampler[int]):
    """Draws each index from the global random numbers when it is asked for."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(20):
            yield int(torch.randint(20, ()))

    def __len__(self) -> int:
        return 20


def test_sampler_that_draws_between_the_batches_is_told(tmp_path: Path) -> None:
    def restless() -> Any:
        return DataLoader(NoisyDigits(), batch_size=4, sampler=Restless())

    assert interrupted("on_train_batch_end", 3, tmp_path / "x.ckpt", loader=restless)
    with pytest.warns(UserWarning, match="between the batches"):
        fit(ckpt_path=tmp_path / "x.ckpt", loader=restless)


def test_other_length_of_an_epoch_is_told_with_numbers(tmp_path: Path) -> None:
    assert interrupted("on_train_batch_end", 3, tmp_path / "x.ckpt", validates=False)
    smaller = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
    with pytest.warns(UserWarning, match="after 3 batches of epoch 0") as caught:
        _, module = fit(
            ckpt_path=tmp_path / "x.ckpt",
            loader=lambda: DataLoader(smaller, batch_size=4, shuffle=True),
            validates=False,
        )
    message = next(str(warning.message) for warning in caught if "after 3 batches" in str(warning.message))
    assert "had 5 batches then and has 4 now" in message
    assert "remaining 1 of 4 batches" in message and "4 samples" in message
    assert [batch for epoch, batch, _ in module.seen if epoch == 0] == [3]


def test_resumed_in_the_middle_of_validation(tmp_path: Path) -> None:
    """A validation that was cut short is done again from its start, with its hooks."""
    assert interrupted("on_validation_batch_start", 2, tmp_path / "x.ckpt")
    calls: list[str] = []

    class Watch(unstuck.Callback):
        def on_validation_start(self, *_: Any) -> None:
            calls.append("validation")

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            calls.append(f"batch {trainer.current_epoch}.{batch_idx}")

    fit(ckpt_path=tmp_path / "x.ckpt", callbacks=[Watch()])
    assert calls == ["validation", *(f"batch 1.{index}" for index in range(5)), "validation"]


def test_modes_and_metrics_are_those_of_the_interrupted_epoch(tmp_path: Path) -> None:
    """What was set in hooks that a resumed epoch doesn't call again."""

    class Frozen(Regression):
        modes: list[bool]

        def on_train_epoch_start(self) -> None:
            self.net[1].eval()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            assert not self.net[1].training
            return super().training_step(batch, batch_idx)

    through = fit(make=Frozen)
    assert interrupted("on_train_batch_end", 7, tmp_path / "x.ckpt", make=Frozen)
    assert_exact(tmp_path / "x.ckpt", through, make=Frozen)


def test_metric_objects(tmp_path: Path) -> None:
    class Measured(Regression):
        def __init__(self) -> None:
            super().__init__()
            self.mean = torchmetrics.MeanMetric()
            self.all = torchmetrics.CatMetric()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx)
            self.mean.update(loss.detach(), weight=batch_idx + 1)
            self.all.update(loss.detach())
            self.log("mean", self.mean, on_epoch=True, on_step=False)
            return loss

        def on_train_epoch_end(self) -> None:
            self.log("median", self.all.compute().median())
            self.all.reset()

    through = fit(make=Measured)
    for at in (2, 8):
        assert interrupted("on_train_batch_end", at, tmp_path / "x.ckpt", make=Measured)
        assert_exact(tmp_path / "x.ckpt", through, make=Measured)
    assert {"mean", "median"} <= set(through[0].callback_metrics)


def test_accumulation_that_a_callback_has_scheduled(tmp_path: Path) -> None:
    """Its hook at the epoch's start isn't called again."""

    def schedule() -> Any:
        return GradientAccumulationScheduler({0: 1, 1: 3})

    through = fit(callbacks=[schedule()])
    assert through[0].global_step == 5 + 2
    assert interrupted("on_train_batch_end", 7, tmp_path / "x.ckpt", callbacks=(schedule(),))
    assert_exact(tmp_path / "x.ckpt", through, callbacks=[schedule()])


def test_samples_to_overfit_on_are_told_where_they_were_drawn(tmp_path: Path) -> None:
    def weighted() -> Any:
        sampler = torch.utils.data.WeightedRandomSampler(torch.ones(20), 20)
        return DataLoader(NoisyDigits(), batch_size=4, sampler=sampler)

    keywords: dict[str, Any] = {"overfit_batches": 2, "validates": False}
    assert interrupted("on_train_batch_end", 3, tmp_path / "x.ckpt", loader=weighted, **keywords)
    with pytest.warns(UserWarning, match="`overfit_batches` draws its samples once"):
        fit(ckpt_path=tmp_path / "x.ckpt", loader=weighted, **keywords)
    keywords["loader"] = LOADERS["in order"]
    through = fit(**keywords)
    assert interrupted("on_train_batch_end", 3, tmp_path / "y.ckpt", **keywords)
    assert_exact(tmp_path / "y.ckpt", through, **keywords)


def test_what_the_module_does_at_the_end_is_saved(tmp_path: Path) -> None:
    """Callbacks that save come after the module in the hooks at the end of batches, validations and epochs."""

    class Averages(Regression):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(3))

        def on_train_batch_end(self, *_: Any) -> None:
            self.calls[0] += 1

        def on_validation_end(self) -> None:
            self.calls[1] += 1

        def on_train_epoch_end(self) -> None:
            self.calls[2] += 1

    through = fit(make=Averages)
    assert through[1].calls.tolist() == [10, 2, 2]
    for name, arguments in {
        "batches": {"every_n_train_steps": 7},
        "validation": {"save_on_train_epoch_end": False},
        "epoch": {},
    }.items():
        keeper = ModelCheckpoint(dirpath=tmp_path / name, save_top_k=-1, filename="{step}", **arguments)  # type: ignore[arg-type]
        fit(make=Averages, callbacks=[keeper])
        first = min((tmp_path / name).glob("*.ckpt"), key=lambda path: int(path.stem.split("=")[1]))
        again = ModelCheckpoint(dirpath=tmp_path / name, **arguments)  # type: ignore[arg-type]
        resumed = fit(make=Averages, ckpt_path=first, seed=9, callbacks=[again])
        assert torch.equal(resumed[1].calls, through[1].calls)


def test_manual_optimisation(tmp_path: Path) -> None:
    class Manual(Regression):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
            loss = Regression.training_step(self, batch, batch_idx)
            for optimizer in self.optimizers():
                optimizer.zero_grad()
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()
            self.lr_schedulers().step()

        def configure_optimizers(self) -> Any:
            first = torch.optim.SGD(self.net[0].parameters(), lr=0.1, momentum=0.9)
            second = torch.optim.Adam(self.net[4].parameters())
            return [first, second], [torch.optim.lr_scheduler.StepLR(first, 3)]

    path = tmp_path / "x.ckpt"
    through = fit(make=Manual)
    for at in (3, 9):
        assert interrupted("on_train_batch_end", at, path, make=Manual)
        assert_exact(path, through, make=Manual)
    assert through[0].global_step == 20


def test_data_module_state_and_reloading(tmp_path: Path) -> None:
    class Data(unstuck.LightningDataModule):
        def __init__(self) -> None:
            super().__init__()
            self.asked = 0

        def train_dataloader(self) -> Any:
            self.asked += 1
            return DataLoader(NoisyDigits(), batch_size=4 if self.asked % 2 else 5, shuffle=True)

        def val_dataloader(self) -> Any:
            return val_loader()

        def state_dict(self) -> dict[str, Any]:
            return {"asked": self.asked}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            # The loaders in use are asked for once more in the new process.
            self.asked = state["asked"] - 1

    path = tmp_path / "x.ckpt"
    keywords: dict[str, Any] = {"reload_dataloaders_every_n_epochs": 1, "max_epochs": 3}

    def run(**others: Any) -> tuple[Any, Any]:
        unstuck.seed_everything(others.pop("seed", 3), verbose=False)
        module, ckpt_path = Regression(), others.pop("ckpt_path", None)
        trainer = unstuck.Trainer(
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            **keywords,
            **others,
        )
        trainer.fit(module, datamodule=Data(), ckpt_path=ckpt_path)
        return trainer, module

    through = run()
    with pytest.raises(Stop):
        run(callbacks=[SaveAt("on_train_batch_end", 7, path, Stop())])
    resumed = run(ckpt_path=path, seed=9)
    assert_same_end(resumed, through)


@pytest.mark.parametrize("seed", range(4))
def test_random_settings_interrupted_several_times_at_random(seed: int, tmp_path: Path) -> None:
    """Each fit of a chain fails somewhere, within a step or between, and the next one goes on from what it saved."""
    dice = random.Random(seed)
    hooks = [
        "on_train_batch_start",
        "on_before_zero_grad",
        "on_after_backward",
        "on_train_batch_end",
        "on_validation_start",
        "on_validation_batch_end",
        "on_validation_end",
        "on_train_epoch_start",
        "on_train_epoch_end",
        "on_train_start",
    ]
    resumed_chains = 0
    for chain in range(6):
        keywords: dict[str, Any] = {
            "accumulate_grad_batches": dice.choice([1, 1, 2, 3]),
            "precision": dice.choice([None, "16-mixed", "bf16-mixed", "64-true"]),
            "max_epochs": dice.choice([2, 3]),
            "isolate_validation": dice.random() < 0.2,
            "num_sanity_val_steps": dice.choice([0, 1]),
            **({"val_check_interval": dice.choice([1, 2, 3])} if dice.random() < 0.4 else {}),
            **({"check_val_every_n_epoch": 2} if dice.random() < 0.2 else {}),
        }
        through = fit(**keywords)
        path = None
        for link in range(dice.choice([1, 2, 3])):
            folder = tmp_path / f"{chain}-{link}"
            try:
                fit(
                    callbacks=[Fails(dice.choice(hooks), dice.randint(1, 9)), _keeper(folder)],
                    ckpt_path=path,
                    seed=3 if path is None else 50 + link,
                    **keywords,
                )
            except Stop:
                path = next(iter(folder.glob("*.ckpt")), path)
        if path is not None:
            resumed_chains += 1
            resumed = fit(callbacks=[_keeper(tmp_path / "end")], ckpt_path=path, seed=99, **keywords)
            assert_same_end(resumed, through)
    assert resumed_chains >= 2


class Fails(unstuck.Callback):
    """Ends the run when a hook is called for the ``at``-th time."""

    def __init__(self, hook: str, at: int) -> None:
        self.calls = 0

        def act(*_: Any) -> None:
            self.calls += 1
            if self.calls == at:
                raise Stop

        setattr(self, hook, act)


def _keeper(folder: Path) -> ModelCheckpoint:
    return ModelCheckpoint(dirpath=folder, save_on_exception=True, every_n_epochs=0)


def test_workers_end_with_a_fit_that_fails() -> None:
    """Also where the exception, which refers to all that was running, is kept."""
    with pytest.raises(Stop) as kept:
        fit(workers=2, callbacks=[Fails("on_train_batch_end", 2)])
    assert not [child for child in multiprocessing.active_children() if "DataLoader" in child.name or child.daemon]
    assert kept.value is not None
