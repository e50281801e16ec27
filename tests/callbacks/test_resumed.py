"""Callbacks whose work goes on after an interruption: a run in two parts ends as one that ran through. And the keys
under which their states are kept.
"""

from pathlib import Path
from typing import Any

import lightning.pytorch.callbacks as reference
import pytest
import torch
from torch import nn

from tests.trainer.side_by_side import OURS, Library, base_module, loader, run
from unstuck import callbacks as own

pytestmark = [
    pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*lr_scheduler"),
    pytest.mark.filterwarnings("ignore:Detected call"),
    pytest.mark.filterwarnings("ignore:The epoch parameter"),
    pytest.mark.filterwarnings("ignore:The checkpoint holds the states of callbacks"),
]


def make(library: Library) -> Any:
    class Net(base_module(library)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
            self.head = nn.Linear(8, 1)
            self.net = nn.Sequential(self.backbone, self.head)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam([item for item in self.parameters() if item.requires_grad], lr=0.02)

    return Net()


CALLBACKS: dict[str, Any] = {
    "EarlyStopping": lambda: own.EarlyStopping("loss", patience=2, min_delta=0.5),
    "GradientAccumulationScheduler": lambda: own.GradientAccumulationScheduler({1: 2, 3: 3}),
    "BackboneFinetuning": lambda: own.BackboneFinetuning(unfreeze_backbone_at_epoch=1),
    "WeightAveraging": lambda: own.WeightAveraging(),
    "EMAWeightAveraging": lambda: own.EMAWeightAveraging(decay=0.8),
    "StochasticWeightAveraging": lambda: own.StochasticWeightAveraging(0.05, swa_epoch_start=2, annealing_epochs=2),
    "GradientMonitor": lambda: own.GradientMonitor(every_n_steps=2),
}


@pytest.mark.parametrize("name", CALLBACKS)
@pytest.mark.parametrize("after", [6, 9, 12])
def test_in_two_parts_as_in_one(name: str, after: int, tmp_path: Path) -> None:
    whole = run(OURS, make, max_epochs=5, callbacks=[CALLBACKS[name]()])
    saving = own.ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    run(
        OURS,
        make,
        max_epochs=5,
        max_steps=after,
        enable_checkpointing=True,
        callbacks=[CALLBACKS[name](), saving],
    )
    paths = sorted(tmp_path.glob("*.ckpt"), key=lambda path: torch.load(path, weights_only=True)["global_step"])

    def use(trainer: Any, module: Any) -> None:
        trainer.fit(module, loader(), ckpt_path=paths[-1])

    resumed = run(OURS, make, use=use, max_epochs=5, callbacks=[CALLBACKS[name]()])
    assert (resumed.steps, resumed.epochs) == (whole.steps, whole.epochs)
    for key, weight in whole.weights.items():
        assert torch.equal(weight, resumed.weights[key]), key


SHARED = sorted(set(reference.__all__) & set(own.__all__))
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "EarlyStopping": ("loss",),
    "GradientAccumulationScheduler": ({0: 1},),
    "StochasticWeightAveraging": (0.1,),
    "ThroughputMonitor": (len,),
    "OnExceptionCheckpoint": (".",),
}


@pytest.mark.parametrize("name", SHARED)
def test_states_are_kept_under_lightnings_key(name: str) -> None:
    arguments = ARGUMENTS.get(name, ())
    ours, theirs = getattr(own, name)(*arguments), getattr(reference, name)(*arguments)
    assert ours.state_key == theirs.state_key
    if name != "ModelCheckpoint":
        assert ours.state_dict().keys() == theirs.state_dict().keys()
