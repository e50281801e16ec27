"""The recording of a run: plain events in memory for the rules, and the same as JSON lines on disk as they come.

A killed process leaves everything that was written before; a reader ignores a last line that is cut off.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, TypeVar

from unstuck.errors import RecordError
from unstuck.findings.finding import jsonable
from unstuck.record.gradients import ClipRecord, OptimizerRecord, ScalerRecord, decoded, encoded
from unstuck.record.incident import IncidentRecord
from unstuck.record.kinds import kind_named, name_of_kind
from unstuck.record.plain import from_plain, to_plain
from unstuck.record.series import Series, Thinner

__all__ = ["RECORDING_NAME", "Recording", "load_recording"]

RECORDING_NAME = "recording.jsonl"
_FORMAT = 1
_FLUSH_SECONDS = 1.0
_BLOCK = 512
"""Losses that are written as one line."""

Kept = TypeVar("Kept")


class Recording:
    """What a run has told so far.

    Attributes:
        incidents: every incident, in order.
        facts: what was seen of the program by name (numbers and short strings).
        losses: the last loss values with their steps, at most a few thousand; earlier ones are on disk only.
        loss_series: all losses, old ones joined into buckets.
        optimizers: what each optimiser took and did.
        clips: every line that clips gradients.
        scalers: every loss scaler.
        records: what other instruments and trials have told, each a dataclass that :mod:`unstuck.record.kinds` lists.
        unchecked: what could not be checked, and why: one phrase each.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.incidents: list[IncidentRecord] = []
        self.facts: dict[str, Any] = {}
        self.losses: list[tuple[int, float]] = []
        self.loss_series = Series(1, kind="d")
        self.optimizers: list[OptimizerRecord] = []
        self.clips: list[ClipRecord] = []
        self.scalers: list[ScalerRecord] = []
        self.records: list[Any] = []
        self.unchecked: list[str] = []
        self._written: set[int] = set()
        self._thinners: dict[int, Thinner] = {}
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

    def keep(self, record: Any, whole: bool = False) -> None:
        """Keep a record of one of :data:`unstuck.record.kinds.KINDS`.

        Args:
            record: a dataclass; it may be changed until the recording is closed, unless it is ``whole``.
            whole: nothing will be added to it, so that it is written now and survives a kill.
        """
        self.records.append(record)
        if whole:
            self._written.add(id(record))
            self._write({"event": "record", "kind": name_of_kind(record), "record": to_plain(record)})

    def all(self, kind: type[Kept]) -> list[Kept]:
        """Every record of a class, in the order in which they were kept."""
        return [item for item in self.records if isinstance(item, kind)]

    def add_unchecked(self, phrase: str) -> None:
        """Something could not be checked: ``batch mixing: not probed, the model draws random numbers``."""
        if phrase not in self.unchecked:
            self.unchecked.append(phrase)

    def write_records(self) -> None:
        """Write the records that could still change, at the end of a run."""
        for record in self.records:
            if id(record) not in self._written:
                self._written.add(id(record))
                self._write({"event": "record", "kind": name_of_kind(record), "record": to_plain(record)})
        if self.unchecked:
            self._write({"event": "unchecked", "phrases": self.unchecked})

    def set_facts(self, facts: dict[str, Any]) -> None:
        """What was seen of the program; later values replace earlier ones."""
        self.facts.update(facts)
        self._write({"event": "facts", **facts})

    def add_optimizer(self, record: OptimizerRecord) -> int:
        """Begin to record an optimiser; returns its index."""
        self.optimizers.append(record)
        self._write({"event": "optimizer", "record": encoded(record)})
        return len(self.optimizers) - 1

    def add_norms(self, optimizer: int, step: int, row: Sequence[float]) -> None:
        """A row of an optimiser's :attr:`OptimizerRecord.norms`."""
        record = self.optimizers[optimizer]
        thinner = self._thinners.get(optimizer)
        if thinner is None:
            thinner = self._thinners[optimizer] = Thinner(record.norms.columns, record.norms.capacity)
        thinner.add(record.norms.add(step, row))

    def flush_norms(self) -> None:
        """Write the rows that are waiting, so that a killed run leaves them."""
        for index, thinner in self._thinners.items():
            block = thinner.take()
            if block is not None:
                self._write({"event": "norms", "optimizer": index, "rows": block.encode()})

    def set_gradients(self) -> None:
        """Write what is known of optimisers, clipping and scalers; it replaces what was written before."""
        records: list[OptimizerRecord | ClipRecord | ScalerRecord] = [*self.optimizers, *self.clips, *self.scalers]
        if records:
            self._write({"event": "gradients", "records": [encoded(record) for record in records]})

    def cut(self, step: int) -> Recording:
        """The recording as it was before the optimiser step with this index: for judging what could be known then.

        Counts that are kept for the whole run only (facts, calls of a clipping line, skips of a scaler) stay as
        they are.
        """
        shorter = Recording()
        shorter.facts = dict(self.facts)
        shorter.incidents = [item for item in self.incidents if item.step is not None and item.step < step]
        shorter.losses = [item for item in self.losses + self._block if item[0] < step]
        whole = self.loss_series.cut(step)
        whole.add_numbers([item for item in self._block if item[0] < step])
        shorter.loss_series = whole
        shorter.optimizers = [item.cut(step) for item in self.optimizers]
        shorter.clips = [item.cut(step) for item in self.clips]
        shorter.scalers = list(self.scalers)
        shorter.unchecked = list(self.unchecked)
        shorter.records = [
            item.cut(step) if hasattr(item, "cut") else item
            for item in self.records
            if getattr(item, "step", None) is None or item.step < step
        ]
        return shorter

    def flush(self) -> None:
        """Write what is waiting."""
        self._written_at = time.monotonic()
        if self._block:
            self.losses = (self.losses + self._block)[-8 * _BLOCK :]
            steps, values = zip(*self._block, strict=True)
            self.loss_series.add_numbers(self._block)
            self._block = []
            self._write({"event": "losses", "steps": steps, "values": values})

    def close(self) -> None:
        """Write what is waiting and close the file."""
        self.flush()
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # what a full disk didn't take is tried once more
                file.close()

    def _write(self, event: dict[str, Any]) -> None:
        if self._path is None or self._failed:
            return
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115 - open for the whole run
                header = {"event": "header", "format": _FORMAT, "process": os.getpid()}
                self._file.write(json.dumps(header) + "\n")
            self._file.write(_line(event))
            self._file.flush()
        except OSError:
            # A full disk must not end the user's run; the verdict doesn't need the file.
            self._failed = True


def _line(event: dict[str, Any]) -> str:
    try:
        return json.dumps(event, separators=(",", ":"), allow_nan=False) + "\n"
    except ValueError:  # a number that isn't finite; seldom, and to look for it takes longer than the rest
        return json.dumps(jsonable(event), separators=(",", ":"), allow_nan=False) + "\n"


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
        values = [_number(value) for value in event["values"]]
        pairs = list(zip(event["steps"], values, strict=True))
        recording.losses += pairs
        recording.loss_series.add_numbers(pairs)
    elif kind == "optimizer":
        record = decoded(event["record"])
        if isinstance(record, OptimizerRecord):
            recording.optimizers.append(record)
    elif kind == "norms" and event["optimizer"] < len(recording.optimizers):
        for bucket in Series.decode(event["rows"]):
            recording.optimizers[event["optimizer"]].norms.add_bucket(bucket)
    elif kind == "gradients":
        _replace_records(recording, [decoded(item) for item in event["records"]])
    elif kind == "record":
        known = kind_named(event["kind"])
        if known is not None:  # a later version's is left out
            recording.records.append(from_plain(known, event["record"]))
    elif kind == "unchecked":
        recording.unchecked += event["phrases"]
    elif kind == "facts":
        recording.facts.update(event)
    elif kind == "incident":
        recording.incidents.append(from_plain(IncidentRecord, event))


def _replace_records(recording: Recording, records: list[Any]) -> None:
    recording.optimizers = [item for item in records if isinstance(item, OptimizerRecord)]
    recording.clips = [item for item in records if isinstance(item, ClipRecord)]
    recording.scalers = [item for item in records if isinstance(item, ScalerRecord)]


def _number(value: Any) -> float:
    return float(value)
