"""What goes wrong around a loss scaler, in a Trainer: told by the Trainer itself and by a session around it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import unstuck
from unstuck.errors import NonFiniteError
from unstuck.findings import Finding
from unstuck.session.incident_desk import IncidentDesk

ORDER, STUCK = "numerics.amp-order", "numerics.scaler-stuck"


class Net(unstuck.LightningModule):
    """A classifier; subclasses say how it is stepped."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
        self.automatic_optimization = False
        self.own = torch.amp.GradScaler("cpu")

    def loss(self, batch: list[Tensor]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Clipping(Net):
    """The Trainer scales; torch's own function clips what it has not unscaled yet."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)  # CLIPPED BY HAND
        optimizer.step()


class Unscaling(Net):
    """The same as it should be."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        self.clip_gradients(optimizer, 1.0)
        optimizer.step()


class OwnScaler(Net):
    """A scaler of the module's own, which clips before it is asked to unscale."""

    unscales = False

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.own.scale(self.loss(batch)))
        if self.unscales:
            self.own.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)  # OWN SCALER
        self.own.step(optimizer)
        self.own.update()


class OwnRightly(OwnScaler):
    """The same as it should be."""

    unscales = True


class Past(Net):
    """Steps past its own scaler, and so 65536 times too far."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.own.scale(self.loss(batch)))
        optimizer.step()  # PAST


class InHook(Net):
    """Clips in a hook of automatic optimisation that comes before the gradients are unscaled."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = True

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.loss(batch)

    def on_after_backward(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)  # IN A HOOK


class InLaterHook(InHook):
    """The same as it should be."""

    def on_after_backward(self) -> None:
        pass

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(index for index, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def loader(batches: int = 10) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(8 * batches, 4, generator=generator), torch.randint(0, 3, (8 * batches,), generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=8)


def fit(module: Net, folder: Path, batches: int = 10, **more: Any) -> list[str]:
    """Fits; returns the warnings that tell of arithmetic."""
    scales = isinstance(module, (Clipping, Unscaling, InHook, Stuck))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unstuck.Trainer(
            accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=folder, precision="16-mixed" if scales else "32-true", **more,
        ).fit(module, loader(batches))  # fmt: skip
    return [str(item.message) for item in caught if "numerics" in str(item.message)]


WRONG = {"CLIPPED BY HAND": Clipping, "OWN SCALER": OwnScaler, "PAST": Past, "IN A HOOK": InHook}


@pytest.mark.parametrize("mark", WRONG)
def test_a_session_names_the_line_that_takes_scaled_gradients(mark: str, tmp_path: Path) -> None:
    with unstuck.watch(on_nonfinite="continue") as watch:
        told = fit(WRONG[mark](), tmp_path)
    first = watch.findings[0]
    assert (first.code, first.where.file, first.where.line, first.where.step) == (ORDER, __file__, line_of(mark), 0)
    assert first.evidence["scale"] == 65536.0
    assert not [text for text in told if "at " in text], "the session reports"


@pytest.mark.parametrize("mark", ["CLIPPED BY HAND", "OWN SCALER", "PAST"])
def test_the_trainer_names_it_in_manual_optimisation(mark: str, tmp_path: Path) -> None:
    (text,) = [item for item in fit(WRONG[mark](), tmp_path) if ORDER in item]
    assert f"test_scaling_cases.py:{line_of(mark)}" in text and "65536" in text
    assert fit(WRONG[mark](), tmp_path, detect_anomaly="replay" if mark != "PAST" else False), "it ends no fit"


def test_a_hook_that_comes_too_early_is_told_at_the_start(tmp_path: Path) -> None:
    (text,) = fit(InHook(), tmp_path)
    assert ORDER in text and "on_after_backward" in text and "clip_grad_norm_" in text


@pytest.mark.parametrize("kind", [Unscaling, OwnRightly, InLaterHook])
@pytest.mark.parametrize("watched", [False, True])
def test_the_right_order_is_silent(kind: type[Net], watched: bool, tmp_path: Path) -> None:
    if not watched:
        assert fit(kind(), tmp_path) == []
        return
    with unstuck.watch(on_nonfinite="continue") as watch:
        fit(kind(), tmp_path)
    assert not [item.code for item in watch.findings if item.code.startswith("numerics")]


class Stuck(Net):
    """A derivative that is infinite whatever the scale."""

    def __init__(self, manual: bool, repeats: bool) -> None:
        super().__init__()
        self.automatic_optimization = not manual
        self.repeats = repeats

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        z = self.net(batch[0]).float()
        loss = (z - z.detach()).pow(2).sum(1).sqrt().mean() + z.mean()  # STUCK
        if not self.repeats:
            # no step is like another, so none can be run again
            loss = loss * (1.0 + int.from_bytes(os.urandom(3), "big") / 2**24)
        if not self.automatic_optimization:
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss


@pytest.mark.parametrize("manual", [False, True])
def test_what_a_scaler_can_t_help_is_named_after_eight_skipped_steps(manual: bool, tmp_path: Path) -> None:
    (text,) = fit(Stuck(manual, repeats=True), tmp_path, 40)
    parts = (f"test_scaling_cases.py:{line_of('STUCK')}", "op sqrt", "nonfinite-backward", "batch 7", "global step 7")
    assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize("manual", [False, True])
def test_a_scaler_that_goes_on_skipping_is_told_where_nothing_can_be_run_again(manual: bool, tmp_path: Path) -> None:
    (text,) = fit(Stuck(manual, repeats=False), tmp_path, 40)
    assert STUCK in text and "gradients aren't finite at any scale" in text
    with pytest.raises(NonFiniteError) as caught:
        fit(Stuck(manual, repeats=False), tmp_path, 40, detect_anomaly="replay")
    assert isinstance(caught.value.finding, Finding)
    assert caught.value.finding.code == STUCK and caught.value.finding.evidence["first scale"] == 65536.0


def test_a_session_tells_the_same_of_a_stuck_scaler(tmp_path: Path) -> None:
    with unstuck.watch(on_nonfinite="continue") as watch:
        fit(Stuck(False, repeats=False), tmp_path, 40)
    (found,) = [item for item in watch.findings if item.code.startswith("numerics")]
    assert (found.code, found.where.step) == (STUCK, 0)


class Flushed(InLaterHook):
    """float16 without a loss scaler: gradients of a small loss are too small for it."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return self.net(batch[0]).pow(2).mean() * self.factor


def fit_unscaled(module: Net, folder: Path, **more: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unstuck.Trainer(
            accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=folder, **more,
        ).fit(module, loader(40))  # fmt: skip
    return [str(item.message) for item in caught if "numerics" in str(item.message)]


def test_gradients_that_float16_flushes_to_zero_are_told(tmp_path: Path) -> None:
    (text,) = fit_unscaled(Flushed(1e-7), tmp_path, detect_anomaly="replay")
    assert "numerics.low-precision-overflow" in text and "are zero in float16" in text and "GradScaler" in text
    assert fit_unscaled(Flushed(1.0), tmp_path) == []


def test_gradients_that_are_zero_in_float32_too_are_no_fault_of_a_format(tmp_path: Path) -> None:
    class Sparse(Flushed):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            with torch.autocast("cpu", dtype=torch.float16):
                return self.net(batch[0])[:, 0].pow(2).mean() * 0.0 + self.net[2].bias[0] ** 2

    assert fit_unscaled(Sparse(1.0), tmp_path) == []


def test_only_steps_of_float16_are_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wide(Flushed):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            return self.net(batch[0])[:, 0].relu().pow(2).mean() * 0.0 + self.net[2].bias[0] ** 2

    examined: list[Any] = []
    monkeypatch.setattr(IncidentDesk, "examine_zeros", lambda *given: examined.append(given))
    assert fit_unscaled(Wide(1.0), tmp_path) == [] and not examined
    assert fit_unscaled(Flushed(1e-7), tmp_path) == [] and len(examined) == 2


@pytest.mark.parametrize("factor", [1e-7, 1.0])
def test_a_session_finds_gradients_that_float16_flushes_to_zero(factor: float, tmp_path: Path) -> None:
    with unstuck.watch(on_nonfinite="continue") as watch:
        assert fit_unscaled(Flushed(factor), tmp_path) == []
    found = [item for item in watch.findings if item.code == "numerics.low-precision-overflow"]
    assert [item.evidence["flushed to zero"] > 0.9 for item in found] == ([True] if factor < 1.0 else [])
