"""What a program trains with: its optimisers, models, loaders, schedules, clipping, scalers, as they turn up."""

from __future__ import annotations

from collections.abc import Iterable
from types import FrameType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch

from unstuck.places import Frame, is_user_file, user_chain
from unstuck.program.attributes import own_attributes

__all__ = ["Inventory", "find_models", "named_modules_of_frames", "parameter_names", "plain_path"]


class Inventory:
    """The instrument. Holds identities and counts, and the lines at which optimisers were made.

    What happens in every step is counted by the guard, which listens to it anyway.
    """

    name = "inventory"

    def __init__(self) -> None:
        self.made_at: WeakKeyDictionary[torch.optim.Optimizer, tuple[Frame, ...]] = WeakKeyDictionary()
        self.models: set[str] = set()
        self.given: WeakSet[torch.nn.Module] = WeakSet()  # told by who trains them, whatever the frames hold
        self.loaders: set[int] = set()
        self.schedules: set[int] = set()
        self.scalers: set[int] = set()
        self.batches = 0
        self.clips = 0

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self.made_at[optimizer] = user_chain(frame)

    def epoch_begins(self, iterator: Any, loader: Any) -> None:
        self.loaders.add(id(loader))

    def batch_drawn(self, iterator: Any, batch: Any, frame: FrameType) -> None:
        self.batches += 1

    def forward_begins(self, module: torch.nn.Module, args: Any, kwargs: Any, frame: FrameType) -> None:
        if len(self.models) < 64:
            self.models.add(type(module).__name__)

    def gradients_clipped(self, parameters: Any, kind: str, limit: Any, norm: Any) -> None:
        self.clips += 1

    def gradients_unscaled(self, scaler: Any, optimizer: Any) -> None:
        self.scalers.add(id(scaler))

    def scaler_stepped(self, scaler: Any, optimizer: Any) -> None:
        self.scalers.add(id(scaler))

    def schedule_stepped(self, scheduler: Any) -> None:
        self.schedules.add(id(scheduler))


def find_models(
    frame: FrameType | None, optimizers: Iterable[torch.optim.Optimizer], more: Iterable[torch.nn.Module | None] = ()
) -> dict[str, torch.nn.Module]:
    """The program's models by the variable or attribute that holds each.

    Args:
        frame: innermost frame; the user's frames from there outwards are searched.
        optimizers: modules that hold one of their parameters are models.
        more: modules that were called; they stand under their class's name where no variable holds them.
    """
    trained = {id(item) for optimizer in optimizers for group in optimizer.param_groups for item in group["params"]}
    found: dict[int, tuple[str, torch.nn.Module]] = {}
    for name, module in named_modules_of_frames(frame):
        found.setdefault(id(module), (name, module))
    for called in more:
        if called is not None:
            found.setdefault(id(called), (type(called).__name__.lower(), called))
    models = [
        (name, module)
        for name, module in found.values()
        if any(id(parameter) in trained for parameter in module.parameters())
    ]
    inner = {id(child) for _, module in models for child in list(module.modules())[1:]}
    result: dict[str, torch.nn.Module] = {}
    for name, module in models:
        if id(module) not in inner:
            result.setdefault(name, module)
    return result


def named_modules_of_frames(frame: FrameType | None) -> list[tuple[str, torch.nn.Module]]:
    """Modules that the user's frames from ``frame`` outwards hold, by variable or attribute, outermost first."""
    frames = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    found: list[tuple[str, torch.nn.Module]] = []
    for outer in reversed(frames):  # the outermost name is the one that the user thinks of
        for name, value in list(outer.f_locals.items()):
            if isinstance(value, torch.nn.Module):
                found.append((name, value))
            elif not isinstance(value, (type, ModuleType)):
                found += [(key, item) for key, item in _attributes(value) if isinstance(item, torch.nn.Module)]
    return found


def _attributes(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(key, item) for key, item in list(dict.items(value))[:256] if isinstance(key, str)]
    return list((own_attributes(value) or {}).items())


def parameter_names(models: dict[str, torch.nn.Module]) -> dict[int, str]:
    """Dotted path of each parameter by its identity; with several models, the variable that holds the model first."""
    several = len(models) > 1
    return {
        id(parameter): plain_path(f"{variable}.{name}" if several else name)
        for variable, model in models.items()
        for name, parameter in model.named_parameters()
    }


def plain_path(name: str) -> str:
    """A dotted path without the components that wrappers (compiled, data parallel) have added."""
    return ".".join(part for part in name.split(".") if part not in ("_orig_mod", "module"))
