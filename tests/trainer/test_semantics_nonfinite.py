"""What people asked of a check for NaN and infinity, and got elsewhere in part or not at all."""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

import unstuck
from tests.trainer.test_nonfinite import Faulty, finding, fit, line_of, loader, trainer
from unstuck.errors import NonFiniteError


def own_line(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(index for index, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def test_an_infinite_factor_is_named_and_not_the_nan_that_follows_from_it(tmp_path: Path) -> None:
    class Scaled(Faulty):
        def loss(self, y: Tensor, bad: bool) -> Tensor:
            weight = torch.exp(torch.full((), 1000.0 if bad else 0.0))  # INFINITE
            return (y * weight - y * weight * 0.5).pow(2).mean()

    found = finding(Scaled(), tmp_path)
    assert (found.code, found.where.op, found.where.line) == (
        "numerics.nonfinite-forward", "exp", own_line("INFINITE"),
    )  # fmt: skip


def test_what_the_step_had_is_saved_before_it(tmp_path: Path) -> None:
    module = Faulty("sqrt")
    data = loader()
    kept: dict[str, Any] = {}

    class Noting(unstuck.Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx == module.bad:
                kept["weights"] = {name: value.clone() for name, value in module.state_dict().items()}
                kept["optimizer"] = trainer.optimizers[0].state_dict()["state"][0]["exp_avg"].clone()
                kept["batch"] = batch[0].clone()
                kept["random"] = torch.get_rng_state()

    finding(module, tmp_path, data, callbacks=[Noting()])
    (folder,) = (tmp_path / "unstuck-out").glob("*/incident-0")
    saved = torch.load(folder / "tensors.pt", weights_only=True)
    (weights,) = saved["models"].values()
    for name, value in kept["weights"].items():
        if "running" not in name and "tracked" not in name:  # the step's own forward has moved these
            assert torch.equal(weights[name], value), name
    assert torch.equal(saved["optimizers"][0]["state"][0]["exp_avg"], kept["optimizer"])
    assert torch.equal(saved["batches"]["draw 5"][0], kept["batch"])
    assert torch.equal(saved["random_state"]["torch_cpu"], kept["random"])
    notes = json.loads((folder / "incident.json").read_text())["incident"]
    assert (notes["step"], notes["batch"], notes["extra"]) == (5, 5, {"epoch": 0, "global step": 5})
    assert notes["indices"] == list(range(40, 48))


def test_an_end_at_the_incident_skips_the_validation_and_fails_the_process(tmp_path: Path) -> None:
    calls: list[str] = []

    class Validated(Faulty):
        def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
            calls.append("validation")

        def teardown(self, stage: str) -> None:
            calls.append("teardown")

    torch.manual_seed(1)
    with pytest.raises(NonFiniteError):
        trainer(tmp_path, detect_anomaly="replay", num_sanity_val_steps=0, val_check_interval=6).fit(
            Validated("sqrt"), loader(), loader(1)
        )
    assert calls == ["teardown"]
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.trainer.test_nonfinite import *
trainer(Path({str(tmp_path)!r}), detect_anomaly="replay").fit(Faulty("log"), loader())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "NonFiniteError: numerics.nonfinite-forward" in done.stderr


class Several(unstuck.LightningModule):
    """Manual optimisation: several tensors are differentiated for one step, one of them no scalar."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.which = which

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        bad = batch_idx == 5
        y = self.net(batch[0]).squeeze(1)
        first = (y * (0.0 if bad and self.which == "first" else 1.0)).square().sqrt().mean()  # FIRST
        self.manual_backward(first, retain_graph=True)
        second = torch.log(y.square() * (0.0 if bad and self.which == "second" else 1.0) + 0.0).sum()  # SECOND
        self.manual_backward(second * 1e-3, retain_graph=True)
        rows = torch.log(y.square() * (0.0 if bad and self.which == "rows" else 1.0))  # ROWS
        self.manual_backward(rows, torch.full_like(rows, 1e-3))
        optimizer.step()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


@pytest.mark.parametrize("which", ["first", "second", "rows"])
def test_every_tensor_of_manual_backward_is_looked_at(which: str, tmp_path: Path) -> None:
    found = finding(Several(which), tmp_path)
    assert (found.where.line, found.where.step, found.where.batch) == (own_line(which.upper()), 5, 5)
    assert found.where.op == ("sqrt" if which == "first" else "log")
    assert fit(Several("none"), tmp_path) == []


def test_an_average_of_the_weights_beside_the_model_is_left_alone(tmp_path: Path) -> None:
    class Averaged(Faulty):
        def __init__(self, fault: str) -> None:
            super().__init__(fault)
            self.average = AveragedModel(self.net, multi_avg_fn=get_ema_multi_avg_fn(0.9))

        def on_train_batch_end(self, *_: Any) -> None:
            self.average.update_parameters(self.net)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.net.parameters(), lr=1e-3)

    modules = []
    for watches in (True, False):
        torch.manual_seed(7)
        modules.append(Averaged("sqrt"))
        with pytest.MonkeyPatch.context() as patch:
            if not watches:
                patch.setattr("unstuck.trainer.entry.watched", contextlib.nullcontext)
            assert len(fit(modules[-1], tmp_path)) == watches
    for left, right in zip(modules[0].state_dict().values(), modules[1].state_dict().values(), strict=True):
        assert torch.equal(left.nan_to_num(), right.nan_to_num())
    found = finding(Averaged("sqrt"), tmp_path)
    assert (found.where.line, found.where.step) == (line_of("SQRT"), 5)


class _Reads(TorchDispatchMode):
    """Counts reads of single numbers, for each of which a device would have to be waited."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_many_small_tensors_are_looked_at_by_one_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Many(unstuck.LightningModule):
        def __init__(self, layers: int) -> None:
            super().__init__()
            self.net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            return self.net(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    extra = {}
    for layers in (4, 100):
        reads = []
        for watches in (True, False):
            with monkeypatch.context() as patch, _Reads() as counting:
                if not watches:
                    patch.setattr("unstuck.trainer.entry.watched", contextlib.nullcontext)
                assert fit(Many(layers), tmp_path, loader(30)) == []
            reads.append(counting.count)
        extra[layers] = reads[0] - reads[1]
    # loss, last gradient; gradients, weights and state now and then
    assert 30 <= extra[4] <= 5 * 30 and extra[100] <= 5 * 30


class Root(nn.Module):
    """A norm in the middle of a model; it is 0 where its scale is."""

    scale = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return torch.sqrt(x.square() * self.scale)  # ROOT


class Log(Root):
    """The same, and infinite there in the forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log((x.square() + 1.0) * self.scale)  # LOG OF IT


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("kind", [Root, Log])
def test_the_module_is_named_by_its_path_below_the_model(kind: type[Root], compiles: bool, tmp_path: Path) -> None:
    class Deep(unstuck.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.middle = [kind()]
            body: Any = nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.Tanh(), self.middle[0]), nn.Linear(6, 1))
            self.body = torch.compile(body, backend="eager") if compiles else body

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
            self.middle[0].scale = 0.0 if batch_idx == 5 else 1.0
            return self.body(batch[0]).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    found = finding(Deep(), tmp_path)
    assert (found.where.module, found.where.step, found.where.batch, found.where.sample) == ("body.1.1", 5, 5, 0)
    assert found.where.op == ("log" if kind is Log else "sqrt")
    assert found.where.line == own_line("LOG OF IT" if kind is Log else "ROOT")


def test_watching_keeps_no_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Large(unstuck.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
            self.most = 0

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
            return self.net(batch[0]).pow(2).mean()

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            found = [item for item in gc.get_objects() if type(item) in (Tensor, nn.Parameter) and id(item) not in old]
            self.most = max(self.most, sum({item.data_ptr(): item.nbytes for item in found}.values()))

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-4)

    most = []
    for watches in (True, False):
        gc.collect()
        old = {id(item) for item in gc.get_objects() if type(item) in (Tensor, nn.Parameter)}
        module = Large()
        data = DataLoader(TensorDataset(torch.randn(64 * 20, 256)), batch_size=64)
        with monkeypatch.context() as patch:
            if not watches:
                patch.setattr("unstuck.trainer.entry.watched", contextlib.nullcontext)
            assert fit(module, tmp_path, data) == []
        most.append(module.most)
        del module, data
    assert 0 < most[0] <= 1.05 * most[1]
