"""The order of the data goes on where several loaders or persistent workers decide about it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from tests.trainer.checkpoints.test_resume import Fails, Stateful, assert_exact, interrupted
from tests.trainer.checkpoints.training_with_state import NoisyDigits, Regression, SaveAt, Stop, assert_same_end, fit
from unstuck.callbacks import ModelCheckpoint
from unstuck.messages import PossibleUserWarning

pytestmark = pytest.mark.filterwarnings("ignore:The schedule of", "ignore:.*multi-threaded.*fork")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="unstuck")


def plain_data(samples: int = 20) -> TensorDataset:
    x = torch.randn(samples, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.sum(1, keepdim=True))


def persistent(dataset: Any, batch_size: int, with_generator: bool, shuffle: bool = True) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(5) if with_generator else None
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=shuffle,
        num_workers=2,
        persistent_workers=True,
        generator=generator,
    )


@pytest.mark.parametrize("with_generator", [False, True])
def test_persistent_workers(with_generator: bool, tmp_path: Path) -> None:
    """They draw a seed when they are started, which a run that went through has done only once."""
    path = tmp_path / "x.ckpt"
    keywords: dict[str, Any] = {
        "loader": lambda: persistent(Subset(plain_data(24), range(20)), 4, with_generator),
        "max_epochs": 3,
    }
    through = fit(**keywords)
    moments = {"on_train_batch_end": (2, 5, 7, 12), "on_train_epoch_end": (1,), "on_train_epoch_start": (1, 3)}
    for hook, calls in moments.items():
        for at in calls:
            assert interrupted(hook, at, path, **keywords)
            assert_exact(path, through, **keywords)


@pytest.mark.parametrize("sanity", [0, 2])
def test_persistent_workers_of_the_validation(sanity: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting them draws from the numbers that the training goes on with."""
    monkeypatch.setattr(
        "tests.trainer.checkpoints.training_with_state.val_loader",
        lambda: persistent(plain_data(), 10, with_generator=False, shuffle=False),
    )
    path = tmp_path / "x.ckpt"
    keywords = {"num_sanity_val_steps": sanity, "val_check_interval": 2}
    through = fit(**keywords)
    for hook, at in (("on_train_batch_end", 1), ("on_train_batch_end", 3), ("on_validation_start", 2 + sanity // 2)):
        assert interrupted(hook, at, path, **keywords)
        assert_exact(path, through, **keywords)


def test_random_numbers_in_persistent_workers_are_told_of(tmp_path: Path) -> None:
    def noisy() -> Any:
        return persistent(NoisyDigits(), 4, with_generator=False)

    path = tmp_path / "x.ckpt"
    assert interrupted("on_train_batch_end", 2, path, loader=noisy)
    through = fit(loader=noisy)
    # Up to the end of the first epoch the workers are as they were, so nothing is told.
    fit(loader=noisy, ckpt_path=path, seed=99, max_steps=5)
    assert interrupted("on_train_batch_end", 7, path, loader=noisy)
    with pytest.warns(PossibleUserWarning, match="persistent workers"):
        resumed = fit(loader=noisy, ckpt_path=path, seed=99)
    assert [place[:2] for place in resumed[1].seen] == [place[:2] for place in through[1].seen[7:]]


def test_persistent_workers_end_with_the_fit() -> None:
    loader = persistent(plain_data(), 4, with_generator=False)
    fit(loader=lambda: loader, max_epochs=2)
    assert loader._iterator is None
    with pytest.raises(Stop):
        fit(loader=lambda: loader, callbacks=[Fails("on_train_batch_end", 2)])
    assert loader._iterator is None


class Both(Regression):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        first, second = batch["a"], batch["b"]
        return super().training_step((torch.cat([first[0], second[0]]), torch.cat([first[1], second[1]])), batch_idx)


def short_and_long(workers: int, with_generator: bool) -> Callable[[], Any]:
    """Two batches beside five, so that the shorter one starts anew twice in an epoch."""

    class Few(NoisyDigits):
        def __len__(self) -> int:
            return 8

    def make() -> Any:
        kwargs: dict[str, Any] = {"batch_size": 4, "shuffle": True, "num_workers": workers}
        if with_generator:
            kwargs["generator"] = torch.Generator().manual_seed(5)
        return {"a": DataLoader(Few(), **kwargs), "b": DataLoader(NoisyDigits(), **kwargs)}

    return make


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("with_generator", [False, True])
def test_shorter_loader_that_starts_anew(with_generator: bool, accumulate: int, tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    keywords: dict[str, Any] = {
        "loader": short_and_long(0, with_generator),
        "make": Both,
        "accumulate_grad_batches": accumulate,
    }
    through = fit(**keywords)
    for at in range(1, 11):
        assert interrupted("on_train_batch_end", at, path, **keywords)
        assert_exact(path, through, **keywords)


def test_shorter_loader_with_workers_that_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    keywords: dict[str, Any] = {"loader": short_and_long(2, False), "make": Both}
    through = fit(**keywords)
    for at in (3, 9):
        assert interrupted("on_train_batch_end", at, path, **keywords)
        assert_exact(path, through, **keywords)


@pytest.mark.parametrize("at", [3, 4, 5])
def test_step_that_fails_after_a_restart(at: int, tmp_path: Path) -> None:
    """The checkpoint is of the step before, and with it the shorter loader's start."""
    keywords: dict[str, Any] = {"loader": short_and_long(0, False), "make": Both, "accumulate_grad_batches": 2}
    through = fit(**keywords)

    def keeper() -> ModelCheckpoint:
        return ModelCheckpoint(dirpath=tmp_path, save_on_exception=True, every_n_epochs=0)

    with pytest.raises(Stop):
        fit(callbacks=[Fails("on_train_batch_start", at), keeper()], **keywords)
    (path,) = tmp_path.glob("*.ckpt")
    assert_same_end(fit(ckpt_path=path, seed=99, callbacks=[keeper()], **keywords), through)


def test_stateful_loader_beside_one_that_is_not(tmp_path: Path) -> None:
    def mixed() -> Any:
        return {"a": Stateful(), "b": DataLoader(NoisyDigits(), batch_size=4, shuffle=True)}

    path = tmp_path / "x.ckpt"
    keywords: dict[str, Any] = {"loader": mixed, "make": Both, "max_epochs": 1}
    through = fit(**keywords)
    assert interrupted("on_train_batch_end", 2, path, **keywords)
    assert_exact(path, through, **keywords)


class NoisyStream(IterableDataset[Any]):
    """A stream whose samples are drawn, and so depend on what came before, training steps included."""

    def __init__(self, with_generator: bool) -> None:
        self.generator = torch.Generator().manual_seed(2) if with_generator else None

    def __iter__(self) -> Iterator[Any]:
        for _ in range(20):
            x = torch.randn(4, generator=self.generator)
            yield x, x.sum(0, keepdim=True)


@pytest.mark.parametrize("with_generator", [False, True])
def test_stream_that_draws_its_samples(with_generator: bool, tmp_path: Path) -> None:
    """Nobody knows its length, so it is one batch ahead of the training."""
    path = tmp_path / "x.ckpt"
    keywords: dict[str, Any] = {"loader": lambda: DataLoader(NoisyStream(with_generator), batch_size=4)}
    through = fit(**keywords)
    for at in range(1, 11):
        assert interrupted("on_train_batch_end", at, path, **keywords)
        assert_exact(path, through, **keywords)

    def keeper(folder: Path) -> ModelCheckpoint:
        return ModelCheckpoint(dirpath=folder, save_on_exception=True, every_n_epochs=0)

    for at in (2, 4, 8):
        with pytest.raises(Stop):
            fit(callbacks=[Fails("on_after_backward", at), keeper(tmp_path / str(at))], **keywords)
        (path,) = (tmp_path / str(at)).glob("*.ckpt")
        assert_same_end(fit(ckpt_path=path, seed=99, callbacks=[keeper(tmp_path / str(at))], **keywords), through)


@pytest.mark.parametrize(
    ("hook", "at"), [("on_train_batch_end", 3), ("on_train_batch_end", 5), ("on_train_epoch_end", 1)]
)
def test_persistent_workers_of_a_loader_that_is_asked_for_anew(hook: str, at: int, tmp_path: Path) -> None:
    """It is the same one, and its workers run on: the next pass draws no seed for them."""
    path, keywords = tmp_path / "x.ckpt", {"max_epochs": 3, "reload_dataloaders_every_n_epochs": 1}
    data = TensorDataset(torch.arange(80.0).view(20, 4), torch.ones(20, 1))

    def loader() -> Any:
        return DataLoader(data, batch_size=4, shuffle=True, num_workers=1, persistent_workers=True)

    through = fit(loader=loader, callbacks=[SaveAt(hook, at, path)], **keywords)
    assert_same_end(fit(loader=loader, seed=9, ckpt_path=path, **keywords), through)
