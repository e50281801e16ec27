"""unstuck finds out why a PyTorch training doesn't learn or blows up, and says where and what to do about it."""

from __future__ import annotations

# Imported in the user's process before the script of `unstuck run` starts, so it imports nothing, not even typing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from unstuck.callbacks.callback import Callback
    from unstuck.session.watch import watch
    from unstuck.trainer.data.datamodule import LightningDataModule
    from unstuck.trainer.data.limits import Overfit
    from unstuck.trainer.data.seed import seed_everything
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.optimization import SKIP_STEP
    from unstuck.trainer.trainer import Trainer
    from unstuck.workflow.overfit import OverfitResult, overfit

__all__ = [
    "SKIP_STEP",
    "Callback",
    "LightningDataModule",
    "LightningModule",
    "Overfit",
    "OverfitResult",
    "Trainer",
    "__version__",
    "overfit",
    "seed_everything",
    "watch",
]

__version__ = "0.1.0.dev0"

# Where a public name lives. It is imported when it is asked for, so that `import unstuck` costs nothing.
_HOMES = {
    "Callback": "unstuck.callbacks.callback",
    "LightningDataModule": "unstuck.trainer.data.datamodule",
    "LightningModule": "unstuck.trainer.module",
    "SKIP_STEP": "unstuck.trainer.optimization",
    "Overfit": "unstuck.trainer.data.limits",
    "OverfitResult": "unstuck.workflow.overfit",
    "Trainer": "unstuck.trainer.trainer",
    "overfit": "unstuck.workflow.overfit",
    "seed_everything": "unstuck.trainer.data.seed",
    "watch": "unstuck.session.watch",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
