"""The module's own methods, the Trainer's properties, and what importing them costs."""

from __future__ import annotations

import copy
import csv
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

import unstuck
from tests.trainer.side_by_side import OURS, QUIET, THEIRS, Library, base_module, loader
from unstuck.trainer.data.combined import CombinedLoader

pytestmark = pytest.mark.filterwarnings("ignore:There is .*validation_step")

Base: Any = base_module(OURS)


class Picklable(unstuck.LightningModule):
    def __init__(self, width: int = 4, rate: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(8, width)
        self.head = nn.Linear(width, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return nn.functional.mse_loss(self.head(self.layer(batch[0])), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.hparams.rate)


def trainer(**keywords: Any) -> Any:
    return unstuck.Trainer(**{**QUIET, "max_epochs": 1, **keywords})


def test_freeze_and_unfreeze() -> None:
    module = Picklable()
    module.freeze()
    assert not any(p.requires_grad for p in module.parameters())
    assert not module.training
    module.unfreeze()
    assert all(p.requires_grad for p in module.parameters())
    assert module.training


def test_a_module_without_trainer() -> None:
    module = Picklable()
    with pytest.raises(RuntimeError, match="not attached"):
        _ = module.trainer
    assert (module.current_epoch, module.global_step, module.logger, module.loggers) == (0, 0, None, [])
    with pytest.warns(UserWarning, match="attached"):
        module.log("x", 1.0)
    assert module.hparams.width == 4


def test_device_and_dtype_follow_the_module() -> None:
    module = Picklable()
    assert (module.device, module.dtype) == (torch.device("cpu"), torch.float32)
    module.double()
    assert module.dtype == torch.float64
    module.to("meta")
    assert module.device.type == "meta"
    outer = nn.Sequential(Picklable())
    outer.half()
    assert outer[0].dtype == torch.float16
    assert not module.on_gpu


def test_a_trained_module_can_be_copied_and_pickled() -> None:
    module = Picklable()
    trainer().fit(module, loader())
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin.layer.weight, module.layer.weight)
        assert twin._trainer is None
        trainer().fit(twin, loader())


def test_wrapped_optimisers_pass_for_their_own_kind() -> None:
    class Manual(Base):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            wrapped, plain = self.optimizers(), self.optimizers(use_pl_optimizer=False)
            assert isinstance(wrapped, torch.optim.Adam)
            assert wrapped.optimizer is plain
            assert wrapped.param_groups is plain.param_groups
            wrapped.param_groups[0]["lr"] = 0.5
            assert plain.param_groups[0]["lr"] == 0.5
            state = wrapped.state_dict()
            wrapped.load_state_dict(state)
            assert plain.state_dict()["param_groups"] == state["param_groups"]
            torch.optim.lr_scheduler.StepLR(wrapped, 1)

    trainer(max_steps=1).fit(Manual(), loader())


def test_properties_during_and_after_a_fit() -> None:
    seen: dict[str, Any] = {}

    class Watching(Base):
        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            t = self.trainer
            seen[f"{self.current_epoch} {batch_idx}"] = (t.global_step, t.is_last_batch, t.training, str(t.state.stage))

        def on_validation_batch_start(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            t = self.trainer
            seen["validation"] = (t.validating, t.evaluating, t.training, t.state.fn == "fit")

    module, t = Watching(), trainer(max_epochs=2)
    data = loader()
    t.fit(module, data, loader(12, shuffle=False))
    assert seen["0 0"] == (1, False, True, "train")
    assert seen["1 5"] == (12, True, True, "train")
    assert seen["validation"] == (True, True, False, True)
    assert (t.num_training_batches, t.num_val_batches, t.estimated_stepping_batches) == (6, [3], 12)
    assert t.train_dataloader is data
    assert isinstance(t.optimizers[0], torch.optim.Adam)
    assert t.lr_scheduler_configs == []
    assert t.lightning_module is module
    assert t.state.finished
    assert not t.interrupted
    assert t.callback_metrics.keys() == {"loss", "loss_step", "loss_epoch", "val_loss"}
    assert t.progress_bar_metrics.keys() == {"loss_step", "loss_epoch"}
    assert t.log_dir == t.default_root_dir
    assert t.world_size == 1
    assert t.is_global_zero
    assert t.strategy.root_device == torch.device("cpu")


def test_combined_loaders_are_shown_as_they_were_given() -> None:
    class Summing(Base):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return sum(super(Summing, self).training_step(part, batch_idx) for part in batch.values())

    t = trainer()
    loaders = {"a": loader(), "b": loader(8)}
    t.fit(Summing(), CombinedLoader(loaders, "min_size"))
    assert t.num_training_batches == 2
    assert t.train_dataloader == loaders


@pytest.mark.filterwarnings("ignore")
def test_a_csv_logger_gets_the_same_rows(tmp_path: Any) -> None:
    def rows(library: Library) -> list[dict[str, str]]:
        if library is OURS:
            from unstuck.loggers import CSVLogger
        else:
            from lightning.pytorch.loggers import CSVLogger
        torch.manual_seed(0)
        module = base_module(library)()
        logger = CSVLogger(tmp_path / library.name)
        t = library.Trainer(**{**QUIET, "max_epochs": 3, "logger": logger, "log_every_n_steps": 2})
        t.fit(module, loader(), loader(12, shuffle=False))
        t.test(module, loader(12, shuffle=False), verbose=False)
        with open(f"{t.log_dir}/metrics.csv") as file:
            return list(csv.DictReader(file))

    ours, theirs = rows(OURS), rows(THEIRS)
    assert ours == theirs
    assert len(ours) > 9


def test_importing_costs_little_over_torch() -> None:
    program = (
        "import gc, sys, time, torch\n"
        "gc.disable()\n"  # a collection of all that torch has made falls into this time or not, by chance
        "start = time.process_time()\n"
        "import unstuck\n"
        "assert 'unstuck.trainer' not in sys.modules\n"
        "unstuck.Trainer, unstuck.LightningModule, unstuck.Callback\n"
        "assert 'lightning' not in sys.modules and 'torchmetrics' not in sys.modules\n"
        "print(time.process_time() - start)\n"
    )
    seconds = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout) for _ in range(3)
    ]
    assert min(seconds) < 0.2


def test_unknown_names_of_the_package() -> None:
    with pytest.raises(AttributeError, match="Fitter"):
        _ = unstuck.Fitter
    assert {"Trainer", "LightningModule", "seed_everything"} <= set(dir(unstuck))
