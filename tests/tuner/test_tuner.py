"""The learning rate finder and the batch size scaler: as Lightning's, and nothing but the attribute is changed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import unstuck
from unstuck.callbacks import BatchSizeFinder, LearningRateFinder
from unstuck.errors import MisconfigurationException
from unstuck.tuner import LRFinder, Tuner
from unstuck.tuner.batch_size import is_out_of_memory, largest_size
from unstuck.tuner.lr_finder import rates


def data(count: int = 64) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 6, generator=generator)
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))


def build(base: type[Any]) -> Any:
    class Module(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.lr = 0.1
            self.batch_size = 2
            self.net = nn.Linear(6, 1)
            self.seen: list[int] = []

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.seen.append(len(batch[0]))
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def train_dataloader(self) -> Any:
            return DataLoader(data(), batch_size=self.batch_size)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    return Module()


QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


@pytest.mark.parametrize("mode", ["exponential", "linear"])
def test_the_range_test_is_lightnings(mode: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.tuner import Tuner as Theirs

    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"num_training": 40, "min_lr": 1e-5, "max_lr": 1.0, "mode": mode, "update_attr": False}
    ours = Tuner(unstuck.Trainer(max_epochs=50, **QUIET)).lr_find(build(unstuck.LightningModule), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(max_epochs=50, accelerator="cpu", **QUIET)
        theirs = Theirs(trainer).lr_find(build(pl.LightningModule), **options)
    assert ours is not None
    assert theirs is not None
    # theirs keeps the rate of the step at which it ended too, whose loss it has not
    count = len(theirs.results["loss"])
    assert len(ours.results["lr"]) == count
    assert ours.results["lr"] == pytest.approx(theirs.results["lr"][:count], rel=1e-6)
    assert ours.results["loss"] == pytest.approx(theirs.results["loss"], rel=1e-4)
    assert ours.suggestion() == pytest.approx(theirs.suggestion(), rel=1e-6)


@pytest.mark.parametrize(("epochs", "accumulate"), [(1, 1), (2, 1), (3, 4)])
def test_it_ends_with_the_epochs_of_the_trainer_as_lightnings(
    epochs: int, accumulate: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.tuner import Tuner as Theirs

    monkeypatch.chdir(tmp_path)
    options: dict[str, Any] = {"num_training": 100, "min_lr": 1e-5, "max_lr": 1e-2, "early_stop_threshold": None}
    options["update_attr"] = False
    settings: dict[str, Any] = {"max_epochs": epochs, "accumulate_grad_batches": accumulate, **QUIET}
    with pytest.warns(UserWarning, match=f"{32 * epochs // accumulate} of 100 steps.*max_epochs={epochs}"):
        ours = Tuner(unstuck.Trainer(**settings)).lr_find(build(unstuck.LightningModule), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = Theirs(pl.Trainer(accelerator="cpu", **settings)).lr_find(build(pl.LightningModule), **options)
    assert ours is not None
    assert theirs is not None
    assert ours.results["loss"] == pytest.approx(theirs.results["loss"], rel=1e-4)
    assert len(ours.results["loss"]) == len(theirs.results["loss"]) == 32 * epochs // accumulate
    assert ours.results["lr"] == pytest.approx(theirs.results["lr"], rel=1e-6)


def test_nothing_but_the_rate_is_changed() -> None:
    module = build(unstuck.LightningModule)
    before = [item.clone() for item in module.parameters()]
    state = torch.get_rng_state()
    trainer = unstuck.Trainer(max_epochs=3, **QUIET)
    found = Tuner(trainer).lr_find(module, min_lr=1e-4, num_training=60)
    assert found is not None
    assert module.lr == found.suggestion() != 0.1
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert (module.seen, trainer.global_step, trainer.callbacks) == ([], 0, trainer.callbacks)
    trainer.fit(module)
    assert trainer.global_step == 96


def test_an_exploding_loss_ends_the_test() -> None:
    module = build(unstuck.LightningModule)
    found = Tuner(unstuck.Trainer(**QUIET, max_epochs=4)).lr_find(module, min_lr=1e-3, max_lr=1e4, num_training=100)
    assert found is not None
    assert 3 < len(found.results["lr"]) < 100


def test_rates_rise_to_the_last() -> None:
    assert rates("exponential", 1e-4, 1.0, 100)[0] == 1e-4
    assert rates("exponential", 1e-4, 1.0, 100)[-1] == pytest.approx(1.0)
    assert len(rates("linear", 1e-4, 1.0, 7)) == 7
    assert rates("linear", 0.5, 1.0, 2) == [0.5, 1.0]


def test_too_few_points_suggest_nothing() -> None:
    finder = LRFinder("linear", 0.1, 1.0, 5)
    finder.results = {"lr": [0.1] * 5, "loss": [1.0] * 5}
    with pytest.warns(UserWarning, match="can't suggest"):
        assert finder.suggestion() is None


def test_a_test_without_a_suggestion_says_so_beforehand_and_changes_nothing() -> None:
    module = build(unstuck.LightningModule)
    with pytest.warns(UserWarning, match="suggest") as told:
        found = Tuner(unstuck.Trainer(max_epochs=1, **QUIET)).lr_find(module, num_training=12)
    assert [str(item.message).split(" ")[0] for item in told] == ["`num_training=12`", "The"]
    assert found is not None
    assert len(found.results["loss"]) == 12
    assert module.lr == 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Tuner(unstuck.Trainer(max_epochs=1, **QUIET)).lr_find(module, num_training=13) is not None
    assert module.lr != 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_lr": 1.0, "max_lr": 0.1}, "rise from a positive"),
        ({"min_lr": 0.1, "max_lr": 0.1}, "rise from a positive"),
        ({"min_lr": 0.0}, "rise from a positive"),
        ({"max_lr": float("inf")}, "rise from a positive"),
        ({"num_training": 0}, "num_training"),
        ({"num_training": 12.5}, "num_training"),
    ],
)
def test_ranges_in_which_nothing_rises_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MisconfigurationException, match=message):
        Tuner(unstuck.Trainer(max_epochs=1, **QUIET)).lr_find(build(unstuck.LightningModule), **options)


@pytest.mark.parametrize(
    "options", [{"margin": 1.0}, {"margin": -0.1}, {"init_val": 0}, {"max_trials": 0}, {"steps_per_trial": 0}]
)
def test_searches_out_of_bounds_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(MisconfigurationException, match=next(iter(options))):
        Tuner(unstuck.Trainer(max_epochs=1, **QUIET)).scale_batch_size(build(unstuck.LightningModule), **options)


def finished(mode: str = "exponential") -> LRFinder:
    finder = LRFinder(mode, 1e-4, 1.0, 30)
    finder.results = {"lr": rates(mode, 1e-4, 1.0, 30), "loss": [2.0 - 0.04 * step for step in range(30)]}
    finder.results["loss"][20] = 1.0  # the steepest fall
    return finder


@pytest.mark.parametrize(("mode", "scale"), [("exponential", "log"), ("linear", "linear")])
def test_the_plot_shows_the_losses_over_the_rates_and_the_suggestion(
    mode: str, scale: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    finder = finished(mode)
    figure = finder.plot(suggest=True)
    (axes,) = figure.axes
    curve, mark = axes.lines
    assert list(curve.get_xdata()) == finder.results["lr"]
    assert list(curve.get_ydata()) == finder.results["loss"]
    assert list(mark.get_xdata()) == [finder.suggestion()]
    assert (axes.get_xscale(), axes.get_xlabel(), axes.get_ylabel()) == (scale, "Learning rate", "Loss")
    figure.savefig(tmp_path / "rates.png")
    assert (tmp_path / "rates.png").stat().st_size > 1000

    given, own = plt.subplots()
    assert finder.plot(ax=own) is given
    assert len(own.lines) == 1
    shown: list[bool] = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(True))
    finder.plot(show=True)
    assert shown == [True]
    plt.close("all")


def test_the_plot_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails as if it weren't installed
    with pytest.raises(MisconfigurationException, match=r"matplotlib: pip install 'unstuck\[plot\]'"):
        finished().plot()


def test_wrong_uses_are_refused() -> None:
    module = build(unstuck.LightningModule)
    tuner = Tuner(unstuck.Trainer(max_epochs=1, **QUIET))
    with pytest.raises(MisconfigurationException, match="fit"):
        tuner.lr_find(module, method="test")
    with pytest.raises(MisconfigurationException, match="exponential"):
        tuner.lr_find(module, mode="cubic")
    with pytest.raises(AttributeError, match="attr_name"):
        tuner.lr_find(module, attr_name="rate")
    del module.lr
    with pytest.raises(AttributeError, match="learning_rate"):
        tuner.lr_find(module)
    with pytest.raises(MisconfigurationException, match="loaders"):
        tuner.scale_batch_size(module, DataLoader(data()))
    with pytest.raises(MisconfigurationException, match="attribute 'size'"):
        tuner.scale_batch_size(module, batch_arg_name="size")
    with pytest.raises(ValueError, match="method"):
        tuner.scale_batch_size(module, method="run")  # type: ignore[arg-type]


def test_the_batch_size_grows_until_memory_runs_out() -> None:
    module = build(unstuck.LightningModule)
    step = type(module).training_step

    def limited(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        if len(batch[0]) > 16:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        loss: torch.Tensor = step(self, batch, batch_idx)
        return loss

    type(module).training_step = limited
    assert Tuner(unstuck.Trainer(max_epochs=1, **QUIET)).scale_batch_size(module, max_val=64) == 16
    assert module.batch_size == 16
    module.batch_size = 2
    found = Tuner(unstuck.Trainer(max_epochs=1, **QUIET)).scale_batch_size(module, mode="binsearch", margin=0.0)
    assert found == 16


def test_other_errors_are_raised() -> None:
    module = build(unstuck.LightningModule)

    def broken(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        raise RuntimeError("shape mismatch")

    type(module).training_step = broken
    with pytest.raises(RuntimeError, match="shape mismatch"):
        Tuner(unstuck.Trainer(max_epochs=1, **QUIET)).scale_batch_size(module)


@pytest.mark.parametrize("limit", [1, 3, 16, 100])
def test_the_search_finds_the_limit(limit: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= limit

    assert largest_size(fits, "binsearch", 2, 25, 0.0, 8192) == limit
    assert largest_size(fits, "power", 2, 25, 0.0, 8192) <= limit
    assert max(tried) <= 2 * max(limit, 2)
    assert largest_size(lambda size: True, "power", 2, 25, 0.0, 64) == 64


def test_signs_of_memory_that_ran_out() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("out of memory"))


def test_the_callbacks_tune_before_the_fit() -> None:
    module = build(unstuck.LightningModule)
    rate = LearningRateFinder(min_lr=1e-4, num_training_steps=50)
    size = BatchSizeFinder(max_val=8)
    unstuck.Trainer(max_epochs=7, callbacks=[size, rate], **QUIET).fit(module)
    assert rate.optimal_lr is not None
    assert module.lr == rate.optimal_lr.suggestion()
    assert (size.optimal_batch_size, module.batch_size) == (8, 8)
    assert set(module.seen) == {8}


def test_a_test_that_diverges_leaves_no_files_and_no_warning(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = build(unstuck.LightningModule)

    def quartic(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        return (self.net(batch[0]) ** 4).mean() * 1e3

    type(module).training_step = quartic
    found = Tuner(unstuck.Trainer(max_epochs=2, **QUIET)).lr_find(
        module, min_lr=1e-3, max_lr=10, num_training=40, early_stop_threshold=None, update_attr=False
    )
    assert found is not None
    assert any(loss != loss or loss == float("inf") for loss in found.results["loss"])
    assert list(tmp_path.iterdir()) == []  # and no warning, which is an error here
