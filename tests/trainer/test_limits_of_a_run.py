"""Limits, overfitting and empty loaders, seen from whole runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, WeightedRandomSampler

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, THEIRS, Library, base_module, compare, data, loader, run
from unstuck.errors import MisconfigurationException


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for _ in range(24):
            yield torch.randn(8), torch.randn(1)


def weighted() -> Any:
    return DataLoader(data(), batch_size=4, sampler=WeightedRandomSampler(torch.rand(24).tolist(), 24))


def batched() -> Any:
    return DataLoader(data(), batch_sampler=BatchSampler(RandomSampler(data()), 4, False))


def streamed() -> Any:
    return DataLoader(Stream(), batch_size=4)


class Watching(base_module(OURS)):  # type: ignore[misc]
    """Remembers the inputs of every epoch and makes a new loader when it is asked for one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self.make = make
        self.requests = 0
        self.epochs: list[list[Any]] = []

    def train_dataloader(self) -> Any:
        self.requests += 1
        return self.make()

    def on_train_epoch_start(self) -> None:
        self.epochs.append([])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.epochs[-1].append(batch[0].tolist())
        return super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:.*no `val_dataloader`")
@pytest.mark.parametrize("make", [weighted, batched, streamed])
def test_overfitting_sees_the_same_batches_although_loaders_shall_be_reloaded(
    make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    module = Watching(make)
    with caplog.at_level("INFO", logger="unstuck"):
        unstuck.Trainer(**QUIET, max_epochs=3, overfit_batches=2, reload_dataloaders_every_n_epochs=1).fit(module)
    first, *others = module.epochs
    assert len(first) == 2
    assert others == [first, first]
    assert module.requests == 1
    assert any("reload_dataloaders_every_n_epochs" in line for line in caplog.messages)


def test_a_fraction_to_overfit_on_leaves_a_validation_alone_one_batch() -> None:
    trainer = unstuck.Trainer(**QUIET, max_epochs=1, overfit_batches=0.05)
    trainer.validate(base_module(OURS)(), loader(shuffle=False), verbose=False)
    assert trainer.num_val_batches == [1]


def test_validation_counts_over_epochs_without_an_interval_of_its_own() -> None:
    def make(library: Library) -> Any:
        class Module(base_module(library)):  # type: ignore[misc]
            def on_validation_start(self) -> None:
                self.events.append(f"after {self.trainer.global_step} steps")

        return Module()

    outcome = compare(make, val=lambda: loader(8, shuffle=False), max_epochs=2, check_val_every_n_epoch=None)
    assert outcome.events == ["after 6 steps", "after 12 steps"]


def messages_of(action: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(warning.message) for warning in caught]


def test_empty_loaders_are_told_by_name() -> None:
    def fit() -> None:
        trainer = unstuck.Trainer(**{**QUIET, "num_sanity_val_steps": 1}, max_epochs=1)
        trainer.fit(base_module(OURS)(), {"a": [], "b": []}, [])

    told = [message.split("`")[1] for message in messages_of(fit) if "no batches" in message]
    assert told == ["val_dataloader", "train_dataloader['a']", "train_dataloader['b']"]


def test_a_fit_without_batches_says_that_it_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="unstuck"):
        trainer = unstuck.Trainer(**QUIET, max_epochs=1, limit_train_batches=0)
        trainer.fit(base_module(OURS)(), loader(), loader(shuffle=False))
    assert trainer.global_step == 0
    assert any("limit_train_batches=0" in line for line in caplog.messages)


def test_several_validation_loaders_alone_are_no_reason_to_speak_of_random_numbers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Module(base_module(OURS)):  # type: ignore[misc]
        draws = False

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            if self.draws:
                torch.rand(1)

    def fit(draws: bool) -> bool:
        caplog.clear()
        module = Module()
        module.draws = draws
        loaders = [loader(8, shuffle=shuffle) for shuffle in (False, True, False)]
        with caplog.at_level("INFO", logger="unstuck"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            unstuck.Trainer(**QUIET, max_epochs=1).fit(module, loader(), loaders)
        return any("random numbers" in line for line in caplog.messages)

    assert not fit(draws=False)
    assert fit(draws=True)


def test_a_fraction_of_no_batch_fails_before_anything_is_drawn() -> None:
    drawn: list[str] = []

    class Watched(DataLoader[Any]):
        def __iter__(self) -> Any:
            drawn.append("a batch")
            return super().__iter__()

    with pytest.raises(
        MisconfigurationException, match=r"overfit_batches=0\.1\).*`train_dataloader`.* 6 batches.*0\.16"
    ):
        unstuck.Trainer(**{**QUIET, "num_sanity_val_steps": 2}, max_epochs=1, overfit_batches=0.1).fit(
            base_module(OURS)(), Watched(data(), batch_size=4), Watched(data(), batch_size=4)
        )
    assert drawn == []


def test_predictions_cover_the_samples_that_a_loader_would_drop() -> None:
    for dropping in (
        lambda: loader(10, shuffle=False, drop_last=True),
        lambda: DataLoader(data(10), batch_sampler=BatchSampler(range(10), 4, True)),
    ):
        ours = run(OURS, train=dropping, method="predict").result
        theirs = run(THEIRS, train=dropping, method="predict").result
        assert [len(answer) for answer in ours] == [4, 4, 2]
        assert all(torch.equal(own, other) for own, other in zip(ours, theirs, strict=True))


def test_the_sanity_check_leaves_a_shared_generator_alone() -> None:
    def losses(steps: int) -> list[float]:
        torch.manual_seed(3)
        module = base_module(OURS)()
        generator = torch.Generator().manual_seed(4)
        trainer = unstuck.Trainer(**{**QUIET, "num_sanity_val_steps": steps}, max_epochs=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.fit(module, loader(generator=generator), loader(8, generator=generator))
        return [loss.item() for loss in module.losses]

    assert losses(2) == losses(0)


@pytest.mark.parametrize(
    ("validate_on", "expected"), [("val", "other samples than those"), ("train", "on the samples that it trains on")]
)
def test_overfitting_tells_what_it_trains_and_validates_on(
    validate_on: Any, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    overfit = unstuck.Overfit(2, validate_on=validate_on)
    with caplog.at_level("INFO", logger="unstuck"):
        unstuck.Trainer(**QUIET, max_epochs=1, overfit_batches=overfit).fit(
            base_module(OURS)(), loader(shuffle=False), loader(shuffle=False)
        )
    assert any("the same 2 batches" in line for line in caplog.messages)
    assert any(expected in line for line in caplog.messages)


@pytest.mark.parametrize("isolate", [False, True])
def test_streams_are_validated_on(isolate: bool) -> None:
    trainer = unstuck.Trainer(
        **{**QUIET, "num_sanity_val_steps": 2}, max_epochs=1, limit_val_batches=3, isolate_validation=isolate
    )
    trainer.fit(base_module(OURS)(), streamed(), streamed())
    assert trainer.num_val_batches == [3]
    assert trainer.global_step == 6


def batches_once() -> Iterator[Any]:
    yield from list(loader())


def test_a_generator_that_is_used_up_is_told() -> None:
    trainer = unstuck.Trainer(**QUIET, max_epochs=3)
    told = messages_of(lambda: trainer.fit(base_module(OURS)(), batches_once()))
    assert [message for message in told if "no batch in epoch 1" in message]
    assert sum("no batch in epoch" in message for message in told) == 1
    assert trainer.global_step == 6


@pytest.mark.filterwarnings("ignore:There is .*validation_step")
def test_a_generator_that_is_used_up_does_not_train_for_ever() -> None:
    trainer = unstuck.Trainer(**QUIET, max_steps=10)
    with pytest.raises(MisconfigurationException, match=r"no batch in epoch 1.*for ever"):
        trainer.fit(base_module(OURS)(), batches_once())
