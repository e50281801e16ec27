"""Number formats beside the ones that are compared with Lightning bit for bit."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, base_module, loader
from unstuck.errors import MisconfigurationException
from unstuck.trainer.checkpoints.files import load_file
from unstuck.trainer.precision import MixedPrecision, Precision, select_precision

# The module can validate; most of these fits don't.
pytestmark = pytest.mark.filterwarnings("ignore:There is .*validation_step")

Base: Any = base_module(OURS)


def fit(module: Any, **keywords: Any) -> Any:
    trainer = unstuck.Trainer(**{**QUIET, "max_epochs": 1, **keywords})
    trainer.fit(module, loader())
    return trainer


def small_scale() -> MixedPrecision:
    """float16 with a scale that doesn't overflow at the start."""
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=64.0))


def test_16_mixed_on_the_cpu_is_float16_with_a_scaler() -> None:
    seen = []

    class Watching(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            seen.append(self.net(batch[0]).dtype)
            return super().training_step(batch, batch_idx)

    trainer = fit(Watching(), precision="16-mixed")
    assert set(seen) == {torch.float16}
    assert isinstance(trainer.scaler, torch.amp.GradScaler)
    assert trainer.precision == "16-mixed"


def test_hooks_and_clipping_see_unscaled_gradients() -> None:
    norms: dict[str, list[Tensor]] = {"16-mixed": [], "32-true": []}

    class Watching(Base):
        def on_before_optimizer_step(self, optimizer: Any) -> None:
            norms[self.trainer.precision].append(torch.stack([p.grad.norm() for p in self.parameters()]).norm())

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            assert torch.stack([p.grad.norm() for p in self.parameters()]).norm() <= 0.0101

    for precision in norms:
        torch.manual_seed(0)
        format_ = {"precision": precision} if precision == "32-true" else {"plugins": small_scale()}
        fit(Watching(), gradient_clip_val=0.01, **format_)
    assert torch.allclose(norms["16-mixed"][0], norms["32-true"][0], rtol=0.05)


def test_a_step_that_the_scaler_drops_steps_no_scheduler() -> None:
    class Overflowing(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            return loss * float("inf") if batch_idx in (1, 2) else loss

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    module = Overflowing()
    trainer = fit(module, plugins=small_scale())
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == 4
    assert all(p.isfinite().all() for p in module.parameters())


def test_the_scaler_skips_a_none_step() -> None:
    class Sometimes(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            return unstuck.SKIP_STEP if batch_idx % 2 else loss

    assert fit(Sometimes(), precision="16-mixed").global_step == 6


def test_manual_optimisation_with_a_scaler() -> None:
    class Manual(Base):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            optimizer.step()

    module = Manual()
    before = [p.clone() for p in module.parameters()]
    assert fit(module, precision="16-mixed").global_step == 6
    assert not any(torch.equal(own, other) for own, other in zip(module.parameters(), before, strict=True))


def test_lbfgs_and_fused_optimisers_conflict_with_a_scaler() -> None:
    class Lbfgs(Base):
        def configure_optimizers(self) -> Any:
            return torch.optim.LBFGS(self.parameters())

    class Fused(Base):
        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), fused=True)

    with pytest.raises(MisconfigurationException, match="LBFGS"):
        fit(Lbfgs(), precision="16-mixed")
    with pytest.raises(RuntimeError, match="fused"):
        fit(Fused(), precision="16-mixed", gradient_clip_val=1.0)
    fit(Fused(), precision="bf16-mixed", gradient_clip_val=1.0)


@pytest.mark.parametrize(
    ("given", "name"), [(32, "32-true"), ("64", "64-true"), (None, "32-true"), ("BF16-true", "bf16-true")]
)
def test_names_and_aliases(given: Any, name: str) -> None:
    assert select_precision(given, "cpu").precision == name


@pytest.mark.parametrize(("given", "name"), [(16, "16-mixed"), ("bf16", "bf16-mixed")])
def test_short_names_of_16_bits_are_told_to_be_mixed(given: Any, name: str) -> None:
    with pytest.warns(UserWarning, match=name):
        assert select_precision(given, "cpu").precision == name


def test_the_line_that_makes_the_trainer_is_shown_with_it() -> None:
    line = sys._getframe().f_lineno + 2
    with pytest.warns(UserWarning, match="16-mixed") as told:
        unstuck.Trainer(precision=16, accelerator="cpu", logger=False, enable_checkpointing=False)
    assert (told[0].filename, told[0].lineno) == (__file__, line)


def test_whole_formats_cast_module_batches_and_new_tensors(tmp_path: Path) -> None:
    seen = []

    class Watching(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            seen.append((batch[0].dtype, torch.zeros(1).dtype, self.net[0].weight.dtype, self.dtype))
            return super().training_step(batch, batch_idx)

    for precision, dtype in (("64-true", torch.float64), ("bf16-true", torch.bfloat16), ("16-true", torch.float16)):
        seen.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit(Watching(), precision=precision, max_steps=1, max_epochs=-1, default_root_dir=tmp_path)
        assert set(seen) == {(dtype, dtype, dtype, dtype)}
    assert torch.get_default_dtype() == torch.float32


def test_a_precision_of_the_user_s_own() -> None:
    class Doubling(Precision):
        precision = "doubled"

        def scale(self, loss: Tensor) -> Tensor:
            return 2 * loss

    trainer = fit(Base(), plugins=[Doubling()])
    assert trainer.precision == "doubled"
    with pytest.raises(MisconfigurationException, match="precision"):
        unstuck.Trainer(**QUIET, max_epochs=1, precision="32-true", plugins=Doubling())


def test_the_scaler_s_state_is_kept() -> None:
    first, second = MixedPrecision("16-mixed", "cpu"), MixedPrecision("16-mixed", "cpu")
    assert first.scale(torch.ones(1, requires_grad=True).sum()) == first.scaler.get_scale()
    first.scaler.update(4.0)
    second.load_state_dict(first.state_dict())
    assert second.scaler.get_scale() == first.scaler.get_scale()
    assert MixedPrecision("bf16-mixed", "cpu").state_dict() == {}
    with pytest.raises(MisconfigurationException, match="scaler"):
        MixedPrecision("bf16-mixed", "cpu", torch.amp.GradScaler("cpu"))


def test_a_checkpoint_holds_the_scaler_s_state_under_lightning_s_key(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    trainer = fit(Base(), precision="16-mixed")
    trainer.scaler.update(512.0)
    trainer.save_checkpoint(path)
    state = load_file(path)["MixedPrecision"]
    assert state == trainer.scaler.state_dict() and state["scale"] == 512.0
    again = unstuck.Trainer(**QUIET, max_epochs=2, precision="16-mixed")
    again.fit(Base(), loader(), ckpt_path=path)
    assert again.scaler.get_scale() == 512.0
    assert again.scaler.state_dict()["_growth_tracker"] == state["_growth_tracker"] + 6


def test_configure_model_makes_layers_in_the_format() -> None:
    class Late(Base):
        def __init__(self) -> None:
            super().__init__()
            self.net = None

        def configure_model(self) -> None:
            if self.net is None:
                self.net = nn.Linear(8, 1)
                assert self.net.weight.dtype == torch.float64

    fit(Late(), precision="64-true")
