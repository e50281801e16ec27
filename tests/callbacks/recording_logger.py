"""A logger that keeps what it is given, for both libraries."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.loggers import Logger as ReferenceLogger

from tests.trainer.side_by_side import OURS, Library
from unstuck.loggers import Logger


def make_logger(library: Library) -> Any:
    """A logger of the library's own class; ``rows`` has a (step, metrics) for each call."""
    base: Any = Logger if library is OURS else ReferenceLogger

    class Recording(base):  # type: ignore[misc]
        name = "recording"
        version = 0

        def __init__(self) -> None:
            super().__init__()
            self.rows: list[tuple[int | None, dict[str, float]]] = []

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            self.rows.append((step, dict(metrics)))

        def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None: ...

    return Recording()
