"""The table of results that validate and test print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unstuck.console import console
from unstuck.trainer.results.values import to_scalars

__all__ = ["print_results"]


def print_results(results: list[dict[str, Any]], stage: str) -> None:
    """Prints one column per loader, one row per metric.

    Args:
        results: the metrics of each loader.
        stage: "validate" or "test", for the heading.
    """
    if not any(results):
        return
    from rich.markup import escape
    from rich.table import Table

    columns = [_plain_names(metrics) for metrics in results]
    table = Table()
    table.add_column(f"{stage.capitalize()} metric", no_wrap=True)
    for index in range(len(columns)):
        table.add_column(f"DataLoader {index}", justify="right", no_wrap=True)
    for name in sorted({name for column in columns for name in column}):
        table.add_row(escape(name), *(str(column.get(name, "")) for column in columns))
    console().print(table)


def _plain_names(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics without the suffix that tells their loader: the column tells it."""
    return {name.split("/dataloader_idx_")[0]: value for name, value in to_scalars(metrics).items()}
