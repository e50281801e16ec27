"""What a session is asked for and what it answers: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unstuck.findings import Finding
from unstuck.trials.incident_folder import SavedIncident

__all__ = ["Ending", "SessionOptions", "Verdict"]


@dataclass(frozen=True)
class SessionOptions:
    """How to watch.

    Attributes:
        out: folder for the recording, the report and incidents; made when something is written.
        steps: optimiser steps after which the run is stopped; None for no limit.
        on_nonfinite: at an incident ``stop`` the run or ``continue`` it, or ``skip-step``: drop the step.
        rerun: an incident that can't be replayed may be explained by a second run from the start.
        script: the program's file.
        every_gradient: record the norms of all gradients at every step, whatever it costs.
        trace_step: trace everything from this step on, live, and stop at the first incident (the second run).
        budget: seconds that trials on copies may take at the end, all together; 0 for none.
        quiet: show no progress of them.
        decide_on_device: with ``skip-step``, let fused optimisers decide on any device.
        replay: repeat the step of this incident in the place of the program's first one.
    """

    out: Path | None = None
    steps: int | None = None
    on_nonfinite: Literal["stop", "continue", "skip-step"] = "stop"
    rerun: bool = False
    script: Path | None = None
    trace_step: int | None = None
    every_gradient: bool = False
    budget: float = 20.0
    quiet: bool = False
    decide_on_device: bool = False
    replay: SavedIncident | None = None


@dataclass(frozen=True)
class Ending:
    """How the user's program ended: ``completed``, ``exception``, ``interrupt``, ``exit`` or ``stopped``."""

    kind: str
    code: int | None = None
    exception: BaseException | None = None


@dataclass(frozen=True)
class Verdict:
    """What a session found.

    Attributes:
        findings: the most important first.
        watched: phrases that count what was watched (``2 optimisers``).
        unchecked: what could not be checked and why, one phrase each.
        cost: share of the run's time that watching took, None if nothing ran.
        stopped: ``incident`` or ``steps`` when the session ended the run, else None.
        ending: how the program ended.
        incidents: folders in which incidents were saved.
        rerun_step: step that a second run has to trace, None when none is needed.
    """

    findings: tuple[Finding, ...] = ()
    watched: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    cost: float | None = None
    stopped: str | None = None
    ending: str = "completed"
    incidents: tuple[str, ...] = ()
    rerun_step: int | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self, folder: str) -> dict[str, Any]:
        """Strict-JSON form; paths below ``folder`` become relative to it."""
        return {
            "findings": [finding.as_json(folder) for finding in self.findings],
            "watched": list(self.watched),
            "unchecked": list(self.unchecked),
            "cost": self.cost,
            "stopped": self.stopped,
            "ending": {"kind": self.ending},
            "incidents": list(self.incidents),
            "rerun_step": self.rerun_step,
            **self.details,
        }
