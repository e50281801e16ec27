"""What is examined: a callable of the user's that builds a model with its data, called anew for every step."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from unstuck.errors import MisconfigurationException
from unstuck.places import add_user_root
from unstuck.trainer.module import LightningModule
from unstuck.workflow.batches import first_batches

__all__ = ["Patient", "Plain", "TargetError", "give_lazy_parameters_their_shape", "load_target", "patient_of"]

_FORMS = (
    "a LightningModule, (LightningModule, train loader), (LightningModule, train loader, validation loader), "
    "(LightningModule, datamodule), each with a dictionary of Trainer settings after it or not, or (model, loader, "
    "loss_fn, optimizer) with a validation loader after it or not"
)
_SETTINGS = (
    "accelerator",
    "accumulate_grad_batches",
    "gradient_clip_algorithm",
    "gradient_clip_val",
    "inference_mode",
    "precision",
    "use_distributed_sampler",
)
"""Settings of a Trainer that belong to how a program trains, and not to how long it is examined."""


class TargetError(MisconfigurationException):
    """What the command line names isn't something that can be examined."""


@dataclass(frozen=True)
class Patient:
    """One freshly built program.

    Attributes:
        module: a LightningModule, of ours or of Lightning.
        train: training loader, None where module or datamodule has it.
        val: validation loader, the same.
        datamodule: a LightningDataModule.
        plain: model, loader, loss function and optimiser, where that is what the callable returned.
        settings: of the Trainer: precision, clipping, accumulation.
    """

    module: Any
    train: Any = None
    val: Any = None
    datamodule: Any = None
    plain: tuple[torch.nn.Module, Any, Callable[[Any, Any], torch.Tensor], torch.optim.Optimizer] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> torch.nn.Module:
        """The user's module, without what makes a LightningModule of it."""
        found: torch.nn.Module = self.module if self.plain is None else self.plain[0]
        return found

    @property
    def validates(self) -> bool:
        """Whether there is something to validate on."""
        from unstuck.trainer.hooks import is_overridden

        owners = [item for item in (self.module, self.datamodule) if item is not None]
        has_step = is_overridden("validation_step", self.module)
        return has_step and (self.val is not None or any(is_overridden("val_dataloader", item) for item in owners))


class Plain(LightningModule):
    """A model, a loss function and an optimiser as a LightningModule.

    Args:
        model: the model.
        loss_fn: called as ``loss_fn(output, target)``.
        optimizer: of the model's parameters.
    """

    def __init__(
        self, model: torch.nn.Module, loss_fn: Callable[[Any, Any], torch.Tensor], optimizer: torch.optim.Optimizer
    ) -> None:
        super().__init__()
        from unstuck.trials.overfit.training import forward_of_pair

        self.model = model
        self._pass = forward_of_pair(loss_fn)
        self._optimizer = optimizer

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """The loss of a batch."""
        return self._loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """The loss of a batch, logged as ``val_loss``."""
        loss = self._loss(batch)
        self.log("val_loss", loss)
        return loss

    def _loss(self, batch: Any) -> torch.Tensor:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            kind = f"{type(batch).__name__} of {len(batch)}" if hasattr(batch, "__len__") else type(batch).__name__
            raise MisconfigurationException(
                "with (model, loader, loss_fn, optimizer) batches must be pairs of inputs and target, got "
                f"{kind}; for batches of another form return a LightningModule"
            )
        return self._pass(self.model, batch).loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The one that was given."""
        return self._optimizer


def load_target(target: str) -> Callable[[], Any]:
    """The callable that ``file.py:callable`` or ``package.module:callable`` names.

    Raises:
        TargetError: there is no such file, module or callable.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise TargetError(f"the target must be file.py:callable or package.module:callable, got {target!r}")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_path(place)
    found: Any = getattr(module, name, None)
    if not callable(found):
        have = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise TargetError(f"{place} has no callable {name!r}; it has: {', '.join(sorted(have)[:12]) or 'none'}")
    build: Callable[[], Any] = found
    return build


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"can't find the file {path}")
    folder = str(path.parent.absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as python does for a script
    # a file that is called like a module that is in use (random.py) mustn't take its place
    name = path.stem if path.stem not in sys.modules else f"{path.stem} (examined)"
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _from_path(name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python -m` does
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise TargetError(f"can't find the module {name!r}: {error}") from error
    if module.__file__:
        add_user_root(module.__file__)
    return module


def patient_of(built: Any) -> Patient:
    """What a target's callable has returned.

    Raises:
        TargetError: it is none of the forms.
    """
    parts = list(built) if isinstance(built, (tuple, list)) else [built]
    if parts and _is_lightning(parts[0]):
        settings = (
            parts.pop() if len(parts) > 1 and isinstance(parts[-1], dict) and set(parts[-1]) <= {*_SETTINGS} else {}
        )
        return _lightning(parts, dict(settings))
    if len(parts) in (4, 5) and isinstance(parts[0], torch.nn.Module) and isinstance(parts[3], torch.optim.Optimizer):
        model, _, loss_fn, optimizer = parts[:4]
        loader, val = _loader(parts[1]), _loader(parts[4]) if len(parts) == 5 else None
        return Patient(Plain(model, loss_fn, optimizer), loader, val, plain=(model, loader, loss_fn, optimizer))
    raise TargetError(f"the target must return {_FORMS}; got {_described(parts, built)}")


def give_lazy_parameters_their_shape(patient: Patient) -> None:
    """Call a plain program's model once where it has lazy modules: only then can it be copied, traced and counted."""
    if patient.plain is None or not any(map(is_lazy, patient.model.parameters())):
        return
    modes = [(item, item.training) for item in patient.model.modules()]
    patient.model.eval()
    with torch.no_grad():
        patient.module.training_step(first_batches(patient.train, 1)[0], 0)
    for item, mode in modes:
        item.training = mode


class _Batches:
    """A list of batches as a loader; to a Trainer a list is several loaders."""

    def __init__(self, batches: Sequence[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


def _loader(given: Any) -> Any:
    return _Batches(given) if isinstance(given, (list, tuple)) else given


def _lightning(parts: list[Any], settings: dict[str, Any]) -> Patient:
    if len(parts) == 1:
        return Patient(parts[0], settings=settings)
    if len(parts) == 2:
        if hasattr(parts[1], "train_dataloader"):
            return Patient(parts[0], datamodule=parts[1], settings=settings)
        return Patient(parts[0], parts[1], settings=settings)
    if len(parts) == 3:
        return Patient(parts[0], parts[1], parts[2], settings=settings)
    raise TargetError(f"the target must return {_FORMS}; got a LightningModule with {len(parts) - 1} more")


def _is_lightning(item: Any) -> bool:
    return all(hasattr(item, name) for name in ("training_step", "configure_optimizers", "parameters"))


def _described(parts: list[Any], built: Any) -> str:
    if isinstance(built, (tuple, list)):
        return f"({', '.join(type(item).__name__ for item in parts)})"
    return type(built).__name__
