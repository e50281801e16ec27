"""A finding: one cause, its place, the measured evidence and one concrete remedy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from unstuck.findings.codes import CODES
from unstuck.places import Frame, display_path

__all__ = ["Finding", "Severity", "Where", "jsonable"]


class Severity(str, Enum):
    """How bad it is: training can't succeed like this, it probably hurts, or merely worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True)
class Where:
    """The place of a finding; None for what doesn't apply or isn't known, never a guess.

    Attributes:
        file: absolute path of the user's file.
        line: 1-based line that a user would change or look at.
        step: number of optimiser steps that were complete before (0 is the first).
        batch: index within the epoch of the batch that the training loader gave.
        sample: index within that batch.
        module: dotted path below the model, as ``named_modules`` gives it.
        parameter: the same for a parameter.
        op: base name of the ATen operation (``softmax``, ``div``).
        rank: the process, in a distributed run.
        chain: the user's lines from the outermost call down to ``line``, outermost first.
    """

    file: str | None = None
    line: int | None = None
    step: int | None = None
    batch: int | None = None
    sample: int | None = None
    module: str | None = None
    parameter: str | None = None
    op: str | None = None
    rank: int | None = None
    chain: tuple[Frame, ...] = ()

    def as_json(self, folder: str) -> dict[str, Any]:
        """Strict-JSON form; paths below ``folder`` become relative to it."""
        return {
            "file": None if self.file is None else display_path(self.file, folder),
            "line": self.line,
            "step": self.step,
            "batch": self.batch,
            "sample": self.sample,
            "module": self.module,
            "parameter": self.parameter,
            "op": self.op,
            "rank": self.rank,
            "chain": [
                {"file": display_path(frame.file, folder), "line": frame.line, "function": frame.function}
                for frame in self.chain
            ],
        }


@dataclass(frozen=True)
class Finding:
    """What a diagnosis says.

    Attributes:
        code: a row of :data:`unstuck.findings.CODES`.
        severity: how bad it is.
        summary: one sentence that names the cause with its numbers.
        where: the place.
        evidence: measured numbers by name (plain JSON values; non-finite floats are allowed here).
        remedy: one concrete thing to do.
        confirmed: an experiment on copies has confirmed it.
        notes: what isn't known and why, or what else helps; each one sentence.
        symptoms: codes of findings that this cause explains.
    """

    code: str
    severity: Severity
    summary: str
    where: Where = field(default_factory=Where)
    evidence: dict[str, Any] = field(default_factory=dict)
    remedy: str = ""
    confirmed: bool = False
    notes: tuple[str, ...] = ()
    symptoms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"unknown finding code {self.code!r}; the codes are listed in unstuck.findings.CODES")

    def as_json(self, folder: str) -> dict[str, Any]:
        """Strict-JSON form; paths below ``folder`` become relative to it."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "summary": self.summary,
            "where": self.where.as_json(folder),
            "evidence": jsonable(self.evidence),
            "remedy": self.remedy,
            "confirmed": self.confirmed,
            "notes": list(self.notes),
            "symptoms": list(self.symptoms),
        }


def jsonable(value: Any) -> Any:
    """``value`` with every non-finite float replaced by the string "nan", "inf" or "-inf", as strict JSON wants."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return value
