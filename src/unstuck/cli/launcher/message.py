"""What the command line tells the user's process: how to watch and where to report. Plain data, JSON on the way."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["Message"]


@dataclass(frozen=True)
class Message:
    """One watched run.

    Attributes:
        target: the script as it was given, or the module's dotted name.
        is_module: whether ``target`` is run with ``-m``.
        arguments: the script's own arguments.
        folder: working folder at the start, to which places in the report are relative.
        out: absolute path of the output folder.
        json_file: absolute path of one more copy of the report.
        steps: number of optimiser steps after which the run is stopped; None for no limit.
        on_nonfinite: ``stop``, ``continue`` or ``skip-step``: what to do at an incident.
        rerun: whether a step that can't be replayed may be explained by a second run from the start.
        quiet: print nothing.
        budget: seconds that trials on copies may take at the end.
        trace_step: trace everything from this optimiser step on: the run is the second one, which explains the first.
        replay: folder of the incident whose step is repeated in the place of the program's first one.
    """

    target: str
    is_module: bool
    arguments: tuple[str, ...]
    folder: str
    out: str
    json_file: str | None
    steps: int | None
    on_nonfinite: str
    rerun: bool
    quiet: bool
    budget: float = 20.0
    trace_step: int | None = None
    replay: str | None = None

    def encode(self) -> str:
        """One string, fit for an environment variable."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> Message:
        """The inverse of :meth:`encode`."""
        values = json.loads(text)
        return Message(**{**values, "arguments": tuple(values["arguments"])})
