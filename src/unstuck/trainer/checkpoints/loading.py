"""Making a module or data module from a checkpoint: ``load_from_checkpoint``."""

from __future__ import annotations

import csv
import functools
import inspect
import io
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from unstuck.errors import MissingHyperparametersError
from unstuck.trainer.checkpoints.files import filesystem_of, load_file
from unstuck.trainer.checkpoints.restore import load_weights
from unstuck.trainer.hooks import is_overridden

__all__ = ["load_datamodule", "load_module", "on_class_only"]

if TYPE_CHECKING:
    on_class_only = classmethod
else:

    class on_class_only(classmethod):
        """A class method that refuses to be called on an instance, whose weights it wouldn't touch.

        Raises:
            TypeError: it is called on an instance.
        """

        def __get__(self, instance, owner=None):
            bound = super().__get__(instance, owner)
            if instance is None:
                return bound
            return functools.wraps(bound)(functools.partial(_refuse, type(instance).__name__, bound.__name__))


def _refuse(owner: str, name: str, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"`{owner}.{name}` makes a new object, so call it on the class, not on an instance: `{owner}.{name}(...)`."
    )


def load_module(
    cls: Any,
    path: Any,
    map_location: Any,
    hparams_file: Any,
    strict: bool | None,
    weights_only: bool | None,
    **given: Any,
) -> Any:
    """Makes a module with the hyperparameters of a checkpoint and loads its weights.

    Args:
        cls: the class of the module.
        path: a path, an address for fsspec, or an open file.
        map_location: where tensors go; None: where they were, the CPU where that isn't there.
        hparams_file: a .yaml or .csv file with the hyperparameters of a checkpoint that has none.
        strict: whether names must be exactly those of the module; None: the module's ``strict_loading``.
        weights_only: whether only tensors and plain values are loaded; True unless False is asked for.
        given: arguments of the module's ``__init__``, before those of the checkpoint.
    """
    checkpoint = _load(path, map_location, weights_only)
    hparams = _hparams_from_file(hparams_file)
    if hparams is not None:
        checkpoint[cls.CHECKPOINT_HYPER_PARAMS_KEY] = hparams
    module = _make(cls, checkpoint, given, path)
    if is_overridden("configure_model", module):
        module.configure_model()
    module.on_load_checkpoint(checkpoint)
    weights = checkpoint["state_dict"]
    load_weights(module, weights, strict=module.strict_loading if strict is None else strict, path=_name(path))
    device = next((value.device for value in weights.values() if isinstance(value, torch.Tensor)), torch.device("cpu"))
    return module.to(device)


def load_datamodule(
    cls: Any, path: Any, map_location: Any, hparams_file: Any, weights_only: bool | None, **given: Any
) -> Any:
    """Makes a data module with the hyperparameters of a checkpoint and loads its state.

    The arguments are those of :func:`load_module`.
    """
    checkpoint = _load(path, map_location, weights_only)
    hparams = _hparams_from_file(hparams_file)
    if hparams is not None:
        checkpoint[cls.CHECKPOINT_HYPER_PARAMS_KEY] = hparams
    datamodule = _make(cls, checkpoint, given, path)
    hook = getattr(datamodule, "on_load_checkpoint", None)
    if hook is not None:
        hook(checkpoint)
    state = checkpoint.get(cls.__qualname__)
    if state is not None:
        datamodule.load_state_dict(state)
    return datamodule


def _load(path: Any, map_location: Any, weights_only: bool | None) -> dict[str, Any]:
    if map_location is None and not torch.cuda.is_available():
        map_location = "cpu"
    checkpoint: dict[str, Any] = load_file(path, map_location, weights_only)
    return checkpoint


def _make(cls: Any, checkpoint: dict[str, Any], given: Mapping[str, Any], path: Any) -> Any:
    """Calls the class with the saved hyperparameters that its ``__init__`` takes."""
    saved = checkpoint.get(cls.CHECKPOINT_HYPER_PARAMS_KEY, {})
    parameters = inspect.signature(cls.__init__).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    argument = checkpoint.get(cls.CHECKPOINT_HYPER_PARAMS_NAME)
    arguments: dict[str, Any]
    if argument is None or argument == "kwargs":
        arguments = {**dict(saved), **given}
    else:
        # The module took one collection of hyperparameters, which gets what is given as well.
        own = {name: value for name, value in given.items() if name in parameters}
        others = {name: value for name, value in given.items() if name not in parameters}
        arguments = {argument: _collection(saved, others, checkpoint.get(cls.CHECKPOINT_HYPER_PARAMS_TYPE)), **own}
    if not takes_any:
        arguments = {name: value for name, value in arguments.items() if name in parameters}
    try:
        return cls(**arguments)
    except TypeError as error:
        required = [
            name
            for name, parameter in list(parameters.items())[1:]
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
            and name not in arguments
        ]
        if not required:
            raise
        raise MissingHyperparametersError(
            f"{cls.__name__} needs the arguments {', '.join(map(repr, required))}, which aren't among the"
            f" hyperparameters of {_name(path)!r} ({sorted(map(str, saved)) or 'it has none'}). Pass them to"
            " `load_from_checkpoint`, and call `self.save_hyperparameters()` in `__init__` to have them saved."
        ) from error


def _collection(saved: Any, others: Mapping[str, Any], kind: Any) -> Any:
    if callable(kind) and not isinstance(saved, kind if isinstance(kind, type) else dict):
        saved = kind(saved)
    for name, value in others.items():
        saved[name] = value
    return saved


def _hparams_from_file(file: Any) -> dict[str, Any] | None:
    """Reads hyperparameters from a .yaml or .csv file (with the columns key and value).

    Raises:
        ValueError: a file of another kind.
    """
    if file is None:
        return None
    path = os.fspath(file)
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in (".yml", ".yaml", ".csv"):
        raise ValueError(f"`hparams_file={path!r}` should be a .yaml, .yml or .csv file.")
    import yaml  # rarely needed, and it would cost every program's start

    with filesystem_of(path).open(path, "r") as opened:
        text = opened.read()
    if suffix != ".csv":
        return dict(yaml.safe_load(text) or {})
    return {row["key"]: yaml.safe_load(row["value"]) for row in csv.DictReader(io.StringIO(text))}


def _name(path: Any) -> str:
    return os.fspath(path) if isinstance(path, (str, os.PathLike)) else "the open file"
