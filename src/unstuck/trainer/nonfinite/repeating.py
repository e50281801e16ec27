"""What it takes to call a step method of the user's module again: in this process, and in another one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unstuck.instruments.moments import FrameMoment, Moment
from unstuck.measure.rng import RandomState
from unstuck.trials.incident_folder import sha256_of

if TYPE_CHECKING:
    from unstuck.trainer.run import Run

__all__ = ["call_moment", "rebuild_of"]


def call_moment(run: Run, method: str, arguments: tuple[Any, ...], start: RandomState) -> Moment:
    """The moment before a step method of the user's module was called."""
    module = run.module
    step = run.precision.wrap_step(getattr(module, method))
    scope = module.__dict__

    def call() -> Any:
        around = scope["_current_fx_name"]
        scope["_current_fx_name"] = method
        try:
            return step(*arguments)
        finally:
            scope["_current_fx_name"] = around

    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        frames.append(FrameMoment(id(frame), frame.f_code, frame.f_lasti, None, {}))
        frame = frame.f_back  # type: ignore[assignment]
    return Moment("call", tuple(frames), start, module=module, args=arguments, call=call)


def rebuild_of(run: Run, method: str, arguments: tuple[Any, ...] | None) -> dict[str, Any]:
    """What another process needs to make the module again and call its method."""
    kind = type(run.module)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return {
        "kind": "trainer",
        "module": kind.__module__,
        "class": kind.__qualname__,
        "file": file,
        "sha256": None if file is None else sha256_of(Path(file)),
        "method": method,
        "precision": run.precision.precision,
        "batch_position": 0,
        "plain_arguments": [] if arguments is None else [item for item in arguments[1:] if isinstance(item, int)],
        "hyper_parameters": dict(getattr(run.module, "hparams_initial", {}) or {}),
    }
