"""Training the head of a model first, and its frozen backbone later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from unstuck.callbacks.callback import Callback
from unstuck.errors import MisconfigurationException
from unstuck.messages import rank_zero_info, rank_zero_warn

if TYPE_CHECKING:
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["BackboneFinetuning", "BaseFinetuning", "multiplicative"]

Modules = nn.Module | Iterable[Any]


def multiplicative(epoch: int) -> float:
    """Return the factor by which a backbone's learning rate grows with each epoch: 2."""
    return 2.0


class BaseFinetuning(Callback):
    """Freezes parts of the model before the training, and unfreezes them when you say so.

    Override :meth:`freeze_before_training` and :meth:`finetune_function`. Give the optimiser in
    ``configure_optimizers`` only the parameters that require gradients; those that are unfrozen come to it as new
    parameter groups.
    """

    def __init__(self) -> None:
        self._internal_optimizer_metadata: dict[int, list[dict[str, Any]]] = {}
        self._restarting = False

    def freeze_before_training(self, pl_module: LightningModule) -> None:
        """Freeze what isn't trained at first; called in ``setup``, before the optimisers are made."""
        raise NotImplementedError

    def finetune_function(self, pl_module: LightningModule, epoch: int, optimizer: Optimizer) -> None:
        """Unfreeze what is trained from ``epoch`` on; called for every optimiser when an epoch begins."""
        raise NotImplementedError

    # What these can use.

    @staticmethod
    def flatten_modules(modules: Modules) -> list[nn.Module]:
        """Return the modules that have parameters of their own, or no children, of a module or nested collection."""
        if isinstance(modules, nn.ModuleDict):
            modules = modules.values()
        if isinstance(modules, nn.Module) and not isinstance(modules, Iterable):
            found: Iterable[nn.Module] = modules.modules()
        else:
            found = [module for item in modules for module in BaseFinetuning.flatten_modules(item)]
        return [module for module in found if module._parameters or not any(module.children())]

    @staticmethod
    def filter_params(modules: Modules, train_bn: bool = True, requires_grad: bool = True) -> Iterator[nn.Parameter]:
        """Yield parameters of modules.

        Args:
            modules: a module, or a nested collection of modules.
            train_bn: whether those of batch norms are yielded as well.
            requires_grad: whether those that require gradients, or those that don't.
        """
        for module in BaseFinetuning.flatten_modules(modules):
            if train_bn or not isinstance(module, _BatchNorm):
                for parameter in module.parameters(recurse=False):
                    if parameter.requires_grad == requires_grad:
                        yield parameter

    @staticmethod
    def make_trainable(modules: Modules) -> None:
        """Let all parameters of modules require gradients, and their batch norms keep statistics."""
        for module in BaseFinetuning.flatten_modules(modules):
            if isinstance(module, _BatchNorm):
                module.track_running_stats = True
            for parameter in module.parameters(recurse=False):
                parameter.requires_grad = True

    @staticmethod
    def freeze_module(module: nn.Module) -> None:
        """Let the own parameters of one module require no gradients; a batch norm keeps no statistics any more."""
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad = False

    @staticmethod
    def freeze(modules: Modules, train_bn: bool = True) -> None:
        """Freeze modules.

        Args:
            modules: a module, or a nested collection of modules.
            train_bn: whether batch norms are trained all the same.
        """
        for module in BaseFinetuning.flatten_modules(modules):
            if train_bn and isinstance(module, _BatchNorm):
                BaseFinetuning.make_trainable(module)
            else:
                BaseFinetuning.freeze_module(module)

    @staticmethod
    def filter_on_optimizer(optimizer: Optimizer, params: Iterable[nn.Parameter]) -> list[nn.Parameter]:
        """Return those parameters that an optimiser doesn't have yet, and warn of the others."""
        held = {id(item) for group in optimizer.param_groups for item in group["params"]}
        given = list(params)
        new = [item for item in given if id(item) not in held]
        if len(new) < len(given):
            rank_zero_warn(
                f"{len(given) - len(new)} parameters that are unfrozen are in the optimizer already; they stay in their"
                " group. Give it only those that require gradients:"
                f" `{type(optimizer).__name__}([p for p in self.parameters() if p.requires_grad], ...)`.",
                stacklevel=4,
            )
        return new

    @staticmethod
    def unfreeze_and_add_param_group(
        modules: Modules,
        optimizer: Optimizer,
        lr: float | None = None,
        initial_denom_lr: float = 10.0,
        train_bn: bool = True,
    ) -> None:
        """Unfreeze modules and give their parameters to an optimiser, as a new group.

        Args:
            modules: a module, or a nested collection of modules.
            optimizer: the optimiser.
            lr: learning rate of the group; None: that of the first group over ``initial_denom_lr``.
            initial_denom_lr: see there.
            train_bn: whether parameters of batch norms are in the group.
        """
        held = {id(item) for group in optimizer.param_groups for item in group["params"]}
        # What was trained all the time, as batch norms may be, stays where it is.
        stay = {id(item) for item in BaseFinetuning.filter_params(modules) if id(item) in held}
        BaseFinetuning.make_trainable(modules)
        rate = optimizer.param_groups[0]["lr"] / initial_denom_lr if lr is None else float(lr)
        parameters = [item for item in BaseFinetuning.filter_params(modules, train_bn) if id(item) not in stay]
        new = BaseFinetuning.filter_on_optimizer(optimizer, parameters)
        if new:
            optimizer.add_param_group({"params": new, "lr": rate})

    # Hooks.

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.freeze_before_training(pl_module)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._restarting and self._internal_optimizer_metadata:
            # Groups that were added before the interruption, so that the optimiser's state has its places.
            parameters = dict(pl_module.named_parameters())
            for index, optimizer in enumerate(trainer.optimizers):
                if index in self._internal_optimizer_metadata:
                    held = {id(item) for group in optimizer.param_groups for item in group["params"]}
                    optimizer.param_groups = _translated(self._internal_optimizer_metadata[index], parameters)
                    added = {id(item) for group in optimizer.param_groups for item in group["params"]} - held
                    _unfreeze(pl_module, added)
        self._restarting = False

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        names = {parameter: name for name, parameter in pl_module.named_parameters()}
        for index, optimizer in enumerate(trainer.optimizers):
            before = len(optimizer.param_groups)
            self.finetune_function(pl_module, trainer.current_epoch, optimizer)
            kept = self._internal_optimizer_metadata.get(index)
            if kept is None:
                self._internal_optimizer_metadata[index] = _translated(optimizer.param_groups, names)
            else:
                kept.extend(_translated(optimizer.param_groups[before:], names))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._restarting = False  # what an evaluation has loaded is no state of the next fit

    def state_dict(self) -> dict[str, Any]:
        return {"internal_optimizer_metadata": self._internal_optimizer_metadata}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restarting = True
        self._internal_optimizer_metadata = state_dict["internal_optimizer_metadata"]


class BackboneFinetuning(BaseFinetuning):
    """Trains ``self.backbone`` of the module from some epoch on, with a learning rate that grows towards the rest's.

    Args:
        unfreeze_backbone_at_epoch: the epoch (counted from 0).
        lambda_func: takes the epoch and returns the factor by which the backbone's rate grows then.
        backbone_initial_ratio_lr: the backbone's first rate, as a part of the rest's at that time.
        backbone_initial_lr: the backbone's first rate itself; goes before the part.
        should_align: whether the backbone's rate stops at the rest's.
        initial_denom_lr: kept for the signature's sake: the first rate is always given.
        train_bn: whether batch norms of the backbone are trained with it.
        verbose: whether rates are told.
        rounding: digits of rates that are told.

    Raises:
        MisconfigurationException: at the start, a module without ``backbone``.
    """

    def __init__(
        self,
        unfreeze_backbone_at_epoch: int = 10,
        lambda_func: Callable[[int], float] = multiplicative,
        backbone_initial_ratio_lr: float = 10e-2,
        backbone_initial_lr: float | None = None,
        should_align: bool = True,
        initial_denom_lr: float = 10.0,
        train_bn: bool = True,
        verbose: bool = False,
        rounding: int = 12,
    ) -> None:
        super().__init__()
        self.unfreeze_backbone_at_epoch = unfreeze_backbone_at_epoch
        self.lambda_func = lambda_func
        self.backbone_initial_ratio_lr = backbone_initial_ratio_lr
        self.backbone_initial_lr = backbone_initial_lr
        self.should_align = should_align
        self.initial_denom_lr = initial_denom_lr
        self.train_bn = train_bn
        self.verbose = verbose
        self.rounding = rounding
        self.previous_backbone_lr: float | None = None

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "previous_backbone_lr": self.previous_backbone_lr}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.previous_backbone_lr = state_dict["previous_backbone_lr"]

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if not isinstance(getattr(pl_module, "backbone", None), nn.Module):
            raise MisconfigurationException(
                f"`BackboneFinetuning` needs a module `self.backbone` in {type(pl_module).__name__}."
            )
        super().setup(trainer, pl_module, stage)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._restarting and self.previous_backbone_lr is not None:
            # Where the optimizer has had its parameters from the beginning, no group tells that they learn.
            self.make_trainable(_backbone_of(pl_module))
        super().on_fit_start(trainer, pl_module)

    def freeze_before_training(self, pl_module: LightningModule) -> None:
        self.freeze(_backbone_of(pl_module))

    def finetune_function(self, pl_module: LightningModule, epoch: int, optimizer: Optimizer) -> None:
        if epoch < self.unfreeze_backbone_at_epoch:
            return
        rate = optimizer.param_groups[0]["lr"]
        if epoch == self.unfreeze_backbone_at_epoch:
            own = self.backbone_initial_lr
            backbone_rate = rate * self.backbone_initial_ratio_lr if own is None else own
            self.unfreeze_and_add_param_group(
                _backbone_of(pl_module),
                optimizer,
                backbone_rate,
                train_bn=self.train_bn,
                initial_denom_lr=self.initial_denom_lr,
            )
        else:
            assert self.previous_backbone_lr is not None
            backbone_rate = self.lambda_func(epoch + 1) * self.previous_backbone_lr
            if self.should_align and backbone_rate > rate:
                backbone_rate = rate
            optimizer.param_groups[-1]["lr"] = backbone_rate
        self.previous_backbone_lr = backbone_rate
        if self.verbose:
            rank_zero_info(
                f"Learning rate: {round(rate, self.rounding)}, of the backbone: {round(backbone_rate, self.rounding)}"
            )


def _backbone_of(module: Any) -> nn.Module:
    backbone: nn.Module = module.backbone
    return backbone


def _unfreeze(module: nn.Module, parameters: set[int]) -> None:
    """Let parameters, given by identity, require gradients again that ``setup`` has frozen anew."""
    for child in module.modules():
        own = [item for item in child.parameters(recurse=False) if id(item) in parameters]
        for item in own:
            item.requires_grad = True
        if own and isinstance(child, _BatchNorm):
            child.track_running_stats = True


def _translated(groups: list[dict[str, Any]], table: dict[Any, Any]) -> list[dict[str, Any]]:
    """Parameter groups with other things in place of their parameters: names, or parameters again."""
    return [{**group, "params": [table[item] for item in group["params"]]} for group in groups]
