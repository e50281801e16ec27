"""Modules, data modules and callbacks of the real Lightning run under our Trainer as they are."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch import callbacks
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, Timer
from torch import nn

from tests.trainer.side_by_side import OURS, QUIET, THEIRS, assert_same, base_module, loader, run
from unstuck.errors import MisconfigurationException

pytestmark = pytest.mark.filterwarnings("ignore")


def make_real(_: Any) -> Any:
    return base_module(THEIRS)()


def validation() -> Any:
    return loader(12, shuffle=False)


@pytest.mark.parametrize(
    "keywords",
    [
        {},
        {"accumulate_grad_batches": 2, "gradient_clip_val": 0.05},
        {"precision": "bf16-mixed"},
        {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value", "val_check_interval": 2},
    ],
)
def test_a_real_module_trains_as_under_its_own_trainer(keywords: dict[str, Any]) -> None:
    ours = run(OURS, make_real, val=validation, max_epochs=2, num_sanity_val_steps=2, **keywords)
    theirs = run(THEIRS, make_real, val=validation, max_epochs=2, num_sanity_val_steps=2, **keywords)
    assert_same(ours, theirs)


def test_a_real_module_optimises_manually() -> None:
    class Manual(base_module(THEIRS)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            first, second = self.optimizers()
            for optimizer in (first, second):
                with optimizer.toggle_model():
                    optimizer.zero_grad()
                    loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
                    self.manual_backward(loss)
                    self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
                    optimizer.step()
            self.losses.append(loss.detach().clone())
            self.log_dict({"loss": loss, "twice": 2 * loss}, on_step=True, on_epoch=True)
            self.lr_schedulers().step()

        def configure_optimizers(self) -> Any:
            first = torch.optim.SGD(self.net[0].parameters(), lr=0.1)
            second = torch.optim.Adam(self.net[3].parameters(), lr=0.01)
            return [first, second], [torch.optim.lr_scheduler.ExponentialLR(first, 0.9)]

    assert_same(run(OURS, lambda library: Manual(), max_epochs=2), run(THEIRS, lambda library: Manual(), max_epochs=2))


def test_a_real_module_with_overridden_optimiser_step_and_hyperparameters() -> None:
    class Module(base_module(THEIRS)):  # type: ignore[misc]
        def __init__(self, rate: float = 0.1) -> None:
            super().__init__()
            self.save_hyperparameters()

        def optimizer_step(self, epoch: Any, batch_idx: Any, optimizer: Any, optimizer_closure: Any = None) -> Any:
            for group in optimizer.param_groups:
                group["lr"] = self.hparams.rate / (self.global_step + 1)
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)

        def configure_callbacks(self) -> Any:
            return [EarlyStopping("val_loss", patience=1, min_delta=100.0)]

    ours = run(OURS, lambda library: Module(), val=validation, max_epochs=6)
    assert_same(ours, run(THEIRS, lambda library: Module(), val=validation, max_epochs=6))
    assert ours.epochs == 2


@pytest.mark.parametrize("method", ["validate", "test", "predict"])
def test_a_real_module_is_evaluated(method: str) -> None:
    ours = run(OURS, make_real, train=validation, method=method)
    theirs = run(THEIRS, make_real, train=validation, method=method)
    assert_same(ours, theirs)
    if method == "predict":
        assert all(torch.equal(a, b) for a, b in zip(ours.result, theirs.result, strict=True))
    else:
        assert ours.result == theirs.result


def test_real_callbacks_work_with_the_public_api(tmp_path: Any) -> None:
    from unstuck.loggers import CSVLogger

    class Counting(pl.Callback):
        def __init__(self) -> None:
            self.batches = 0

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.batches += 1
            self.log("seen", float(self.batches))

    counting, timer = Counting(), Timer(duration={"hours": 1})
    several = [counting, timer, LearningRateMonitor(), EarlyStopping("val_loss", patience=0, min_delta=100.0)]
    trainer = OURS.Trainer(
        **{**QUIET, "callbacks": several, "max_epochs": 9, "logger": CSVLogger(tmp_path), "log_every_n_steps": 1}
    )
    trainer.fit(base_module(THEIRS)(), loader(), validation())
    assert trainer.current_epoch == 2
    assert counting.batches == 12
    assert trainer.callback_metrics["seen"] == 12
    assert timer.time_elapsed("train") > 0
    with open(f"{trainer.log_dir}/metrics.csv") as file:
        assert "lr-Adam" in file.readline()


class Unfreezing(callbacks.BaseFinetuning):
    def freeze_before_training(self, pl_module: Any) -> None:
        self.freeze(pl_module.net[0])

    def finetune_function(self, pl_module: Any, epoch: int, optimizer: Any) -> None:
        if epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.net[0], optimizer)


NEW = ["WeightAveraging"]  # of Lightning 2.6


@pytest.mark.parametrize(
    "make",
    [
        lambda: callbacks.GradientAccumulationScheduler({0: 1, 1: 3}),
        lambda: callbacks.StochasticWeightAveraging(1e-2, swa_epoch_start=1),
        lambda: callbacks.ModelPruning("l1_unstructured", amount=0.5),
        lambda: callbacks.EarlyStopping("val_loss", patience=0, min_delta=10.0),
        Unfreezing,
        *(getattr(callbacks, name) for name in NEW if hasattr(callbacks, name)),
    ],
)
def test_a_real_callback_does_the_same_to_a_real_module(make: Any) -> None:
    keywords: dict[str, Any] = {"val": validation, "max_epochs": 4}
    ours = run(OURS, make_real, callbacks=[make()], **keywords)
    assert_same(ours, run(THEIRS, make_real, callbacks=[make()], **keywords))


def test_callbacks_that_need_more_are_refused_by_name() -> None:
    with pytest.raises(MisconfigurationException, match="BatchSizeFinder"):
        run(OURS, make_real, callbacks=[callbacks.BatchSizeFinder()], max_epochs=1)
    with pytest.raises(MisconfigurationException, match=r"GradientAccumulationScheduler.*lightning\.pytorch"):
        run(OURS, callbacks=[callbacks.GradientAccumulationScheduler({0: 2})], max_epochs=1)


def test_a_real_datamodule_provides_the_data() -> None:
    class Data(pl.LightningDataModule):
        def __init__(self) -> None:
            super().__init__()
            self.stages: list[str] = []

        def setup(self, stage: str) -> None:
            self.stages.append(str(stage))

        def teardown(self, stage: str) -> None:
            self.stages.append(f"end of {stage}")

        def train_dataloader(self) -> Any:
            return loader()

        def val_dataloader(self) -> Any:
            return validation()

    data = Data()
    trainer = OURS.Trainer(**QUIET, max_epochs=1)
    trainer.fit(base_module(THEIRS)(), datamodule=data)
    assert data.stages == ["fit", "end of fit"]
    assert data.trainer is trainer


def test_the_module_is_free_again_afterwards() -> None:
    module = base_module(THEIRS)()
    OURS.Trainer(**QUIET, max_epochs=1).fit(module, loader())
    assert module._current_fx_name is None
    pl.Trainer(**QUIET, max_epochs=1).fit(module, loader())
    assert len(module.losses) == 12
