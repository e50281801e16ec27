"""Hyperparameters: what a module or datamodule was made with, kept for loggers and checkpoints."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from types import FrameType
from typing import Any

from torch import nn

from unstuck.messages import rank_zero_warn

__all__ = ["AttributeDict", "HyperparametersMixin", "initializer_arguments"]


class AttributeDict(dict[str, Any]):
    """A dictionary whose entries are attributes, too."""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"There is no {key!r} in {sorted(map(str, self))}.") from None

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def __delattr__(self, key: str) -> None:
        try:
            del self[key]
        except KeyError:
            raise AttributeError(f"There is no {key!r} in {sorted(map(str, self))}.") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(key for key in self if isinstance(key, str))]

    def __repr__(self) -> str:
        names = {key: f'"{key}":' for key in self}
        width = max(map(len, names.values()), default=0)
        return "\n".join(f"{names[key]:{width}} {self[key]}" for key in sorted(self, key=str))


class HyperparametersMixin:
    """Adds :meth:`save_hyperparameters` and :attr:`hparams` to a class."""

    def __init__(self) -> None:
        super().__init__()
        self._log_hyperparams = False

    def save_hyperparameters(
        self,
        *args: Any,
        ignore: Sequence[str] | str | None = None,
        frame: FrameType | None = None,
        logger: bool = True,
    ) -> None:
        """Save the arguments of ``__init__`` to :attr:`hparams`. To be called in ``__init__``.

        Arguments of the subclasses' initialisers that lead here by ``super().__init__()`` are saved as well, and win
        over those of the same name of the base class. For a dataclass its fields are saved.

        Args:
            args: names of the arguments to save; or one dictionary, ``argparse.Namespace`` or other mutable mapping to
                be saved instead of the arguments; nothing to save all arguments.
            ignore: names that are not saved; those that a base class has saved are removed.
            frame: of the initialiser; by default the caller's.
            logger: whether the hyperparameters are sent to the loggers when a run begins.

        Raises:
            ValueError: when something else than a mapping is given to be saved.
            KeyError: when a name is given that is no argument of an initialiser.

        Example::

            class Model(LightningModule):
                def __init__(self, width: int, backbone: nn.Module) -> None:
                    super().__init__()
                    self.save_hyperparameters(ignore=["backbone"])
                    self.layer = nn.Linear(self.hparams.width, 1)
        """
        self._log_hyperparams = logger
        if len(args) == 1 and not isinstance(args[0], str) and not args[0]:
            return  # an empty container
        if frame is None:
            current = inspect.currentframe()
            frame = None if current is None else current.f_back
        ignored = {ignore} if isinstance(ignore, str) else {name for name in ignore or () if isinstance(name, str)}
        available = {name: value for name, value in initializer_arguments(self, frame).items() if name not in ignored}
        self.remove_ignored_hparams(sorted(ignored))

        containers = [arg for arg in args if not isinstance(arg, str)]
        chosen: Any
        if not args:
            chosen, self._hparams_name = available, "kwargs" if available else None
        elif len(containers) == 1:
            chosen = containers[0]
            # Under this name the initialiser gets it back when the object is made from a checkpoint.
            self._hparams_name = next((name for name, value in available.items() if value is chosen), None)
        else:
            names = [arg for arg in args if isinstance(arg, str)]
            chosen, self._hparams_name = {name: available[name] for name in names}, "kwargs"
        self._add_hyperparameters(_as_mapping(chosen))
        for name, value in self.hparams.items():
            if isinstance(value, nn.Module):
                rank_zero_warn(
                    f"The hyperparameter {name!r} is a module, whose weights are in the checkpoint already."
                    f" Leave it out: `self.save_hyperparameters(ignore=[{name!r}])`."
                )
        # What the user changes in hparams later is no initial value.
        self._hparams_initial = copy.deepcopy(self._hparams)

    @property
    def hparams(self) -> Any:
        """The hyperparameters, which may be changed: an :class:`AttributeDict`, or the user's own mapping if given."""
        if not hasattr(self, "_hparams"):
            self._hparams: Any = AttributeDict()
        return self._hparams

    @property
    def hparams_initial(self) -> Any:
        """A copy of the hyperparameters as they were when they were saved."""
        return copy.deepcopy(getattr(self, "_hparams_initial", AttributeDict()))

    def _add_hyperparameters(self, chosen: MutableMapping[str, Any]) -> None:
        if isinstance(chosen, dict) and isinstance(self.hparams, dict):
            self.hparams.update(chosen)
        else:
            self._hparams = chosen

    def remove_ignored_hparams(self, ignore_list: list[str]) -> None:
        """Forget hyperparameters that were saved, as a base class may have done; names that weren't are no matter."""
        for name in ignore_list:
            self.hparams.pop(name, None)


def initializer_arguments(instance: object, frame: FrameType | None) -> dict[str, Any]:
    """Return the arguments with which the initialisers of ``instance`` that are running were called.

    Args:
        instance: object under construction; of a dataclass the fields are returned.
        frame: where to begin to look outwards for initialisers, of base classes first.

    Returns:
        Values by name, as the initialisers' variables hold them now. ``**kwargs`` are spread, ``self`` and ``*args``
        left out.
    """
    if dataclasses.is_dataclass(instance):
        return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
    arguments: dict[str, Any] = {}
    for function, variables in _running_initializers(instance, frame):
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            if parameter.name not in variables or parameter.kind is parameter.VAR_POSITIONAL:
                continue
            value = variables[parameter.name]
            arguments.update(value if parameter.kind is parameter.VAR_KEYWORD else {parameter.name: value})
    return arguments


def _running_initializers(instance: object, frame: FrameType | None) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield initialisers of ``instance`` on the stack with their variables, innermost first."""
    functions = {}
    for cls in type(instance).__mro__:
        initializer = vars(cls).get("__init__")
        if initializer is not None:
            function = inspect.unwrap(initializer)
            if hasattr(function, "__code__"):
                functions[function.__code__] = function
    while frame is not None:
        function = functions.get(frame.f_code)
        if function is not None:
            variables = frame.f_locals
            # An initialiser of the same class may be building another object that holds this one.
            if variables.get(frame.f_code.co_varnames[0]) is instance:
                yield function, variables
        frame = frame.f_back


def _as_mapping(chosen: Any) -> MutableMapping[str, Any]:
    if isinstance(chosen, argparse.Namespace):
        chosen = vars(chosen)
    if isinstance(chosen, dict):
        return AttributeDict(chosen)
    if isinstance(chosen, MutableMapping):
        return chosen
    raise ValueError(
        f"`save_hyperparameters` got a {type(chosen).__name__}, but only names of arguments, a dictionary, an"
        " argparse.Namespace or another mutable mapping can be saved."
    )
