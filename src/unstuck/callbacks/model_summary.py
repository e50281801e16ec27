"""Tells, when a fit begins, what the model is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unstuck.callbacks.callback import Callback
from unstuck.console import console
from unstuck.messages import rank_zero_info, rank_zero_warn
from unstuck.utilities.model_summary import (
    format_summary_table,
    get_formatted_model_size,
    get_human_readable_count,
    summarize,
)

if TYPE_CHECKING:
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer

__all__ = ["ModelSummary", "RichModelSummary"]


class ModelSummary(Callback):
    """Logs a table of the model's layers when a fit begins.

    Args:
        max_depth: levels of modules to show; -1 for all, 0 for no summary.
        summarize_kwargs: for :meth:`summarize`.
    """

    def __init__(self, max_depth: int = 1, **summarize_kwargs: Any) -> None:
        self._max_depth = max_depth
        self._summarize_kwargs = summarize_kwargs

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._max_depth == 0:
            return
        try:
            summary = summarize(pl_module, max_depth=self._max_depth)
            arguments: dict[str, Any] = {
                "summary_data": summary._get_summary_data(),
                "total_parameters": summary.total_parameters,
                "trainable_parameters": summary.trainable_parameters,
                "model_size": summary.model_size,
                "total_training_modes": summary.total_training_modes,
                "total_flops": summary.total_flops,
            }
        except ValueError:
            raise
        except Exception as error:  # noqa: BLE001 - a summary stops no training
            rank_zero_warn(f"There is no model summary: making it raised {type(error).__name__}: {error}")
            return
        if trainer.is_global_zero:
            self.summarize(**arguments, **self._summarize_kwargs)

    @staticmethod
    def summarize(
        summary_data: list[tuple[str, list[str]]],
        total_parameters: int,
        trainable_parameters: int,
        model_size: float,
        total_training_modes: dict[str, int],
        total_flops: int,
        **summarize_kwargs: Any,
    ) -> None:
        """Show the table. Override it to show something else.

        Args:
            summary_data: header and cells of each column.
            total_parameters: elements of all parameters.
            trainable_parameters: of those that require gradients.
            model_size: in megabytes.
            total_training_modes: modules in mode ``"train"`` and ``"eval"``.
            total_flops: floating-point operations of the example's forward pass.
            summarize_kwargs: as given to the callback.
        """
        table = format_summary_table(
            total_parameters, trainable_parameters, model_size, total_training_modes, total_flops, *summary_data
        )
        rank_zero_info("\n" + table)


class RichModelSummary(ModelSummary):
    """The same with lines and colours in a terminal; where the output is none, the plain table.

    Args:
        max_depth: levels of modules to show; -1 for all, 0 for no summary.
        summarize_kwargs: ``header_style`` (rich's style of the header).
    """

    @staticmethod
    def summarize(
        summary_data: list[tuple[str, list[str]]],
        total_parameters: int,
        trainable_parameters: int,
        model_size: float,
        total_training_modes: dict[str, int],
        total_flops: int,
        **summarize_kwargs: Any,
    ) -> None:
        terminal = console()
        if not (terminal.is_terminal or terminal.is_jupyter):
            table = format_summary_table(
                total_parameters, trainable_parameters, model_size, total_training_modes, total_flops, *summary_data
            )
            terminal.print(table, markup=False, soft_wrap=True)
            return
        from rich.table import Table
        from rich.text import Text

        drawn = Table(header_style=summarize_kwargs.get("header_style", "bold magenta"))
        for header, _ in summary_data:
            left = header in (" ", "Name", "Type", "Mode")
            drawn.add_column(header, justify="left" if left else "right", style="dim" if header == " " else "")
        for row in zip(*(cells for _, cells in summary_data), strict=True):
            drawn.add_row(*map(Text, row))
        terminal.print(drawn)
        totals = {
            "Trainable params": get_human_readable_count(trainable_parameters),
            "Non-trainable params": get_human_readable_count(total_parameters - trainable_parameters),
            "Total params": get_human_readable_count(total_parameters),
            "Total estimated model params size (MB)": get_formatted_model_size(model_size),
            "Modules in train mode": total_training_modes["train"],
            "Modules in eval mode": total_training_modes["eval"],
            "Total FLOPs": get_human_readable_count(total_flops),
        }
        for what, number in totals.items():
            terminal.print(f"[bold]{what}[/]: {number}")
