"""LightningDataModule."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, TensorDataset

from unstuck.errors import MisconfigurationException
from unstuck.trainer.data.datamodule import LightningDataModule

FIVE = TensorDataset(torch.arange(5))


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Sized(LightningDataModule):
    def __init__(self, batch_size: int, width: int = 1) -> None:
        super().__init__()
        self.save_hyperparameters()


class Late(LightningDataModule):
    def setup(self, stage: str) -> None:
        self.train = FIVE

    def train_dataloader(self) -> Any:
        return DataLoader(self.train)


@pytest.mark.parametrize("stage", ["train", "val", "test", "predict"])
def test_a_loader_hook_has_to_be_written(stage: str) -> None:
    with pytest.raises(MisconfigurationException, match=f"{stage}_dataloader"):
        getattr(LightningDataModule(), f"{stage}_dataloader")()


def test_defaults() -> None:
    data = LightningDataModule()
    assert data.trainer is None
    assert data.name is None
    assert data.prepare_data_per_node is True
    assert data.allow_zero_length_dataloader_with_multiple_devices is False
    assert data.state_dict() == {}
    assert data.transfer_batch_to_device([torch.ones(1)], torch.device("meta"), 0)[0].device.type == "meta"
    assert data.on_before_batch_transfer("batch", 0) == data.on_after_batch_transfer("batch", 0) == "batch"
    for nothing in (data.prepare_data(), data.setup("fit"), data.teardown("fit"), data.load_state_dict({})):
        assert nothing is None


def test_hyperparameters() -> None:
    assert dict(Sized(4, width=3).hparams) == {"batch_size": 4, "width": 3}


def test_loaders_of_datasets() -> None:
    data = LightningDataModule.from_datasets(FIVE, [FIVE, FIVE], predict_dataset={"a": FIVE}, batch_size=2)
    train, val, predict = data.train_dataloader(), data.val_dataloader(), data.predict_dataloader()
    assert type(train.sampler) is RandomSampler
    assert [type(loader.sampler) for loader in val] == [SequentialSampler] * 2
    assert train.batch_size == val[0].batch_size == predict["a"].batch_size == 2
    with pytest.raises(MisconfigurationException):
        data.test_dataloader()


def test_streams_are_not_shuffled() -> None:
    loader = LightningDataModule.from_datasets(Stream(), batch_size=2).train_dataloader()
    assert [batch.tolist() for batch in loader] == [[0, 1], [2]]


def test_arguments_of_the_class() -> None:
    data = Sized.from_datasets(FIVE, batch_size=3, width=7)
    assert dict(data.hparams) == {"batch_size": 3, "width": 7}
    with pytest.raises(TypeError):
        Sized.from_datasets(FIVE, depth=2)


def test_a_data_module_of_datasets_can_be_pickled() -> None:
    data = pickle.loads(pickle.dumps(LightningDataModule.from_datasets(FIVE, batch_size=2)))
    assert len(data.train_dataloader()) == 3


def test_its_text_tells_the_sizes() -> None:
    data = LightningDataModule.from_datasets(FIVE, [FIVE, Stream()])
    assert str(data).splitlines() == [
        "Train data: 5 samples",
        "Validation data: 5 samples, unknown size",
        "Test data: none",
        "Predict data: none",
    ]
    late = Late()
    assert str(late).startswith("Train data: not set up")
    late.setup("fit")
    assert str(late).startswith("Train data: 5 samples")
