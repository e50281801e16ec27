"""``unstuck.watch``: the debugger in a loop that is written by hand, a notebook, or any other program's process."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import torch

from unstuck.errors import MisconfigurationException
from unstuck.findings import Finding
from unstuck.places import Frame
from unstuck.record.recording import Recording
from unstuck.report.files import write_report
from unstuck.report.terminal import show
from unstuck.session.options import Ending, SessionOptions, Verdict
from unstuck.session.session import Session, StopRun

__all__ = ["Watch", "watch"]

Item = TypeVar("Item")


class Watch:
    """A training loop under watch, from :func:`watch` until :meth:`close` or the end of its ``with`` block.

    Attributes:
        recording: what was recorded so far: losses, gradient norms, updates, clipping, loss scaling.
    """

    def __init__(self, session: Session, out: Path | None) -> None:
        self._session = session
        self._out = out
        self._verdict: Verdict | None = None
        self.recording: Recording = session.recording
        session.start()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, StopRun):
            self._close(Ending("completed"))
        else:
            self._close(Ending("interrupt" if issubclass(kind, KeyboardInterrupt) else "exception", exception=error))

    @contextmanager
    def step(self, batch: Any = None) -> Iterator[None]:
        """One step of the loop works on ``batch``: wanted only where no DataLoader gives the batches.

        The batch's index and, should a value turn non-finite, its samples are then known too.

        Args:
            batch: tensors, or lists and dictionaries of them, with the samples along the first dimension.
        """
        if self._verdict is None:
            self._session.take_batch(self, batch)
        yield

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found so far, the most important first."""
        return self._now().findings

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What could not be checked so far, and why, a phrase each."""
        return self._now().unchecked

    def report(self) -> None:
        """Print what was found so far on the console, in at most one screen."""
        show(self._as_report(self._now()))

    def optimizer_place(self, optimizer: torch.optim.Optimizer | None) -> tuple[Frame, ...]:
        """The user's lines that constructed an optimiser since the watch began, outermost first; empty if unknown."""
        return () if optimizer is None else self._session.optimizer_place(optimizer)

    def close(self) -> None:
        """Stop watching and leave torch as it was found; calling it again does nothing."""
        self._close(Ending("completed"))

    def _close(self, ending: Ending) -> None:
        if self._verdict is not None:
            return
        self._verdict = self._session.finish(ending)
        if self._out is not None:
            write_report(self._out, self._as_report(self._verdict))

    def _now(self) -> Verdict:
        return self._session.so_far() if self._verdict is None else self._verdict

    def _as_report(self, verdict: Verdict) -> dict[str, Any]:
        report = verdict.as_json(str(Path.cwd()))
        return {**report, "out": None if self._out is None else str(self._out)}


def watch(
    model: torch.nn.Module | Iterable[torch.nn.Module] | None = None,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    out: str | Path | None = None,
    on_nonfinite: Literal["stop", "continue", "skip-step"] = "continue",
    every_gradient: bool = False,
    budget: float = 20.0,
) -> Watch:
    """Watch a training loop in this process for what keeps it from learning::

        with unstuck.watch(model, optimizer) as watch:
            for x, y in loader:
                ...
        watch.report()

    or without a block: ``watch = unstuck.watch(model, optimizer)``, and ``watch.close()`` after the loop. It sees what
    torch does through hooks and patches that are taken away at the end.

    Args:
        model: watch only this model's passes, or those of several; all in the process if it is left out.
        optimizer: watch only this optimiser's steps, or those of several; all of the model's if it is left out.
        out: folder for the recording, the report and incidents; nothing is written if it is left out.
        on_nonfinite: at a loss, gradient or parameter that turns NaN or infinite ``continue`` the loop, or ``stop`` it
            by a ``SystemExit`` with exit code 3, as ``unstuck run`` does; or ``skip-step``: drop the step, so that
            weights, buffers, optimiser and loss scaler are as if its batch had not been (stops after ten in a row).
        every_gradient: record all gradient norms at every step; otherwise as often as 1 % of a step's time allows.
        budget: seconds that trials on copies may take when the watch is closed, where something is suspected; 0 for
            none.

    Returns:
        The running watch.

    Raises:
        MisconfigurationException: this process is watched already, or an argument is of another kind.
    """
    models = _several(model, torch.nn.Module, "model")
    optimizers = _several(optimizer, torch.optim.Optimizer, "optimizer")
    if on_nonfinite not in ("stop", "continue", "skip-step"):
        raise MisconfigurationException(
            f"`on_nonfinite` must be 'stop', 'continue' or 'skip-step', got {on_nonfinite!r}"
        )
    folder = None if out is None else Path(out).absolute()
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    options = SessionOptions(
        out=folder,
        on_nonfinite=on_nonfinite,
        script=None if main is None else Path(main),
        every_gradient=every_gradient,
        budget=budget,
    )
    return Watch(Session(options, models, optimizers), folder)


def _several(given: Any, kind: type[Item], name: str) -> list[Item]:
    """One item or several as a list.

    Raises:
        MisconfigurationException: something else was given.
    """
    if given is None:
        return []
    items = [given] if isinstance(given, kind) or not isinstance(given, Iterable) else list(given)
    for item in items:
        if not isinstance(item, kind):
            raise MisconfigurationException(
                f"`{name}` must be a {kind.__module__.partition('.')[0]} {kind.__name__} or several, "
                f"got {type(item).__name__}"
            )
    return items
