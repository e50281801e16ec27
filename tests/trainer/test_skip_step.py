"""``Trainer(on_nonfinite="skip-step")``: as if the bad batches had not been, and counted."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import unstuck
from unstuck.errors import MisconfigurationException, NonFiniteError
from unstuck.trainer.nonfinite.watcher import NonfiniteWatcher


class Net(unstuck.LightningModule):
    """A small network; batches whose first number is 7 make its step non-finite."""

    def __init__(self, kind: str = "loss", fused: bool = False) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
        self.kind, self.fused = kind, fused

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        x = batch[0]
        bad = float(x[0, 0]) == 7.0
        y = self.net(x).float()
        if self.kind == "loss":
            loss = (y * (float("nan") if bad else 1.0)).pow(2).mean()
        else:
            loss = torch.sqrt((y * (0.0 if bad else 1.0)).pow(2) + (0.0 if bad else 1e-3)).mean()
        self.log("loss", loss, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01, weight_decay=0.1, fused=self.fused)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def loader(bad: tuple[int, ...], left_out: tuple[int, ...] = ()) -> DataLoader[Any]:
    x = torch.randn(12, 8, 4, generator=torch.Generator().manual_seed(3))
    for index in bad:
        x[index, 0, 0] = 7.0
    kept = [index for index in range(12) if index not in left_out]
    return DataLoader(TensorDataset(x[kept].flatten(0, 1)), batch_size=8)


def fit(module: Any, data: Any, folder: Path, **more: Any) -> tuple[unstuck.Trainer, list[str]]:
    trainer, texts = fit_and_listen(module, data, folder, **more)
    return trainer, [text for text in texts if "numerics" in text]


def fit_and_listen(module: Any, data: Any, folder: Path, **more: Any) -> tuple[unstuck.Trainer, list[str]]:
    trainer = unstuck.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, **more,
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(module, data)
    return trainer, [str(item.message) for item in caught]


def compare(module: Any, trainer: unstuck.Trainer, wanted: Any, other: unstuck.Trainer) -> None:
    for name, value in wanted.state_dict().items():
        assert torch.equal(value, module.state_dict()[name]), name
    left, right = trainer.optimizers[0].state_dict(), other.optimizers[0].state_dict()
    assert left["param_groups"] == right["param_groups"]
    for one, two in zip(left["state"].values(), right["state"].values(), strict=True):
        assert all(torch.equal(torch.as_tensor(one[key]), torch.as_tensor(two[key])) for key in two)
    assert torch.equal(trainer.callback_metrics["loss"], other.callback_metrics["loss"])


@pytest.mark.parametrize("more", [{}, {"gradient_clip_val": 0.5}, {"precision": "bf16-mixed"}], ids=str)
@pytest.mark.parametrize("kind", ["loss", "gradient"])
def test_as_if_the_batches_had_not_been(kind: str, more: dict[str, Any], tmp_path: Path) -> None:
    bad = (0, 4, 7)
    module, wanted = Net(kind), Net(kind)
    trainer, texts = fit_and_listen(module, loader(bad), tmp_path, on_nonfinite="skip-step", **more)
    other, nothing = fit(wanted, loader((), left_out=bad), tmp_path, **more)
    compare(module, trainer, wanted, other)
    assert nothing == []
    (text,) = [item for item in texts if "numerics" in item]
    assert ("numerics.nonfinite-forward" if kind == "loss" else "numerics.nonfinite-backward") in text
    assert "batch 0" in text
    places = ", ".join(
        f"epoch 0 batch {index} (dataset indices {', '.join(str(8 * index + item) for item in range(8))})"
        for index in bad
    )
    assert f"`Trainer.fit` dropped 3 step(s) that weren't finite: {places}." in texts


def test_the_whole_window_is_dropped_under_accumulation(tmp_path: Path) -> None:
    module, wanted = Net(), Net()
    trainer, told = fit(module, loader((4,)), tmp_path, on_nonfinite="skip-step", accumulate_grad_batches=3)
    other, _ = fit(wanted, loader((), left_out=(3, 4, 5)), tmp_path, accumulate_grad_batches=3)
    compare(module, trainer, wanted, other)
    assert "batch 4" in told[0]


def test_a_loss_scaler_is_left_as_it_was(tmp_path: Path) -> None:
    module, wanted = Net(), Net()
    trainer, _ = fit(module, loader((3, 8)), tmp_path, on_nonfinite="skip-step", precision="16-mixed")
    other, _ = fit(wanted, loader((), left_out=(3, 8)), tmp_path, precision="16-mixed")
    compare(module, trainer, wanted, other)
    assert trainer._precision.state_dict() == other._precision.state_dict()


def test_a_fused_optimizer_decides_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NonfiniteWatcher, "decide_on_device", True)

    class Plain(Net):
        def configure_optimizers(self) -> Any:  # a schedule can't know what is decided on the device
            return super().configure_optimizers()["optimizer"]

    module, wanted = Plain("gradient", fused=True), Plain("gradient", fused=True)
    trainer, texts = fit_and_listen(module, loader((0, 4, 7)), tmp_path, on_nonfinite="skip-step")
    other, _ = fit(wanted, loader((), left_out=(0, 4, 7)), tmp_path)
    (text,) = [item for item in texts if "dropped 3 step(s)" in item]
    assert all(f"epoch 0 batch {index} (dataset indices {8 * index}, " in text for index in (0, 4, 7))
    for name, value in wanted.state_dict().items():
        assert torch.equal(value, module.state_dict()[name]), name
    state = trainer.optimizers[0].state_dict()["state"]
    for index, entry in other.optimizers[0].state_dict()["state"].items():
        assert float(entry["step"]) == float(state[index]["step"]) == 9.0


def test_a_bad_sample_is_told_by_its_index_in_the_dataset(tmp_path: Path) -> None:
    class Plain(Net):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            return self.net(batch[0]).pow(2).mean()

    x = torch.randn(96, 4, generator=torch.Generator().manual_seed(3))
    x[37, 2] = x[71, 0] = float("nan")
    torch.manual_seed(5)
    data = DataLoader(TensorDataset(x), batch_size=8, shuffle=True)
    _, texts = fit_and_listen(Plain(), data, tmp_path, on_nonfinite="skip-step")
    (first,) = [text for text in texts if "data.nonfinite-input" in text]
    assert "dataset index 37" in first or "dataset index 71" in first
    (last,) = [text for text in texts if "dropped 2 step(s)" in text]
    assert "(dataset index 37)" in last and "(dataset index 71)" in last


def test_it_is_said_that_looking_at_every_gradient_makes_a_device_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(NonfiniteWatcher, "lag", 4)  # as on a device where a look makes the program wait
    for fused in (False, True):
        caplog.clear()
        with caplog.at_level(logging.INFO, "unstuck"):
            fit(Net(fused=fused), loader(()), tmp_path, on_nonfinite="skip-step")
        assert any("makes the device wait" in message for message in caplog.messages) is not fused


def test_ten_in_a_row_end_the_fit(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteError, match="10 steps in a row"):
        fit(Net(), loader(tuple(range(1, 12))), tmp_path, on_nonfinite="skip-step")


def test_manual_optimisation(tmp_path: Path) -> None:
    class Manual(Net):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: list[Tensor], batch_idx: int) -> None:  # type: ignore[override]
            optimizer = self.optimizers()
            loss = super().training_step(batch, batch_idx)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.01, weight_decay=0.1)

    module, wanted = Manual(), Manual()
    trainer, texts = fit_and_listen(module, loader((0, 4)), tmp_path, on_nonfinite="skip-step")
    other, _ = fit(wanted, loader((), left_out=(0, 4)), tmp_path)
    assert len([text for text in texts if "numerics" in text]) == 1
    (text,) = [item for item in texts if "dropped 2 step(s)" in item]
    assert "batch 0 (dataset indices 0, 1, " in text and "batch 4 (dataset indices 32, 33, " in text
    for name, value in wanted.state_dict().items():
        assert torch.equal(value, module.state_dict()[name]), name
    left, right = trainer.optimizers[0].state_dict()["state"], other.optimizers[0].state_dict()["state"]
    for index, entry in right.items():
        assert all(torch.equal(torch.as_tensor(entry[key]), torch.as_tensor(left[index][key])) for key in entry)


def test_what_can_t_be_skipped_is_refused(tmp_path: Path) -> None:
    class Quasi(Net):
        def configure_optimizers(self) -> Any:
            return torch.optim.LBFGS(self.parameters())

    with pytest.raises(MisconfigurationException, match="LBFGS"):
        fit(Quasi(), loader(()), tmp_path, on_nonfinite="skip-step")
    with pytest.raises(MisconfigurationException, match="on_nonfinite"):
        unstuck.Trainer(on_nonfinite="ignore")  # type: ignore[arg-type]
    with pytest.raises(MisconfigurationException, match="barebones"):
        unstuck.Trainer(on_nonfinite="skip-step", barebones=True)
