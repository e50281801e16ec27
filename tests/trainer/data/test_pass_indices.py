"""Which samples a training batch is made of is known at an incident, whoever fetches them and in whatever order."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import unstuck
from tests.session.watching import watch
from unstuck.errors import NonFiniteError
from unstuck.trainer.data.indices import PassIndices

BAD = 37
WORKERS = [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}]


class Fitted(unstuck.LightningModule):
    def __init__(self, manual: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.automatic_optimization = not manual

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        if not self.automatic_optimization:
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def table() -> TensorDataset:
    x, y = torch.randn(64, 4), torch.randn(64, 1)
    x[BAD, 2] = float("nan")
    return TensorDataset(x, y)


@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize("workers", WORKERS, ids=["none", "two", "persistent"])
def test_a_trainer_names_the_datasets_index(manual: bool, workers: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(3)
    loader = DataLoader(table(), batch_size=8, shuffle=True, **workers)
    trainer = unstuck.Trainer(
        max_epochs=2,
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        detect_anomaly="replay",
    )
    with pytest.raises(NonFiniteError) as raised:
        trainer.fit(Fitted(manual), loader)
    finding: Any = raised.value.finding
    assert finding is not None
    assert finding.evidence["dataset index"] == BAD


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loop_names_the_datasets_index(workers: int, tmp_path: Path) -> None:
    run = watch(
        f"""
        from torch.utils.data import DataLoader, TensorDataset
        X, Y = torch.randn(64, 4), torch.randn(64, 1)
        X[{BAD}, 2] = float("nan")
        model = nn.Linear(4, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(2):
            for x, y in DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True, num_workers={workers}):
                loss = F.mse_loss(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
        """,
        tmp_path,
    )
    finding = run.verdict.findings[0]
    assert finding.code == "data.nonfinite-input"
    assert finding.evidence["dataset index"] == BAD


@pytest.mark.parametrize("workers", WORKERS, ids=["none", "two", "persistent"])
def test_every_batch_of_every_pass_is_known(workers: dict[str, Any]) -> None:
    loader = DataLoader(TensorDataset(torch.arange(50)), batch_size=4, shuffle=True, **workers)
    known = PassIndices()
    before = _BaseDataLoaderIter._next_index
    for _ in range(2):
        for number, (batch,) in enumerate(known.begin(lambda: iter(loader))):
            assert known.of(number) == batch.tolist()
        assert known.of(number + 1) is None
    assert _BaseDataLoaderIter._next_index is before


def test_only_the_last_batches_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    known = PassIndices()
    loader = DataLoader(TensorDataset(torch.arange(2000)), batch_size=1)
    assert len(list(known.begin(lambda: iter(loader)))) == 2000
    assert known.of(1999) == [1999]
    assert known.of(10) is None
    known.forget()
    assert known.of(1999) is None


def test_an_iterator_is_let_go_at_once() -> None:
    gc.disable()
    try:
        loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2)
        iterator = PassIndices().begin(lambda: iter(loader))
        gone = weakref.ref(iterator)
        del iterator
        assert gone() is None
    finally:
        gc.enable()


def test_what_has_no_indices_is_unknown() -> None:
    known = PassIndices()
    assert list(known.begin(lambda: iter([1, 2]))) == [1, 2]
    assert known.of(0) is None
