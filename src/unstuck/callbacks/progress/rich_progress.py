"""The progress bar that the Trainer uses unless told otherwise."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from unstuck.callbacks.progress.pace import Pace
from unstuck.callbacks.progress.plain_display import PlainDisplay
from unstuck.callbacks.progress.progress_bar import ProgressBar
from unstuck.callbacks.progress.rich_display import RichDisplay, RichProgressBarTheme, default_columns
from unstuck.console import console

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

    from unstuck.callbacks.callback import StepOutput
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["RichProgressBar"]

# Drawing may take this part of the time.
SHARE = 0.005


class RichProgressBar(ProgressBar):
    """Bars in a terminal; plain lines with the same content where the output is none.

    It draws as rarely as needed to take less than one percent of the time, in a terminal at most five times a second,
    else at most every ten seconds and at the ends of epochs.

    Args:
        refresh_rate: look at the clock every so many batches; 0 for no progress at all.
        leave: whether the bars of ended epochs stay.
        theme: styles and formats.
        console_kwargs: for a ``rich.console.Console`` of its own instead of the package's.
    """

    def __init__(
        self,
        refresh_rate: int = 1,
        leave: bool = False,
        theme: RichProgressBarTheme | None = None,
        console_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.theme = theme or RichProgressBarTheme()
        self._refresh_rate = refresh_rate
        self._leave = leave
        self._console_kwargs = console_kwargs
        self._own_console: Console | None = None
        self._enabled = True
        self._display: RichDisplay | PlainDisplay | None = None
        self._paces: dict[str, Pace] = {}
        # When drawing is due, and until when it would take more than its share.
        self._next_draw = 0.0
        self._paid_until = 0.0
        self._drawn_at: dict[str, float] = {}
        self._undrawn_end: Pace | None = None

    @property
    def refresh_rate(self) -> int:
        """Batches between two looks at the clock."""
        return self._refresh_rate

    @property
    def is_enabled(self) -> bool:
        """Whether progress is shown."""
        return self._enabled and self._refresh_rate > 0

    @property
    def is_disabled(self) -> bool:
        """Whether progress isn't shown."""
        return not self.is_enabled

    def enable(self) -> None:
        """Show progress."""
        self._enabled = True

    def disable(self) -> None:
        """Show no progress."""
        self._enabled = False
        self._stop()

    def configure_columns(self, trainer: Trainer) -> list[ProgressColumn]:
        """Return rich's columns for the bars. Override it to show others."""
        return default_columns(self.theme)

    # Hooks.

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.reset_dataloader_idx_tracker()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        last = trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs >= 0 else None
        epoch = trainer.current_epoch
        description = f"{self.train_description} {epoch}" + ("" if last is None else f"/{last - 1}")
        epochs_left = None if last is None else max(last - 1 - epoch, 0)
        self._begin("train", description, self.total_train_batches, epochs_left)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: StepOutput, batch: Any, batch_idx: int
    ) -> None:
        self._advance("train", batch_idx)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end("train")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter_evaluation()

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self.has_dataloader_changed(dataloader_idx):
            description = self.sanity_check_description if trainer.sanity_checking else self.validation_description
            self._begin("validate", self._numbered(description), self.total_val_batches_current_dataloader)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: StepOutput,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._advance("validate", batch_idx)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._leave_evaluation("validate")

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter_evaluation()

    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self.has_dataloader_changed(dataloader_idx):
            description = self._numbered(self.test_description)
            self._begin("test", description, self.total_test_batches_current_dataloader)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: StepOutput,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._advance("test", batch_idx)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._leave_evaluation("test")

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enter_evaluation()

    def on_predict_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self.has_dataloader_changed(dataloader_idx):
            description = self._numbered(self.predict_description)
            self._begin("predict", description, self.total_predict_batches_current_dataloader)

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._advance("predict", batch_idx)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._leave_evaluation("predict")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._stop()

    # What they share.

    def _enter_evaluation(self) -> None:
        self.reset_dataloader_idx_tracker()
        for pace in self._paces.values():
            pace.pause()

    def _leave_evaluation(self, name: str) -> None:
        self._end(name)
        for pace in self._paces.values():
            pace.resume()

    def _begin(self, name: str, description: str, total: int | float, epochs_left: int | None = None) -> None:
        if self.is_disabled:
            return
        pace = self._paces[name] = Pace(name, description, total, epochs_left)
        if self._start().draws_at_once and time.perf_counter() >= self._paid_until:
            self._draw(pace)

    def _advance(self, name: str, batch_idx: int) -> None:
        pace = self._paces.get(name)
        if pace is None:
            return
        pace.completed = batch_idx + 1
        if pace.completed % self._refresh_rate == 0 and time.perf_counter() >= self._next_draw:
            self._draw(pace)

    def _end(self, name: str) -> None:
        pace = self._paces.pop(name, None)
        if pace is None:
            return
        pace.pause()
        display = self._start()
        nested = bool(self._paces)
        if not nested:  # else the loop around shows the same metrics soon
            now = time.perf_counter()
            if now >= self._paid_until and now - self._drawn_at.get(name, 0.0) >= display.closing_interval:
                self._draw(pace)
            else:
                self._undrawn_end = pace
        display.close(name, nested)

    def _draw(self, pace: Pace) -> None:
        metrics = self.get_metrics(self.trainer, self.trainer.lightning_module)
        display = self._start()
        # Waiting for the metrics is the device's time; what follows is ours.
        begin = time.perf_counter()
        display.show(pace.stretch(), metrics)
        end = time.perf_counter()
        self._undrawn_end = None
        self._drawn_at[pace.name] = end
        self._paid_until = end + (end - begin) / SHARE
        self._next_draw = max(end + display.interval, self._paid_until)

    def _start(self) -> RichDisplay | PlainDisplay:
        if self._display is None:
            terminal = self._console()
            if terminal.is_terminal or terminal.is_jupyter:
                columns = self.configure_columns(self.trainer)
                self._display = RichDisplay(terminal, columns, self._leave, self.theme)
            else:
                self._display = PlainDisplay(terminal, self.theme.metrics_format)
                self._next_draw = time.perf_counter() + self._display.interval
        return self._display

    def _stop(self) -> None:
        display, undrawn, self._paces, self._undrawn_end = self._display, self._undrawn_end, {}, None
        if display is None:
            return
        try:
            if undrawn is not None:
                self._draw(undrawn)
        finally:
            display.stop()
            self._display = None

    def _console(self) -> Console:
        if self._console_kwargs is None:
            return console()
        if self._own_console is None:
            from rich.console import Console

            self._own_console = Console(**self._console_kwargs)
        return self._own_console

    def _numbered(self, description: str) -> str:
        idx = self._current_dataloader_idx
        return f"{description} DataLoader {idx}" if idx else description
