"""From what `fit`, `validate`, `test` and `predict` are given to a module and data that a run can use."""

from __future__ import annotations

from typing import Any

from unstuck.errors import MisconfigurationException
from unstuck.trainer.data.loaders import find_source
from unstuck.trainer.run import StageData

__all__ = ["check_module", "find_data", "refuse_both", "separate_datamodule"]


def separate_datamodule(loaders: Any, datamodule: Any) -> tuple[Any, Any]:
    """Loaders and data module, where a data module may have been passed in the place of loaders."""
    is_datamodule = any(cls.__name__ == "LightningDataModule" for cls in type(loaders).__mro__)
    return (None, loaders) if is_datamodule else (loaders, datamodule)


def refuse_both(datamodule: Any, method: str, **loaders: Any) -> None:
    """Refuses loaders together with a data module.

    Args:
        datamodule: the data module, None without one.
        method: the Trainer's method, for the error.
        loaders: what was passed, by the argument's name.

    Raises:
        MisconfigurationException: both were passed.
    """
    given = [name for name, value in loaders.items() if value is not None]
    if datamodule is not None and given:
        raise MisconfigurationException(f"`Trainer.{method}` takes `{'`, `'.join(given)}` or `datamodule`, not both.")


def check_module(model: Any, method: str) -> Any:
    """The module itself; a compiled one is unwrapped, with its steps compiled.

    Args:
        model: as passed.
        method: the Trainer's method, for the error.

    Raises:
        TypeError: it is no LightningModule, of this package or the real Lightning.
    """
    original = getattr(model, "_orig_mod", None)
    if original is not None and hasattr(model, "dynamo_ctx"):
        for name in ("forward", "training_step", "validation_step", "test_step", "predict_step"):
            if name not in original.__dict__:
                original.__dict__[name] = model.dynamo_ctx(getattr(original, name))
        model = original
    if not any(cls.__name__ == "LightningModule" for cls in type(model).__mro__):
        raise TypeError(f"`Trainer.{method}` needs a `LightningModule`, got `{type(model).__qualname__}`.")
    return model


def find_data(given: dict[str, Any], datamodule: Any, module: Any) -> dict[str, StageData]:
    """Where the loaders of each stage come from: "train", "val", "test" and "predict".

    Args:
        given: the loaders that were passed, by stage.
        datamodule: the data module, None without one.
        module: the module, whose own loaders are the last resort.
    """
    return {
        stage: StageData(find_source(f"{stage}_dataloader", given.get(stage), datamodule, module))
        for stage in ("train", "val", "test", "predict")
    }
