"""Who watches a fit for values that aren't finite, and what the user is told.

Automatic optimisation tells a watcher of its own, which costs a few microseconds a step; manual optimisation does what
it likes, so there torch's hooks are used, as by ``unstuck run``. Where the process is watched already, that session
stands for both and is only told the Trainer's position.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unstuck.errors import NonFiniteError
from unstuck.messages import global_rank, rank_zero_warn
from unstuck.places import display_path
from unstuck.trainer.state import TrainerFn

if TYPE_CHECKING:
    from unstuck.findings import Finding
    from unstuck.session.incident_desk import IncidentDesk
    from unstuck.trainer.run import Run
    from unstuck.trials.dropping import StepDropper

__all__ = ["text_of", "watched"]


def _is_anomaly(finding: Finding) -> bool:
    """Whether something isn't finite; gradients that are clipped while scaled, or flushed to zero, end no fit."""
    return finding.code != "numerics.amp-order" and "flushed to zero" not in finding.evidence


@contextmanager
def watched(run: Run) -> Iterator[None]:
    """Inside, a fit, validation or test is watched.

    Raises:
        NonFiniteError: at the first value that isn't finite, with ``detect_anomaly="replay"``.
    """
    if run.settings.barebones or _is_trial():
        yield
        return
    # what watches is imported when something runs, not with the Trainer
    from unstuck.session.guarding import Guarding
    from unstuck.trainer.nonfinite.evaluation import NonfiniteEvaluationWatcher
    from unstuck.trainer.nonfinite.watcher import NonfiniteWatcher

    session = _active_session()
    desk = _desk(run, session)
    run.evaluation_watcher = NonfiniteEvaluationWatcher(run, desk)
    fits = run.state.fn == TrainerFn.FITTING
    watcher: NonfiniteWatcher | Guarding | None = None
    try:
        with ExitStack() as around:
            if session is not None:
                around.enter_context(session.describing(run.module, lambda: _position(run)))
            elif fits and run.module.automatic_optimization:
                run.watcher = watcher = NonfiniteWatcher(run, desk)
            elif fits:
                stop = _end if run.settings.on_nonfinite == "skip-step" else None
                guarding = Guarding(desk, (NonFiniteError,), stop, run.strategy.optimizers)
                watcher = around.enter_context(guarding)
            yield
            if isinstance(run.watcher, NonfiniteWatcher):
                run.watcher.finish()
    finally:
        run.watcher = run.evaluation_watcher = None
        if watcher is not None and watcher.dropper is not None:
            _tell_of_dropped_steps(watcher.dropper)


def _tell_of_dropped_steps(dropper: StepDropper) -> None:
    from unstuck.trials.dropping import listed

    if dropper.dropped:
        places = listed(dropper)
        rank_zero_warn(
            f"`Trainer.fit` dropped {dropper.dropped} step(s) that weren't finite{': ' if places else ''}{places}."
        )


def _active_session() -> Any:
    """The session that watches this process; nothing is imported for a process without one."""
    loaded = sys.modules.get("unstuck.session.session")
    return None if loaded is None else loaded.Session._active


def _is_trial() -> bool:
    """Whether this runs on copies to find something out, so that nobody is told of it."""
    loaded = sys.modules.get("unstuck.session.session")
    return loaded is not None and loaded.Session._trials > 0 and loaded.Session._active is None


def _end() -> None:
    raise NonFiniteError("too many steps in a row weren't finite and were dropped: the fit ends")


def _position(run: Run) -> dict[str, Any]:
    return {"epoch": run.progress.current_epoch, "global step": run.progress.global_step}


def _desk(run: Run, session: Any) -> IncidentDesk:
    from unstuck.session.incident_desk import IncidentDesk

    raises = run.settings.detect_anomaly == "replay"
    main = getattr(sys.modules.get("__main__"), "__file__", None)

    def folder() -> Path:
        name = f"{type(run.module).__name__}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        return Path(run.trainer.default_root_dir) / "unstuck-out" / name

    def tell(finding: Finding, saved: str | None) -> None:
        text = text_of(finding, saved, os.getcwd())
        if raises and _is_anomaly(finding):
            raise NonFiniteError(text, finding)
        if session is None and global_rank() == 0:  # a session reports at its end
            where = finding.where
            # the place that matters is that of the operation, not that of our call
            warnings.warn_explicit(text, UserWarning, where.file or "<unknown>", where.line or 1)

    return IncidentDesk(
        folder,
        lambda: _position(run),
        tell,
        None if main is None else Path(main),
        None if session is None else session.recording,
    )


def text_of(finding: Finding, saved: str | None, folder: str) -> str:
    """A finding in a few lines, for a warning or an exception.

    Args:
        finding: what was found.
        saved: where its incident was saved.
        folder: paths below it become relative to it.
    """
    where = finding.where
    place = "" if where.file is None else f" at {display_path(where.file, folder)}:{where.line}"
    known = {
        "op": where.op,
        "module": where.module,
        "parameter": where.parameter,
        "loader": finding.evidence.get("loader"),
        "epoch": finding.evidence.get("epoch"),
        "batch": where.batch,
        "sample": where.sample,
        "dataset index": finding.evidence.get("dataset index"),
        "step": where.step,
        "global step": finding.evidence.get("global step"),
    }
    parts = ", ".join(f"{name} {value}" for name, value in known.items() if value not in (None, ""))
    lines = [f"{finding.code}{place}: {finding.summary}", f"  {parts}"]
    if len(where.chain) > 1:
        calls = " > ".join(f"{display_path(frame.file, folder)}:{frame.line} {frame.function}" for frame in where.chain)
        lines.append(f"  via {calls}")
    lines += [f"  note: {note}" for note in finding.notes]
    lines.append(f"  fix: {finding.remedy}")
    if saved is not None:
        lines.append(f"  saved: {display_path(saved, folder)}")
    return "\n".join(lines)
