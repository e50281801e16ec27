"""The programs of ``tests/programs/<code>``: the faulty ones get their code at the marked line, the healthy nothing.

``faulty_*.py`` has a fault of the folder's code; lines that count as its place end in ``# fault``. A comment
``# also: code, code`` names other right answers; a program with the line ``# dies`` ends by an error of torch.
``healthy_*.py`` looks alike and is fine. A seeded sample of them by default, all with UNSTUCK_ALL_CASES=1.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import runpy
from pathlib import Path

import pytest
import torch

from unstuck.findings import CODES, Finding
from unstuck.session import Ending, Session, SessionOptions, StopRun

PROGRAMS = Path(__file__).parents[1] / "programs"
SEED = 7


def programs() -> list[Path]:
    """Every program, in a fixed order."""
    return sorted(file for code in CODES for file in (PROGRAMS / code).glob("*_*.py"))


def chosen() -> list[Path]:
    """The programs of this run of the suite: of each code one faulty and one healthy program, if not all."""
    every = programs()
    if os.environ.get("UNSTUCK_ALL_CASES") == "1":
        return every
    groups: dict[tuple[str, str], list[Path]] = {}
    for file in every:
        groups.setdefault((file.parent.name, file.name.partition("_")[0]), []).append(file)
    draw = random.Random(SEED)
    return [draw.choice(files) for _, files in sorted(groups.items())]


def findings_of(program: Path) -> list[Finding]:
    """Errors and warnings of a watched run in this process."""
    torch.manual_seed(0)
    session = Session(SessionOptions(script=program))
    session.start()
    dies = "\n# dies\n" in program.read_text()
    try:
        with contextlib.suppress(StopRun, *([RuntimeError] if dies else [])):
            runpy.run_path(str(program), run_name="__main__")
    finally:
        verdict = session.finish(Ending("exception" if dies else "completed"))
    assert not session._bus.faults, session._bus.faults
    return [item for item in verdict.findings if item.severity.value in ("error", "warning")]


@pytest.mark.parametrize("program", chosen(), ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_program_gets_its_verdict(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = findings_of(program)
    told = [(item.code, item.where.line, item.summary) for item in found]
    if program.name.startswith("healthy"):
        assert told == []
        return
    text = program.read_text()
    right = {program.parent.name, *re.split(r",\s*", "".join(re.findall(r"# also: (.*)", text)))}
    assert found, "nothing was found"
    assert found[0].code in right, told
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# fault")]
    if lines:
        assert found[0].where.file == str(program), told
        assert found[0].where.line in lines, told
