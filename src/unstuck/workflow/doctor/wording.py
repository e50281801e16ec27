"""Findings as an examination tells them: places within the program only, and no advice that is for other commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from unstuck.findings import Finding
from unstuck.places import Frame

__all__ = ["for_examination"]

_ADVICE = re.compile(r"(?:;\s*|\s*\()?`unstuck run --rerun`[^;.)]*\)?")
"""How a program that is run by ``unstuck run`` is explained; what an examination has built, it has traced itself."""


def for_examination(finding: Finding, outside: Sequence[Frame]) -> Finding:
    """The finding without frames around the examination and without advice on ``unstuck run``.

    Args:
        finding: of the diagnosis.
        outside: the lines from the start of the process down to the examination, outermost first.
    """
    where = finding.where
    count = 0
    while count < min(len(outside), len(where.chain)) and _same(where.chain[count], outside[count]):
        count += 1
    if count:
        chain = where.chain[count:]
        last = chain[-1] if chain else None
        if any(where.file == frame.file and where.line == frame.line for frame in where.chain[:count]):
            where = replace(where, file=last.file if last else None, line=last.line if last else None)
        where = replace(where, chain=chain)
    elif any(where.file == frame.file and where.line == frame.line for frame in outside):
        where = replace(where, file=None, line=None)
    notes = tuple(note for note in (_ADVICE.sub("", item).strip() for item in finding.notes) if note)
    return replace(finding, where=where, remedy=_ADVICE.sub("", finding.remedy).strip(), notes=notes)


def _same(frame: Frame, other: Frame) -> bool:
    return frame.file == other.file and frame.function == other.function
