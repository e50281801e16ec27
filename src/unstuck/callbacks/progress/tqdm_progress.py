"""Progress as bars of the library tqdm."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from unstuck.callbacks.progress.progress_bar import ProgressBar

if TYPE_CHECKING:
    from unstuck.callbacks.callback import StepOutput
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["TQDMProgressBar"]

# Seconds between two drawings of one bar, but for its last batch.
INTERVAL = 0.1
SHARE = 0.005


class TQDMProgressBar(ProgressBar):
    """One bar for the training, and one for each evaluation while it runs.

    To change a bar, override the method that makes it: :meth:`init_train_tqdm` and its like.

    Args:
        refresh_rate: look at the clock every so many batches; 0 for no bars. The environment variable
            ``TQDM_MINITERS`` raises it.
        process_position: lines to leave free above, for bars of your own.
        leave: whether the training's bar of each epoch stays.

    Raises:
        ModuleNotFoundError: the library tqdm isn't installed.
    """

    BAR_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"

    def __init__(self, refresh_rate: int = 1, process_position: int = 0, leave: bool = False) -> None:
        super().__init__()
        if importlib.util.find_spec("tqdm") is None:
            raise ModuleNotFoundError(
                "`TQDMProgressBar` needs the library tqdm, which isn't installed: `pip install unstuck[tqdm]`."
                " `RichProgressBar` needs nothing."
            )
        self._refresh_rate = max(int(os.environ.get("TQDM_MINITERS", 0)), refresh_rate)
        self._process_position = process_position
        self._leave = leave
        self._enabled = True
        self._train_progress_bar: Any = None
        self._val_progress_bar: Any = None
        self._test_progress_bar: Any = None
        self._predict_progress_bar: Any = None
        self._next_draw = 0.0

    def __getstate__(self) -> dict[str, Any]:
        # Bars can't be pickled.
        return {name: None if name.endswith("_progress_bar") else value for name, value in vars(self).items()}

    @property
    def train_progress_bar(self) -> Any:
        """The training's bar. Like the others it can be set, and is a TypeError before it is there."""
        return self._made(self._train_progress_bar, "train_progress_bar")

    @train_progress_bar.setter
    def train_progress_bar(self, bar: Any) -> None:
        self._train_progress_bar = bar

    @property
    def val_progress_bar(self) -> Any:
        """The bar of validation and sanity check."""
        return self._made(self._val_progress_bar, "val_progress_bar")

    @val_progress_bar.setter
    def val_progress_bar(self, bar: Any) -> None:
        self._val_progress_bar = bar

    @property
    def test_progress_bar(self) -> Any:
        """The bar of a test."""
        return self._made(self._test_progress_bar, "test_progress_bar")

    @test_progress_bar.setter
    def test_progress_bar(self, bar: Any) -> None:
        self._test_progress_bar = bar

    @property
    def predict_progress_bar(self) -> Any:
        """The bar of a prediction."""
        return self._made(self._predict_progress_bar, "predict_progress_bar")

    @predict_progress_bar.setter
    def predict_progress_bar(self, bar: Any) -> None:
        self._predict_progress_bar = bar

    def _made(self, bar: Any, name: str) -> Any:
        if bar is None:
            raise TypeError(f"There is no `{type(self).__name__}.{name}` before its stage has begun.")
        return bar

    @property
    def refresh_rate(self) -> int:
        """Batches between two looks at the clock."""
        return self._refresh_rate

    @property
    def process_position(self) -> int:
        """Lines that are left free above."""
        return self._process_position

    @property
    def is_enabled(self) -> bool:
        """Whether there are bars."""
        return self._enabled and self._refresh_rate > 0

    @property
    def is_disabled(self) -> bool:
        """Whether there are none."""
        return not self.is_enabled

    def enable(self) -> None:
        """Show bars."""
        self._enabled = True

    def disable(self) -> None:
        """Show no bars."""
        self._enabled = False

    # The bars.

    def init_sanity_tqdm(self) -> Any:
        """Return the bar of the sanity check."""
        return self._bar(self.sanity_check_description, leave=False)

    def init_train_tqdm(self) -> Any:
        """Return the bar of the training."""
        return self._bar(self.train_description, leave=True, smoothing=0)

    def init_validation_tqdm(self) -> Any:
        """Return the bar of a validation; below the training's, if there is one."""
        within_fit = self.trainer.state.fn != "validate"
        return self._bar(self.validation_description, leave=not within_fit, line=int(within_fit))

    def init_test_tqdm(self) -> Any:
        """Return the bar of a test."""
        return self._bar(self.test_description, leave=True)

    def init_predict_tqdm(self) -> Any:
        """Return the bar of a prediction."""
        return self._bar(self.predict_description, leave=True, smoothing=0)

    def _bar(self, description: str, leave: bool, line: int = 0, **kwargs: Any) -> Any:
        from tqdm import tqdm

        return tqdm(
            desc=description,
            position=2 * self._process_position + line,
            disable=self.is_disabled,
            leave=leave,
            dynamic_ncols=True,
            file=sys.stderr,
            bar_format=self.BAR_FORMAT,
            **kwargs,
        )

    def print(self, *args: Any, sep: str = " ", **kwargs: Any) -> None:
        """Print above the bars."""
        bars = (self._train_progress_bar, self._val_progress_bar, self._test_progress_bar, self._predict_progress_bar)
        bar = next((bar for bar in bars if bar is not None and not bar.disable), None)
        if bar is None:
            super().print(*args, sep=sep, **kwargs)
        else:
            kwargs.pop("flush", None)
            bar.write(sep.join(map(str, args)), **kwargs)

    # Hooks.

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.reset_dataloader_idx_tracker()
        self.val_progress_bar = self.init_sanity_tqdm()

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.val_progress_bar.close()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.train_progress_bar = self.init_train_tqdm()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._leave and trainer.current_epoch > 0:
            self.train_progress_bar = self.init_train_tqdm()
        self._begin(
            self.train_progress_bar, self.total_train_batches, f"{self.train_description} {trainer.current_epoch}"
        )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: StepOutput, batch: Any, batch_idx: int
    ) -> None:
        bar = self.train_progress_bar
        if self._is_due(bar, batch_idx + 1):
            begin = time.perf_counter()
            bar.set_postfix(self.get_metrics(trainer, pl_module), refresh=False)
            self._draw(bar, batch_idx + 1, begin)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        bar = self.train_progress_bar
        if not bar.disable:
            bar.set_postfix(self.get_metrics(trainer, pl_module))
        if self._leave:
            bar.close()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.train_progress_bar.close()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self.reset_dataloader_idx_tracker()
            self.val_progress_bar = self.init_validation_tqdm()

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self.has_dataloader_changed(dataloader_idx):
            what = self.sanity_check_description if trainer.sanity_checking else self.validation_description
            total = self.total_val_batches_current_dataloader
            self._begin(self.val_progress_bar, total, f"{what} DataLoader {dataloader_idx}")

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: StepOutput,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._advance(self.val_progress_bar, batch_idx + 1)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.val_progress_bar.close()
        self.reset_dataloader_idx_tracker()
        bar = self._train_progress_bar
        if bar is not None and not bar.disable and trainer.state.fn == "fit":
            bar.set_postfix(self.get_metrics(trainer, pl_module))

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.reset_dataloader_idx_tracker()
        self.test_progress_bar = self.init_test_tqdm()

    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self.has_dataloader_changed(dataloader_idx):
            total = self.total_test_batches_current_dataloader
            self._begin(self.test_progress_bar, total, f"{self.test_description} DataLoader {dataloader_idx}")

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: StepOutput,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._advance(self.test_progress_bar, batch_idx + 1)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.test_progress_bar.close()

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.reset_dataloader_idx_tracker()
        self.predict_progress_bar = self.init_predict_tqdm()

    def on_predict_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self.has_dataloader_changed(dataloader_idx):
            total = self.total_predict_batches_current_dataloader
            self._begin(self.predict_progress_bar, total, f"{self.predict_description} DataLoader {dataloader_idx}")

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._advance(self.predict_progress_bar, batch_idx + 1)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.predict_progress_bar.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        for bar in (self._val_progress_bar, self._train_progress_bar, self._test_progress_bar):
            if bar is not None:
                bar.close()

    # What they share.

    def _begin(self, bar: Any, total: float, description: str) -> None:
        bar.reset(total=int(total) if math.isfinite(total) else None)
        bar.initial = 0
        bar.set_description(description)

    def _advance(self, bar: Any, completed: int) -> None:
        if self._is_due(bar, completed):
            self._draw(bar, completed, time.perf_counter())

    def _is_due(self, bar: Any, completed: int) -> bool:
        if bar.disable:
            return False
        if completed == bar.total:
            return True
        return completed % self._refresh_rate == 0 and time.perf_counter() >= self._next_draw

    def _draw(self, bar: Any, completed: int, begin: float) -> None:
        bar.n = completed
        bar.refresh()
        end = time.perf_counter()
        self._next_draw = end + max(INTERVAL, (end - begin) / SHARE)
