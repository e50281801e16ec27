"""LightningDataModule: the data of a training in one object."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from typing_extensions import Self

from unstuck.trainer.checkpoints.loading import load_datamodule, on_class_only
from unstuck.trainer.data.loaders import flatten_loaders, length_of
from unstuck.trainer.hooks import is_overridden
from unstuck.trainer.hparams import HyperparametersMixin
from unstuck.trainer.module_hooks import DataHooks

__all__ = ["LightningDataModule"]

_STAGES = {"Train": "train", "Validation": "val", "Test": "test", "Predict": "predict"}


class LightningDataModule(DataHooks, HyperparametersMixin):
    """Says how the data is downloaded, prepared and loaded, apart from the model.

    Override any of the hooks::

        class Digits(LightningDataModule):
            def prepare_data(self): ...  # download; in one process
            def setup(self, stage): ...  # split, make datasets; in every process
            def train_dataloader(self): return DataLoader(self.train, shuffle=True)
            def val_dataloader(self): return DataLoader(self.val)
            def teardown(self, stage): ...

    Pass it as ``trainer.fit(model, datamodule=Digits())``. :meth:`state_dict` and :meth:`load_state_dict` put what they
    need into the Trainer's checkpoints.
    """

    name: str | None = None
    CHECKPOINT_HYPER_PARAMS_KEY = "datamodule_hyper_parameters"
    CHECKPOINT_HYPER_PARAMS_NAME = "datamodule_hparams_name"
    CHECKPOINT_HYPER_PARAMS_TYPE = "datamodule_hparams_type"

    def __init__(self) -> None:
        super().__init__()
        self.prepare_data_per_node = True
        self.allow_zero_length_dataloader_with_multiple_devices = False
        self.trainer: Any = None
        """The Trainer that uses the data, during and after a run."""

    @classmethod
    def from_datasets(
        cls,
        train_dataset: Dataset[Any] | Iterable[Dataset[Any]] | None = None,
        val_dataset: Dataset[Any] | Iterable[Dataset[Any]] | None = None,
        test_dataset: Dataset[Any] | Iterable[Dataset[Any]] | None = None,
        predict_dataset: Dataset[Any] | Iterable[Dataset[Any]] | None = None,
        batch_size: int = 1,
        num_workers: int = 0,
        **datamodule_kwargs: Any,
    ) -> LightningDataModule:
        """Makes a data module of datasets.

        Args:
            train_dataset: a dataset, or several in a list or mapping; its loader shuffles, unless it is a stream.
            val_dataset: the same for validation, without shuffling, as are the next ones.
            test_dataset: for tests.
            predict_dataset: for predictions.
            batch_size: samples of a batch.
            num_workers: workers of each loader.
            datamodule_kwargs: arguments of the class's ``__init__``, which gets ``batch_size`` and ``num_workers`` too
            if it
                takes them.
        """
        given = {"train": train_dataset, "val": val_dataset, "test": test_dataset, "predict": predict_dataset}
        parameters = inspect.signature(cls.__init__).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        offered = {"batch_size": batch_size, "num_workers": num_workers}
        datamodule_kwargs |= {name: value for name, value in offered.items() if takes_any or name in parameters}
        datamodule = cls(**datamodule_kwargs)
        for stage, datasets in given.items():
            if datasets is not None:
                make = _LoaderMaker(datasets, batch_size, num_workers, shuffle=stage == "train")
                setattr(datamodule, f"{stage}_dataloader", make)
        return datamodule

    def state_dict(self) -> dict[str, Any]:
        """What is to be saved with a checkpoint."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes back what :meth:`state_dict` returned."""

    def on_exception(self, exception: BaseException) -> None:
        """A run has ended with an exception."""

    @on_class_only
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | os.PathLike[str] | IO[bytes],
        map_location: Any = None,
        hparams_file: str | os.PathLike[str] | None = None,
        weights_only: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Makes a data module as it was when a checkpoint was saved: with its hyperparameters and its state.

        The arguments and errors are those of ``LightningModule.load_from_checkpoint``.
        """
        loaded: Self = load_datamodule(cls, checkpoint_path, map_location, hparams_file, weights_only, **kwargs)
        return loaded

    def __str__(self) -> str:
        return "\n".join(f"{label} data: {self._describe(stage)}" for label, stage in _STAGES.items())

    def _describe(self, stage: str) -> str:
        """The sizes of the datasets of a stage. A hook that isn't ready before ``setup`` counts as having none yet."""
        hook = f"{stage}_dataloader"
        if not is_overridden(hook, self):
            return "none"
        try:
            loaders, _ = flatten_loaders(getattr(self, hook)())
        except (AttributeError, TypeError):
            return "not set up"
        lengths = [length_of(getattr(loader, "dataset", loader)) for loader in loaders]
        return ", ".join("unknown size" if math.isinf(length) else f"{length} samples" for length in lengths)


class _LoaderMaker:
    """A loader hook made of datasets. An object instead of a closure, so that the data module can be pickled."""

    def __init__(self, datasets: Any, batch_size: int, num_workers: int, shuffle: bool) -> None:
        self.datasets = datasets
        self.batch_size = batch_size
        self.num_workers = num_workers
        self.shuffle = shuffle

    def __call__(self) -> Any:
        if isinstance(self.datasets, Mapping):
            return {key: self._loader(dataset) for key, dataset in self.datasets.items()}
        if isinstance(self.datasets, Sequence) and not isinstance(self.datasets, Dataset):
            return [self._loader(dataset) for dataset in self.datasets]
        return self._loader(self.datasets)

    def _loader(self, dataset: Any) -> DataLoader[Any]:
        shuffle = self.shuffle and not isinstance(dataset, IterableDataset)
        return DataLoader(
            dataset,
            batch_size=self.batch_size,
            shuffle=shuffle,
            num_workers=self.num_workers,
            pin_memory=torch.cuda.is_available(),
        )
