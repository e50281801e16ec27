"""Writing predictions."""

from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import BasePredictionWriter as Reference
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.trainer.side_by_side import OURS, THEIRS, Library, data, loader, run
from unstuck.callbacks import BasePredictionWriter
from unstuck.errors import MisconfigurationException

pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


def writer(library: Library, interval: Any) -> Any:
    base: Any = BasePredictionWriter if library is OURS else Reference

    class Writing(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(interval)
            self.batches: list[Any] = []
            self.epochs: list[Any] = []

        def write_on_batch_end(
            self, trainer: Any, module: Any, prediction: Any, indices: Any, batch: Any, batch_idx: int, loader_idx: int
        ) -> None:
            self.batches.append((prediction.clone(), indices, batch_idx, loader_idx))

        def write_on_epoch_end(self, trainer: Any, module: Any, predictions: Any, indices: Any) -> None:
            self.epochs.append((predictions, indices))

    return Writing()


def flat(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def normal(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [normal(item) for item in value]
    return flat(value)


LOADERS: dict[str, Any] = {
    "one": lambda: loader(10, shuffle=False),
    "shuffled": lambda: loader(10, shuffle=True, generator=torch.Generator().manual_seed(3)),
    "drop_last": lambda: loader(10, shuffle=False, drop_last=True),
    "two": lambda: [loader(10, shuffle=False), loader(6, shuffle=False)],
}


@pytest.mark.parametrize("loaders", LOADERS)
@pytest.mark.parametrize("interval", ["batch", "epoch", "batch_and_epoch"])
@pytest.mark.parametrize("return_predictions", [True, False])
def test_same_as_lightning(loaders: str, interval: str, return_predictions: bool) -> None:
    found = []
    for library in (OURS, THEIRS):
        callback = writer(library, interval)

        def use(trainer: Any, module: Any) -> Any:
            return trainer.predict(module, LOADERS[loaders](), return_predictions=return_predictions)

        outcome = run(library, use=use, callbacks=[callback])
        found.append([normal(item) for item in (callback.batches, callback.epochs, outcome.result)])
    assert found[0] == found[1]
    assert found[0][0] or found[0][1]


def test_workers_and_unbatched_loaders_tell_indices() -> None:
    for made in (
        DataLoader(data(8), batch_size=4, num_workers=1, shuffle=True),
        DataLoader(TensorDataset(torch.arange(24.0).view(3, 8)), batch_size=None),
    ):
        callback = writer(OURS, "epoch")
        run(OURS, train=lambda made=made: made, method="predict", callbacks=[callback])
        ((predictions, (indices,)),) = callback.epochs
        assert sorted(index for batch in indices for index in batch) == list(range(len(made.dataset)))
        assert len(indices) == len(predictions)


def test_streams_have_no_indices() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(data(4))

    callback = writer(OURS, "batch_and_epoch")
    with pytest.warns(UserWarning, match="indices"):
        run(OURS, train=lambda: DataLoader(Stream(), batch_size=2), method="predict", callbacks=[callback])
    assert [indices for _, indices, _, _ in callback.batches] == [None, None]
    assert callback.epochs[0][1] == [[[], []]]


def test_bad_interval() -> None:
    with pytest.raises(MisconfigurationException, match="write_interval"):
        BasePredictionWriter("sometimes")  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError):
        run(OURS, train=lambda: loader(4), method="predict", callbacks=[BasePredictionWriter("epoch")])


def test_nothing_is_kept_that_nobody_writes() -> None:
    kept: list[int] = []

    class Looking(BasePredictionWriter):
        def write_on_batch_end(self, trainer: Any, *args: Any) -> None:
            kept.append(len(trainer.predict_loop.predictions))

    run(
        OURS,
        use=lambda trainer, module: trainer.predict(module, loader(12, shuffle=False), return_predictions=False),
        callbacks=[Looking()],
    )
    assert kept == [0, 0, 0]
