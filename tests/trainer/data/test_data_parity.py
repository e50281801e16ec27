"""The same meaning as in Lightning, observed in one process."""

from __future__ import annotations

import random
import warnings
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lightning.fabric.utilities import move_data_to_device as lightning_move
from lightning.pytorch.trainer.connectors.data_connector import _parse_num_batches
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.combined_loader import CombinedLoader as LightningCombinedLoader
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from unstuck.trainer.data.combined import CombinedLoader, as_combined, iterate
from unstuck.trainer.data.limits import Overfit, parse_batch_limits, resolve_limit
from unstuck.trainer.data.loaders import loader_names
from unstuck.trainer.data.overfit import freeze_loaders
from unstuck.trainer.data.seed import isolate_rng, seed_everything
from unstuck.trainer.data.transfer import move_data_to_device

# Lightning uses what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore")

QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
}
ATTRIBUTES = {
    "limit_train_batches": "train",
    "limit_val_batches": "val",
    "limit_test_batches": "test",
    "limit_predict_batches": "predict",
}


class Logged(Dataset[torch.Tensor]):
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        self.log.append(f"get {index}")
        return torch.full((2,), float(index))


class LoggedStream(IterableDataset[torch.Tensor]):
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(6):
            self.log.append(f"get {index}")
            yield torch.full((2,), float(index))


class Model(pl.LightningModule):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.seen = log

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        self.seen.append(f"step {batch_idx} {batch[:, 0].tolist()} {self.trainer.is_last_batch}")
        return self.layer(batch).sum()  # type: ignore[no-any-return]

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.0)


def result_or_error(function: Any, *args: Any, **kwargs: Any) -> tuple[Any, str]:
    """What a call returns, or the name of the class of what it raises with the message."""
    try:
        return function(*args, **kwargs), ""
    except Exception as error:  # noqa: BLE001 - whatever Lightning raises
        return type(error).__name__, str(error)


def lightning_limits(**kwargs: Any) -> Any:
    trainer: Any = pl.Trainer(**QUIET, **kwargs)
    sets: Any = {ours: getattr(trainer, theirs) for theirs, ours in ATTRIBUTES.items()}
    time = trainer._val_check_time_interval
    sets["val_check_interval"] = trainer.val_check_interval if time is None else timedelta(seconds=time)
    sets["sanity"] = trainer.num_sanity_val_steps
    return sets


def our_limits(**kwargs: Any) -> Any:
    limits = parse_batch_limits(**kwargs)
    return {name: getattr(limits, name) for name in [*ATTRIBUTES.values(), "val_check_interval", "sanity"]}


VALUES = [None, True, False, 0, 0.0, 1, 1.0, 2, 2.0, 0.5, 2.5, -1, -1.0, -0.5, float("nan"), float("inf")]
CONFIGURATIONS: list[dict[str, Any]] = [
    *({name: value} for name in ATTRIBUTES for value in VALUES),
    # Lightning takes overfit_batches=2.0 for a fraction of 200 %.
    *({"overfit_batches": value} for value in VALUES if value is not None and repr(value) != "2.0"),
    *({"val_check_interval": value} for value in [*VALUES, "00:01:00:00", "3", {"hours": 1}, timedelta(minutes=3)]),
    *({"num_sanity_val_steps": value} for value in (None, 0, 1, 5, -1)),
    *({"fast_dev_run": value} for value in (True, False, 0, 3, -1)),
    {"fast_dev_run": 2, "limit_val_batches": 0, "val_check_interval": 5, "num_sanity_val_steps": 3},
    {"check_val_every_n_epoch": None, "val_check_interval": 0.5},
    {"check_val_every_n_epoch": None, "val_check_interval": 5},
    {"check_val_every_n_epoch": 1.5},
]


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_keywords_are_read_alike(configuration: dict[str, Any]) -> None:
    expected, error = result_or_error(lightning_limits, **configuration)
    ours, our_error = result_or_error(our_limits, **configuration)
    assert ours == expected
    if error:
        assert next(iter(configuration)) in our_error
    else:  # 1 and 1.0 mean different things, though they are equal
        assert [isinstance(v, float) for v in ours.values()] == [isinstance(v, float) for v in expected.values()]


@settings(deadline=None, max_examples=60)
@given(
    st.one_of(st.integers(0, 30), st.floats(0, 1)),
    st.one_of(st.integers(0, 25), st.just(float("inf"))),
)
def test_limits_are_resolved_alike(limit: float, length: float) -> None:
    # Nothing of a loader without length is nothing here; Lightning never asks there.
    assume(limit != 0 or length != float("inf"))
    expected, _ = result_or_error(_parse_num_batches, RunningStage.TRAINING, length, limit)
    ours, error = result_or_error(resolve_limit, limit, length, name="limit_train_batches", loader="train_dataloader")
    assert ours == expected
    assert not error or "limit_train_batches" in error


COLLECTIONS: list[Any] = [
    range(3),
    [1, 2, 3],
    [range(3), range(5)],
    {"a": range(3), "b": [range(2), range(4)]},
    {"a": [1, 2], "b": (range(3), {"c": "xyz"})},
    OrderedDict(a=range(1), b=range(2)),
    namedtuple("Pair", "x y")(range(2), range(3)),
    [range(3), ()],
    [],
]


@pytest.mark.parametrize("mode", ["min_size", "max_size_cycle", "max_size", "sequential"])
@pytest.mark.parametrize("limits", [None, 0, 2, 9])
@pytest.mark.parametrize("loaders", COLLECTIONS, ids=str)
def test_combined_loaders_yield_the_same(loaders: Any, limits: Any, mode: Any) -> None:
    theirs: Any = LightningCombinedLoader(loaders, mode)
    ours = CombinedLoader(loaders, mode)
    theirs.limits = ours.limits = limits
    assert ours.flattened == theirs.flattened
    assert ours.limits == theirs.limits
    assert list(ours) == list(theirs)
    iter(theirs)
    assert len(ours) == len(theirs)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda log: DataLoader(Logged(log), batch_size=2), {}),
        (lambda log: DataLoader(Logged(log), batch_size=2), {"limit_train_batches": 2}),
        (lambda log: DataLoader(LoggedStream(log), batch_size=2), {}),
        (lambda log: DataLoader(LoggedStream(log), batch_size=2), {"limit_train_batches": 2}),
    ],
    ids=["sized", "sized, limited", "stream", "stream, limited"],
)
def test_batches_are_drawn_at_the_same_time(make: Any, options: dict[str, Any]) -> None:
    theirs: list[str] = []
    pl.Trainer(**QUIET, max_epochs=1, **options).fit(Model(theirs), make(theirs))

    ours: list[str] = []
    combined = as_combined(make(ours), "max_size_cycle")
    combined.limits = options.get("limit_train_batches")
    for batch, index, _, last in iterate(combined):
        ours.append(f"step {index} {batch[:, 0].tolist()} {last}")
    assert ours == theirs


@pytest.mark.parametrize("overfit", [2, 0.5, 1.0])
def test_overfitting_on_a_shuffled_loader_sees_the_same_batches(overfit: float) -> None:
    theirs: list[str] = []
    pl.Trainer(**QUIET, max_epochs=2, overfit_batches=overfit).fit(
        Model(theirs), DataLoader(Logged([]), batch_size=2, shuffle=True)
    )

    ours: list[str] = []
    combined = as_combined(DataLoader(Logged([]), batch_size=2, shuffle=True), "max_size_cycle")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        combined = freeze_loaders(combined, loader_names("train_dataloader", combined.iterables), Overfit(overfit))
    assert "shuffling" in str(caught[0].message)
    for _ in range(2):
        for batch, index, _, last in iterate(combined):
            ours.append(f"step {index} {batch[:, 0].tolist()} {last}")
    assert ours == theirs


def test_lightnings_own_combination_is_understood() -> None:
    theirs: Any = LightningCombinedLoader({"a": range(2)}, "max_size")
    ours = as_combined(theirs, "sequential")
    assert (ours.mode, ours.iterables) == ("max_size", {"a": range(2)})


def test_batches_are_moved_alike() -> None:
    x = torch.ones(1)
    pair = namedtuple("pair", "x note")
    batch = {"a": [x, 1], "b": (x, "t"), "c": pair(x, "n"), "d": defaultdict(list, e=x), "f": OrderedDict(g=x)}
    theirs = lightning_move(batch, torch.device("meta"))
    ours = move_data_to_device(batch, torch.device("meta"))

    def shape(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            return item.device.type
        if isinstance(item, dict):
            return type(item), {key: shape(value) for key, value in item.items()}
        if isinstance(item, (list, tuple)):
            return type(item), [shape(value) for value in item]
        return item

    assert shape(ours) == shape(theirs)


def test_a_seed_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def numbers() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), torch.rand(1).item()

    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setenv("PL_SEED_WORKERS", "0")
    with isolate_rng():
        assert pl.seed_everything(11, verbose=False) == 11
        expected = numbers()
        assert seed_everything(11, verbose=False) == 11
        assert numbers() == expected


@pytest.mark.parametrize("seed", [-1, 2**32, "x"])
def test_a_bad_seed_is_the_same_error(seed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    for function in (pl.seed_everything, seed_everything):
        with pytest.raises(ValueError):  # noqa: PT011
            function(seed, verbose=False)
