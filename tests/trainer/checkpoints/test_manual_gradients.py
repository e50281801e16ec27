"""Gradients that a module in manual optimisation has collected and not used yet."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unstuck
from tests.trainer.checkpoints.training_with_state import BATCHES, Regression, SaveAt, Stop, assert_same_end, fit
from unstuck.callbacks import ModelCheckpoint


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="unstuck")


class Collecting(Regression):
    """Two optimisers; the second steps every third batch, so also with gradients of the epoch before."""

    set_to_none = True
    fails_at: tuple[int, str] = (-1, "")

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 1))
        self.slow = nn.Linear(4, 1)
        self.automatic_optimization = False
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        x, y = batch
        now = int(self.batches)
        fast, slow = self.optimizers()
        self._may_fail(now, "start")
        loss = nn.functional.mse_loss(self.net(x) + self.slow(x), y)
        loss.backward()
        self._may_fail(now, "collected")
        if now % 3 == 2:
            slow.step()
            slow.zero_grad(set_to_none=self.set_to_none)
        if now % 2:
            fast.step()
            fast.zero_grad(set_to_none=self.set_to_none)
        self.batches += 1

    def _may_fail(self, now: int, where: str) -> None:
        if self.fails_at == (now, where):
            raise Stop

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.SGD(self.net.parameters(), lr=0.05),
            torch.optim.SGD(self.slow.parameters(), lr=0.05, momentum=0.9),
        ]


class Zeroing(Collecting):
    """Its gradients of zero aren't none: the optimiser's momentum moves on with them."""

    set_to_none = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        super().training_step(batch, batch_idx)
        self.optimizers()[1].step()


@pytest.mark.parametrize("make", [Collecting, Zeroing])
def test_saved_after_any_batch_and_epoch(make: Any, tmp_path: Path) -> None:
    hooks = [("on_train_batch_end", at) for at in range(1, 2 * BATCHES)] + [("on_train_epoch_end", 1)]
    through = fit(make=make, callbacks=[SaveAt(hook, at, tmp_path / f"{hook}-{at}.ckpt") for hook, at in hooks])
    paths = sorted(tmp_path.glob("*.ckpt"))
    assert len(paths) == 2 * BATCHES
    for path in paths:
        assert_same_end(fit(make=make, ckpt_path=path, seed=9), through)


@pytest.mark.parametrize("where", ["start", "collected"])
@pytest.mark.parametrize("at", [1, 4, 5, 7, 8])
def test_step_that_fails_is_done_again_with_what_was_collected_before(at: int, where: str, tmp_path: Path) -> None:
    def saver() -> Any:
        return ModelCheckpoint(tmp_path, save_on_exception=True, every_n_epochs=0)

    class Failing(Collecting):
        fails_at = (at, where)

    through = fit(make=Collecting)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Stop):
            fit(make=Failing, callbacks=[saver()])
        paths = list(tmp_path.glob("*.ckpt"))
        if at == 1:
            assert paths == [], "no step was made yet"
            return
        assert_same_end(fit(make=Collecting, ckpt_path=paths[0], seed=9, callbacks=[saver()]), through)


def test_gradients_of_zero_take_no_room(tmp_path: Path) -> None:
    class Wide(unstuck.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 10000)
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
            optimizer = self.optimizers()
            self.manual_backward(self.net(batch[0]).mean())
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    path = tmp_path / "x.ckpt"
    fit(make=Wide, validates=False, callbacks=[SaveAt("on_train_batch_end", 2, path)])
    gradients = torch.load(path, weights_only=True)["unstuck"]["gradients"]
    assert gradients["net.weight"].shape == (10000, 4) and not gradients["net.weight"].any()
    assert path.stat().st_size < 1.5 * 4 * 50000
    _, resumed = fit(make=Wide, validates=False, ckpt_path=path)
    assert all(parameter.grad is not None and parameter.grad.is_contiguous() for parameter in resumed.parameters())
