"""Freezing and unfreezing."""

from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import BackboneFinetuning as ReferenceBackbone
from lightning.pytorch.callbacks import BaseFinetuning as ReferenceBase
from torch import nn

from tests.trainer.side_by_side import OURS, THEIRS, Library, assert_same, base_module, run
from unstuck.callbacks import BackboneFinetuning, BaseFinetuning
from unstuck.errors import MisconfigurationException

pytestmark = pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning")


def with_backbone(library: Library, all_parameters: bool = False) -> Any:
    class Net(base_module(library)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
            self.head = nn.Linear(8, 1)
            self.net = nn.Sequential(self.backbone, self.head)

        def configure_optimizers(self) -> Any:
            parameters = [item for item in self.parameters() if item.requires_grad or all_parameters]
            optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)]

    return Net()


OPTIONS: list[dict[str, Any]] = [
    {"unfreeze_backbone_at_epoch": 2},
    {"unfreeze_backbone_at_epoch": 1, "backbone_initial_lr": 0.001, "train_bn": False},
    {"unfreeze_backbone_at_epoch": 0, "should_align": False, "lambda_func": lambda epoch: 1.5, "verbose": True},
    {"unfreeze_backbone_at_epoch": 9},
]


@pytest.mark.parametrize("options", OPTIONS, ids=",".join)
def test_backbone_as_in_lightning(options: dict[str, Any]) -> None:
    own, reference = BackboneFinetuning(**options), ReferenceBackbone(**options)
    ours = run(OURS, with_backbone, max_epochs=5, callbacks=[own])
    theirs = run(THEIRS, with_backbone, max_epochs=5, callbacks=[reference])
    assert_same(ours, theirs)
    assert own.state_dict() == reference.state_dict()
    assert own.state_key == reference.state_key


def test_a_restart_has_the_groups_again() -> None:
    first = BackboneFinetuning(unfreeze_backbone_at_epoch=1)
    run(OURS, with_backbone, max_epochs=3, callbacks=[first])
    second = BackboneFinetuning(unfreeze_backbone_at_epoch=1)
    second.load_state_dict(first.state_dict())

    def use(trainer: Any, module: Any) -> Any:
        trainer.fit_loop.max_epochs = 0
        from tests.trainer.side_by_side import loader

        trainer.fit(module, loader())
        return trainer.optimizers[0]

    optimizer = run(OURS, with_backbone, use=use, max_epochs=1, callbacks=[second]).result
    assert len(optimizer.param_groups) == 2
    assert all(isinstance(item, nn.Parameter) for group in optimizer.param_groups for item in group["params"])
    assert second.previous_backbone_lr == first.previous_backbone_lr


class Bare(BaseFinetuning):
    def freeze_before_training(self, module: Any) -> None:
        self.freeze([module.backbone[0], [module.backbone[1]]], train_bn=False)

    def finetune_function(self, module: Any, epoch: int, optimizer: Any) -> None:
        if epoch == 1:
            self.unfreeze_and_add_param_group(module.backbone, optimizer)


def test_own_schedule_and_its_learning_rate() -> None:
    def use(trainer: Any, module: Any) -> Any:
        from tests.trainer.side_by_side import loader

        frozen = []
        trainer.callbacks.append(Look(frozen))
        trainer.fit(module, loader())
        return frozen, [group["lr"] for group in trainer.optimizers[0].param_groups]

    class Look(OURS.Callback):  # type: ignore[name-defined, misc]
        def __init__(self, frozen: list[bool]) -> None:
            self.frozen = frozen

        def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
            self.frozen.append(not module.backbone[0].weight.requires_grad)

    frozen, rates = run(OURS, with_backbone, use=use, max_epochs=2, callbacks=[Bare()]).result
    assert frozen == [True] * 6 + [False] * 6
    assert rates == pytest.approx([0.05, 0.005])


@pytest.mark.parametrize("train_bn", [True, False])
def test_helpers_are_lightnings(train_bn: bool) -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))
            self.inner = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.BatchNorm1d(2)})

    def made() -> Any:
        torch.manual_seed(0)
        return [Holder(), [nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2), nn.ReLU())], nn.ModuleDict()]

    states = []
    for cls in (BaseFinetuning, ReferenceBase):
        modules = made()
        kinds = [type(item).__name__ for item in cls.flatten_modules(modules)]
        cls.freeze(modules, train_bn=train_bn)
        trainable = [tuple(item.shape) for item in cls.filter_params(modules, train_bn=train_bn, requires_grad=True)]
        frozen = [tuple(item.shape) for item in cls.filter_params(modules, train_bn=train_bn, requires_grad=False)]
        tracks = [item.track_running_stats for item in cls.flatten_modules(modules) if hasattr(item, "running_mean")]
        states.append((kinds, trainable, frozen, tracks))
    assert states[0] == states[1]


def test_parameters_are_told_apart_by_identity() -> None:
    first, second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([first], lr=0.1)
    assert BaseFinetuning.filter_on_optimizer(optimizer, [second]) == [second]
    with pytest.warns(UserWarning, match="in the optimizer already"):
        assert BaseFinetuning.filter_on_optimizer(optimizer, [first, second]) == [second]


def test_a_backbone_is_needed() -> None:
    with pytest.raises(MisconfigurationException, match="backbone"):
        run(OURS, max_epochs=1, callbacks=[BackboneFinetuning()])
    with pytest.raises(NotImplementedError):
        run(OURS, max_epochs=1, callbacks=[BaseFinetuning()])
