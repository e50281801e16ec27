"""The recording of a run: plain events in memory for the rules, and the same as JSON lines on disk as they come.

A killed process leaves everything that was written before; a reader ignores a last line that is cut off.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from unstuck.errors import RecordError
from unstuck.findings.finding import jsonable
from unstuck.places import Frame
from unstuck.record.incident import IncidentRecord, UpdateRecord
from unstuck.record.origin import Origin, TensorSummary

__all__ = ["RECORDING_NAME", "Recording", "load_recording"]

RECORDING_NAME = "recording.jsonl"
_FORMAT = 1
_FLUSH_SECONDS = 1.0
_BLOCK = 512
"""Losses that are written as one line."""


class Recording:
    """What a run has told so far.

    Attributes:
        incidents: every incident, in order.
        facts: what was seen of the program by name (numbers and short strings).
        losses: the last loss values with their steps, at most a few thousand; earlier ones are on disk only.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.incidents: list[IncidentRecord] = []
        self.facts: dict[str, Any] = {}
        self.losses: list[tuple[int, float]] = []
        self._path = path
        self._file: IO[str] | None = None
        self._block: list[tuple[int, float]] = []
        self._written_at = time.monotonic()
        self._failed = False

    def add_loss(self, step: int, value: float) -> None:
        """A scalar loss whose gradients are being computed, at the step with this index."""
        self._block.append((step, value))
        if len(self._block) >= _BLOCK or (
            len(self._block) % 16 == 0 and time.monotonic() - self._written_at > _FLUSH_SECONDS
        ):
            self.flush()

    def add_incident(self, incident: IncidentRecord) -> None:
        """An incident; written at once."""
        self.incidents.append(incident)
        self.flush()
        self._write({"event": "incident", **asdict(incident)})

    def set_facts(self, facts: dict[str, Any]) -> None:
        """What was seen of the program; later values replace earlier ones."""
        self.facts.update(facts)
        self._write({"event": "facts", **facts})

    def flush(self) -> None:
        """Write what is waiting."""
        self._written_at = time.monotonic()
        if self._block:
            self.losses = (self.losses + self._block)[-8 * _BLOCK :]
            steps, values = zip(*self._block, strict=True)
            self._block = []
            self._write({"event": "losses", "steps": steps, "values": values})

    def close(self) -> None:
        """Write what is waiting and close the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, event: dict[str, Any]) -> None:
        if self._path is None or self._failed:
            return
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 - open for the whole run
                header = {"event": "header", "format": _FORMAT, "process": os.getpid()}
                self._file.write(json.dumps(header) + "\n")
            self._file.write(json.dumps(jsonable(event), separators=(",", ":"), allow_nan=False) + "\n")
            self._file.flush()
        except OSError:
            # A full disk must not end the user's run; the verdict doesn't need the file.
            self._failed = True


def load_recording(path: Path) -> Recording:
    """Read a recording that a run has left.

    Raises:
        RecordError: there is none, or the file is something else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"can't read the recording {path}: {error}") from error
    events: list[dict[str, Any]] = []
    for index, line in enumerate(lines):
        try:
            event = json.loads(line)
        except ValueError as error:
            if index == len(lines) - 1 and events:
                break  # the process was killed while it wrote
            raise RecordError(f"{path} isn't a recording: line {index + 1} isn't JSON") from error
        events.append(event)
    if not events or not isinstance(events[0], dict) or events[0].get("format") != _FORMAT:
        raise RecordError(f"{path} isn't a recording of this version: expected format {_FORMAT} in its first line")
    recording = Recording()
    for event in events[1:]:
        _replay_event(recording, event)
    return recording


def _replay_event(recording: Recording, event: dict[str, Any]) -> None:
    kind = event.pop("event", None)
    if kind == "losses":
        recording.losses += zip(event["steps"], (_number(value) for value in event["values"]), strict=True)
    elif kind == "facts":
        recording.facts.update(event)
    elif kind == "incident":
        recording.incidents.append(_incident(event))


def _number(value: Any) -> float:
    return float(value)


def _incident(event: dict[str, Any]) -> IncidentRecord:
    chains = {name: _chain(event.get(name, ())) for name in ("chain", "draw_chain")}
    origin = event.get("origin")
    if origin is not None:
        inputs = tuple(TensorSummary(**{**item, "shape": tuple(item["shape"])}) for item in origin["inputs"])
        origin = Origin(
            **{**origin, "chain": _chain(origin["chain"]), "inputs": inputs, "scalars": tuple(origin["scalars"])}
        )
    update = event.get("update")
    if update is not None:
        update = UpdateRecord(**{**update, "inputs": tuple(update["inputs"]), "state": tuple(update["state"])})
    loss = event.get("loss")
    return IncidentRecord(
        **{
            **event,
            **chains,
            "origin": origin,
            "update": update,
            "loss": None if loss is None else _number(loss),
            "reasons": tuple(event.get("reasons", ())),
        }
    )


def _chain(frames: Any) -> tuple[Frame, ...]:
    return tuple(Frame(**frame) for frame in frames)
