"""The base class of callbacks, and the callback made of functions."""

import inspect
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback as ReferenceCallback
from lightning.pytorch.callbacks import LambdaCallback as ReferenceLambda

from unstuck import LightningModule, Trainer
from unstuck.callbacks import Callback, LambdaCallback

HOOKS = [name for name in vars(ReferenceCallback) if not name.startswith("_") and name != "state_key"]


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_has_lightnings_signature(name: str) -> None:
    expected = inspect.signature(getattr(ReferenceCallback, name)).parameters
    own = inspect.signature(getattr(Callback, name)).parameters
    assert [(p.name, p.default, p.kind) for p in own.values()] == [
        (p.name, p.default, p.kind) for p in expected.values()
    ]


def test_there_are_no_other_hooks() -> None:
    assert {name for name in vars(Callback) if not name.startswith("_")} == {*HOOKS, "state_key"}


def test_state_of_a_callback() -> None:
    class Mine(Callback):
        pass

    class Theirs(ReferenceCallback):
        pass

    assert Mine().state_key == Theirs().state_key.replace("Theirs", "Mine")
    assert Mine().state_dict() == {}
    Mine().load_state_dict({"a": 1})


class Tiny(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_functions_run_at_their_hooks() -> None:
    seen: list[Any] = []
    callback = LambdaCallback(
        setup=lambda trainer, module, stage: seen.append(stage),
        on_train_batch_end=lambda trainer, module, outputs, batch, batch_idx: seen.append(batch_idx),
        on_fit_end=lambda trainer, module: seen.append(type(module)),
        on_train_end=None,
    )
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Tiny(), torch.utils.data.DataLoader(torch.ones(3, 2)))
    assert seen == ["fit", 0, 1, 2, Tiny]


def test_functions_at_no_hook_are_refused() -> None:
    with pytest.raises(TypeError, match="on_nothing"):
        LambdaCallback(on_nothing=print)
    for name in inspect.signature(ReferenceLambda).parameters:
        LambdaCallback(**{name: lambda *args: None})
