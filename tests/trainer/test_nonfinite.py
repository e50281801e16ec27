"""The Trainer's guard: one warning per cause, named as precisely as in a plain script, and a run that goes on."""

from __future__ import annotations

import contextlib
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import unstuck
from unstuck.errors import MisconfigurationException, NonFiniteError
from unstuck.findings import Finding

BAD_BATCH = 5


class Faulty(unstuck.LightningModule):
    """A small network whose step has a fault in one batch."""

    def __init__(self, fault: str = "none", bad: int = BAD_BATCH) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
        self.fault, self.bad = fault, bad
        self.losses: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(1)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        y = self(batch[0])
        loss = self.loss(y, batch_idx == self.bad)
        self.log("loss", loss)
        self.losses.append(float(loss.detach()))
        return loss

    def loss(self, y: Tensor, bad: bool) -> Tensor:
        off = 0.0 if bad else 1.0
        if self.fault == "log":
            return torch.log(y.abs() * off + (1 - off) * y.detach() * 0 + off).mean()  # LOG
        if self.fault == "sqrt":
            return torch.sqrt((y * off).pow(2)).mean()  # SQRT
        return y.pow(2).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(index for index, line in enumerate(lines, 1) if f"# {mark}" in line and "line_of" not in line)


def loader(batches: int = 12, size: int = 8) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    return DataLoader(TensorDataset(torch.randn(batches * size, 4, generator=generator)), batch_size=size)


def trainer(folder: Path, **more: Any) -> unstuck.Trainer:
    quiet: dict[str, Any] = {
        "accelerator": "cpu", "max_epochs": 1, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder,
    }  # fmt: skip
    return unstuck.Trainer(**{**quiet, **more})


def fit(module: Any, folder: Path, data: Any = None, **more: Any) -> list[str]:
    """Fits; returns what was warned of about values that aren't finite."""
    torch.manual_seed(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(folder, **more).fit(module, data or loader())
    return [str(item.message) for item in caught if "nonfinite" in str(item.message) or "numerics" in str(item.message)]


def finding(module: Any, folder: Path, data: Any = None, **more: Any) -> Finding:
    """The finding with which a fit ends that was asked to raise."""
    torch.manual_seed(1)
    with pytest.raises(NonFiniteError) as caught:
        trainer(folder, detect_anomaly="replay", **more).fit(module, data or loader())
    assert isinstance(caught.value.finding, Finding)
    return caught.value.finding


@pytest.mark.parametrize(
    ("fault", "code", "op"),
    [("log", "numerics.nonfinite-forward", "log"), ("sqrt", "numerics.nonfinite-backward", "sqrt")],
)
def test_one_warning_that_names_the_operation_and_the_run_goes_on(
    fault: str, code: str, op: str, tmp_path: Path
) -> None:
    module = Faulty(fault)
    (text,) = fit(module, tmp_path, max_epochs=2)
    assert len(module.losses) == 24, "the run goes on"
    line = line_of("LOG" if fault == "log" else "SQRT")
    for part in (code, f"test_nonfinite.py:{line}", f"op {op}", "epoch 0", "batch 5", "step 5", "global step 5"):
        assert part in text
    assert "fix: " in text
    folder = next((tmp_path / "unstuck-out").iterdir()) / "incident-0"
    saved = torch.load(folder / "tensors.pt", weights_only=True)
    assert all(bool(torch.isfinite(value).all()) for model in saved["models"].values() for value in model.values())
    raised = finding(Faulty(fault), tmp_path)
    assert (raised.code, raised.where.op, raised.where.line) == (code, op, line)
    assert (raised.where.step, raised.where.batch) == (5, 5)
    assert raised.confirmed
    assert [frame.function for frame in raised.where.chain][-2:] == ["Faulty.training_step", "Faulty.loss"]
    assert raised.evidence["epoch"] == 0 and raised.evidence["inputs"]


def seeded(fault: str) -> Faulty:
    torch.manual_seed(7)
    return Faulty(fault)


def test_a_healthy_run_is_silent(tmp_path: Path) -> None:
    assert fit(Faulty(), tmp_path, max_epochs=3) == []
    assert not (tmp_path / "unstuck-out").exists()


def test_barebones_is_not_watched_and_a_watched_run_computes_the_same_bits(tmp_path: Path) -> None:
    watched, bare = seeded("sqrt"), seeded("sqrt")
    assert len(fit(watched, tmp_path)) == 1
    torch.manual_seed(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unstuck.Trainer(barebones=True, max_epochs=1, accelerator="cpu").fit(bare, loader())
    assert not [item for item in caught if "nonfinite" in str(item.message)]
    assert torch.tensor(watched.losses).nan_to_num().tolist() == torch.tensor(bare.losses).nan_to_num().tolist()
    for left, right in zip(watched.state_dict().values(), bare.state_dict().values(), strict=True):
        assert torch.equal(left.nan_to_num(), right.nan_to_num())


def test_metrics_hooks_and_random_states_are_untouched_by_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(Faulty):
        def __init__(self) -> None:
            super().__init__("sqrt")
            self.calls = 0
            self.history: list[int] = []
            self.seen: list[Any] = []
            self.metric = torchmetrics.MeanMetric()

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            self.calls += 1
            self.history.append(batch_idx)
            self.metric.update(float(batch_idx))
            self.log("mean", self.metric)
            return super().training_step(batch, batch_idx)

        def on_train_batch_end(self, *_: Any) -> None:
            metrics = {name: str(value) for name, value in self.trainer.callback_metrics.items()}
            self.seen.append((self.calls, list(self.history), float(torch.rand(1)), random.random(), metrics))

        def on_train_epoch_end(self) -> None:
            self.seen.append(float(self.metric.compute()))

    modules = []
    for watches in (True, False):
        if not watches:
            monkeypatch.setattr("unstuck.trainer.entry.watched", contextlib.nullcontext)
        random.seed(1)
        torch.manual_seed(7)
        modules.append(Counting())
        assert len(fit(modules[-1], tmp_path)) == watches
    assert modules[0].seen == modules[1].seen
    assert len(modules[0].seen) == 13


def test_gradients_that_a_hook_cleans_are_no_incident(tmp_path: Path) -> None:
    class Cleaning(Faulty):
        def on_after_backward(self) -> None:
            for parameter in self.parameters():
                if parameter.grad is not None:
                    parameter.grad.nan_to_num_(0.0, 0.0, 0.0)

    assert fit(Cleaning("log"), tmp_path) == []
    assert fit(Cleaning("sqrt"), tmp_path) == []


@pytest.mark.parametrize(
    "more",
    [
        {"accumulate_grad_batches": 4},
        {"gradient_clip_val": 1.0},
        {"gradient_clip_val": 0.5, "gradient_clip_algorithm": "value", "accumulate_grad_batches": 3},
        {"precision": "bf16-mixed"},
        {"precision": "64-true"},
    ],
    ids=str,
)
@pytest.mark.parametrize("fault", ["log", "sqrt"])
def test_named_with_every_way_to_step(fault: str, more: dict[str, Any], tmp_path: Path) -> None:
    found = finding(Faulty(fault), tmp_path, **more)
    assert found.where.line == line_of("LOG" if fault == "log" else "SQRT")
    assert found.where.batch == BAD_BATCH
    assert found.where.step == BAD_BATCH // more.get("accumulate_grad_batches", 1)


def test_lbfgs(tmp_path: Path) -> None:
    class Quasi(Faulty):
        def configure_optimizers(self) -> Any:
            return torch.optim.LBFGS(self.parameters(), lr=0.01, max_iter=3)

    found = finding(Quasi("sqrt"), tmp_path)
    assert (found.where.line, found.where.step, found.where.batch) == (line_of("SQRT"), 5, 5)


class Manual(Faulty):
    """Two optimisers, stepped by hand."""

    def __init__(self, fault: str = "none") -> None:
        super().__init__(fault)
        self.automatic_optimization = False
        self.other = nn.Linear(4, 1)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:  # type: ignore[override]
        first, second = self.optimizers()
        loss = self.loss(self(batch[0]), False)
        first.zero_grad()
        self.manual_backward(loss)
        first.step()
        loss = self.loss(self.other(batch[0]).squeeze(1), batch_idx == self.bad)
        second.zero_grad()
        self.manual_backward(loss)
        second.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(item.parameters(), lr=0.01) for item in (self.net, self.other)]


@pytest.mark.parametrize("fault", ["log", "sqrt"])
def test_manual_optimisation_with_several_optimisers(fault: str, tmp_path: Path) -> None:
    found = finding(Manual(fault), tmp_path)
    assert (found.where.line, found.where.batch) == (line_of("LOG" if fault == "log" else "SQRT"), 5)
    assert found.where.step == 11
    assert found.evidence["global step"] == 11
    assert len(fit(Manual(fault), tmp_path)) == 1
    assert fit(Manual(), tmp_path) == []


def test_a_compiled_model(tmp_path: Path) -> None:
    class Compiled(Faulty):
        def __init__(self, fault: str) -> None:
            super().__init__(fault)
            self.net = torch.compile(self.net, backend="eager")  # type: ignore[assignment]

    found = finding(Compiled("sqrt"), tmp_path)
    assert (found.where.line, found.where.step) == (line_of("SQRT"), 5)


@pytest.mark.parametrize("manual", [False, True])
def test_an_update_that_poisons_weights(manual: bool, tmp_path: Path) -> None:
    class Half(unstuck.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = not manual
            self.net = nn.Linear(4, 8)
            nn.init.zeros_(self.net.weight)

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            loss = (self.net(batch[0]).float() * 1e-6).pow(2).mean()
            if manual:
                optimizer: Any = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()  # STEP BY HAND
            return loss

        def configure_optimizers(self) -> Any:
            kind = torch.optim.Adam
            return kind(self.parameters(), lr=1e-3) if manual else torch.optim.Adam(self.parameters())  # ADAM

    found = finding(Half(), tmp_path, precision="16-true")
    assert (found.code, found.where.op) == ("numerics.nonfinite-parameter", "addcdiv")
    assert found.where.parameter is not None and found.where.parameter.startswith("net.")
    assert (found.where.step, found.where.batch, found.evidence["global step"]) == (0, 0, 0)
    assert found.where.line == line_of("STEP BY HAND" if manual else "ADAM")
    assert "eps" in found.remedy
    with unstuck.watch(on_nonfinite="continue") as watch:
        assert fit(Half(), tmp_path, precision="16-true") == [], "the session reports"
    assert (watch.findings[0].code, watch.findings[0].where.line) == (found.code, found.where.line)


def test_a_batch_that_holds_nan(tmp_path: Path) -> None:
    x = torch.randn(96, 4)
    x[3 * 8 + 6, 1] = float("nan")
    found = finding(Faulty(), tmp_path, DataLoader(TensorDataset(x), batch_size=8))
    assert found.code == "data.nonfinite-input"
    assert (found.where.step, found.where.batch, found.where.sample) == (3, 3, 6)


def test_the_modes_of_detect_anomaly(tmp_path: Path) -> None:
    with pytest.raises(MisconfigurationException, match="replay"):
        trainer(tmp_path, detect_anomaly="always")
    torch.manual_seed(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="returned nan"):
            trainer(tmp_path, detect_anomaly=True).fit(Faulty("sqrt"), loader())
    (text,) = [str(item.message) for item in caught if "numerics" in str(item.message)]
    assert f"test_nonfinite.py:{line_of('SQRT')}" in text and "batch 5" in text


def test_a_replayed_anomaly_ends_the_fit_before_the_step_and_tears_down(tmp_path: Path) -> None:
    calls: list[str] = []

    class Told(Faulty):
        def teardown(self, stage: str) -> None:
            calls.append("teardown")

        def on_validation_start(self) -> None:
            calls.append("validation")

        def on_exception(self, *_: Any) -> None:
            calls.append("exception")

    module = Told("sqrt")
    error = finding(module, tmp_path)
    assert error.where.step == 5
    assert all(bool(torch.isfinite(item).all()) for item in module.parameters())
    assert calls == ["teardown"]


class Validated(Faulty):
    """Two validation loaders; one of them has a batch that makes the loss infinite."""

    def __init__(self, logs: bool) -> None:
        super().__init__()
        self.logs = logs

    def validation_step(self, batch: list[Tensor], batch_idx: int, dataloader_idx: int) -> Tensor | None:
        bad = dataloader_idx == 1 and batch_idx == 2
        ratio = torch.zeros(()) / 0.0  # of nothing, so rightly NaN
        loss = -torch.log(self(batch[0]).abs() * (0.0 if bad else 1.0)).mean()  # VALIDATION
        if not self.logs:
            return loss
        self.log_dict({"val_loss": loss, "ratio": ratio}, batch_size=8)
        return None


@pytest.mark.parametrize("logs", [True, False])
def test_a_validation_loss_is_told_with_loader_and_batch(logs: bool, tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = Validated(logs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(tmp_path, max_epochs=2, num_sanity_val_steps=0).fit(module, loader(), [loader(4), loader(4)])
    (text,) = [str(item.message) for item in caught if "numerics" in str(item.message)]
    parts = (
        f"test_nonfinite.py:{line_of('VALIDATION')}",
        "op log",
        "loader 1",
        "batch 2",
        "epoch 0",
        "validation_step",
    )
    assert [part for part in parts if part not in text] == []
    assert len(module.losses) == 24
    with pytest.raises(NonFiniteError) as error:
        trainer(tmp_path, detect_anomaly="replay").validate(Validated(logs), [loader(4), loader(4)], verbose=False)
    assert isinstance(error.value.finding, Finding)
    assert error.value.finding.where.op == "log"
    assert error.value.finding.where.sample == 0


def test_a_value_that_is_no_loss_may_be_nan_in_a_validation(tmp_path: Path) -> None:
    class Undefined(Faulty):
        def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
            self.log("val_iou", torch.zeros(()) / 0.0)

    torch.manual_seed(1)
    trainer(tmp_path).fit(Undefined(), loader(), loader(2))
