"""All hooks, on callbacks and module, in Lightning's order with Lightning's arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer.side_by_side import OURS, QUIET, THEIRS, Library, base_module, loader, make_net, record_hooks

pytestmark = pytest.mark.filterwarnings("ignore")


def events(
    library: Library,
    keywords: dict[str, Any],
    method: str = "fit",
    manual: bool = False,
    loaders: int = 1,
    datamodule: bool = False,
) -> list[str]:
    log: list[str] = []
    decorate, callback = record_hooks(library, log)

    class Scheduled(base_module(library)):  # type: ignore[misc]
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
            super().validation_step(batch, batch_idx)

    class Manual(Scheduled):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(nn.functional.mse_loss(self.net(batch[0]), batch[1]))
            optimizer.step()

    class Loaders(Manual if manual else Scheduled):  # type: ignore[misc]
        def train_dataloader(self) -> Any:
            return loader(12)

        def val_dataloader(self) -> Any:
            return [loader(8, shuffle=False) for _ in range(loaders)] if loaders > 1 else loader(8, shuffle=False)

        test_dataloader = predict_dataloader = lambda self: loader(8, shuffle=False)

    class Data(library.LightningDataModule):  # type: ignore[name-defined, misc]
        def train_dataloader(self) -> Any:
            return loader(12)

        def val_dataloader(self) -> Any:
            return loader(8, shuffle=False)

    torch.manual_seed(0)
    module = decorate(Loaders)()
    trainer = library.Trainer(**{**QUIET, "callbacks": [callback()], "max_epochs": 2, **keywords})
    # the verdict runs a copy of the module once more, which has no part in the order
    trainer.callbacks = [item for item in trainer.callbacks if type(item).__name__ != "OverfitVerdict"]
    extra = {"datamodule": decorate(Data, "data")()} if datamodule else {}
    getattr(trainer, method)(module, **extra)
    return [event.replace("closure", "step") for event in log]


CASES: dict[str, dict[str, Any]] = {
    "plain": {"keywords": {}},
    "sanity check": {"keywords": {"num_sanity_val_steps": 1}},
    "accumulation and clipping": {"keywords": {"accumulate_grad_batches": 2, "gradient_clip_val": 1.0}},
    "validation within the epoch": {"keywords": {"val_check_interval": 1, "limit_val_batches": 1}},
    "validation every second epoch": {"keywords": {"check_val_every_n_epoch": 2}},
    "no validation": {"keywords": {"limit_val_batches": 0}},
    "maximum of steps": {"keywords": {"max_steps": 4}},
    "maximum of steps reached in the middle": {"keywords": {"max_steps": 2, "max_epochs": -1}},
    "two validation loaders": {"keywords": {}, "loaders": 2},
    "data module": {"keywords": {}, "datamodule": True},
    "manual optimisation": {"keywords": {}, "manual": True},
    "reloading": {"keywords": {"reload_dataloaders_every_n_epochs": 1}},
    "reloading with sanity check": {"keywords": {"reload_dataloaders_every_n_epochs": 1, "num_sanity_val_steps": 2}},
    "dry run": {"keywords": {"fast_dev_run": 2}},
    "overfitting": {"keywords": {"overfit_batches": 1}},
    "validate": {"keywords": {}, "method": "validate"},
    "test": {"keywords": {}, "method": "test"},
    "predict": {"keywords": {}, "method": "predict"},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_hooks_come_in_the_same_order_with_the_same_arguments(case: dict[str, Any]) -> None:
    ours, theirs = events(OURS, **case), events(THEIRS, **case)
    assert ours == theirs
    assert len(ours) > 20


def exceptional(library: Library) -> list[str]:
    log: list[str] = []
    decorate, callback = record_hooks(library, log)

    class Broken(base_module(library)):  # type: ignore[misc]
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 1:
                raise ValueError("broken")
            return super().training_step(batch, batch_idx)

    trainer = library.Trainer(**{**QUIET, "callbacks": [callback()], "max_epochs": 1})
    with pytest.raises(ValueError, match="broken"):
        trainer.fit(decorate(Broken)(), loader(12))
    assert trainer.interrupted
    return log


def test_an_exception_ends_with_the_same_hooks() -> None:
    assert exceptional(OURS) == exceptional(THEIRS)


def test_skipping_the_rest_of_an_epoch_calls_the_same_hooks() -> None:
    def run(library: Library) -> list[str]:
        log: list[str] = []
        decorate, callback = record_hooks(library, log)

        class Skipping(base_module(library)):  # type: ignore[misc]
            def on_train_batch_start(self, batch: Any, batch_idx: int) -> Any:
                return -1 if batch_idx == 1 else None

        trainer = library.Trainer(**{**QUIET, "callbacks": [callback()], "max_epochs": 2})
        trainer.fit(decorate(Skipping)(), loader(12), loader(8, shuffle=False))
        return log

    assert run(OURS) == run(THEIRS)


def test_hooks_that_nobody_wrote_are_not_called() -> None:
    from unstuck.trainer.hooks import bind_hook

    trainer = OURS.Trainer(**QUIET, max_epochs=1)
    module = base_module(OURS)()
    trainer.fit(module, loader(8))
    assert bind_hook(trainer, "on_train_batch_start") is None
    module.on_train_batch_start = lambda batch, batch_idx: -1
    hook = bind_hook(trainer, "on_train_batch_start")
    assert hook is not None
    assert hook(None, 0) == -1
    assert make_net() is not None
