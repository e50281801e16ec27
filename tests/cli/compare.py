"""Does a training under `unstuck run` compute the same bits as under plain Python?

A copy of the program imports a probe (:mod:`tests.cli.train_probe`) before anything else, on the line of its first
import, so that no line moves. The probe notes the bits of every optimiser step and the final random states.
"""

from __future__ import annotations

import ast
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.running import PLAIN, WATCHED, Outcome, run

PROBE = Path(__file__).with_name("train_probe.py")


@dataclass(frozen=True)
class Observation:
    """What one run of a training did: its ``outcome``, what the probe ``noted`` and, under watch, its ``report``."""

    outcome: Outcome
    noted: dict[str, Any]
    report: dict[str, Any] | None


def observe(
    program: Path, folder: Path, watched: bool, options: tuple[str, ...] = (), timeout: float = 240
) -> Observation:
    """Run a copy of ``program``, called ``train.py`` and without its twin, in ``folder`` (made for it)."""
    skipped = shutil.ignore_patterns("train.py", "fixed.py", "case.json", "__pycache__", "lightning_logs")
    shutil.copytree(program.parent, folder, ignore=skipped)
    (folder / "train.py").write_text(with_probe(program.read_text(encoding="utf-8")), encoding="utf-8")
    # Outside the folder: a program may look at what lies beside it.
    beside = folder.with_name(folder.name + "-beside")
    beside.mkdir()
    shutil.copy(PROBE, beside)
    files = ("--json", str(beside / "report.json"), "--out", str(beside / "out"))
    command = [*WATCHED, *files, *options, "train.py"] if watched else [*PLAIN, "train.py"]
    noted = beside / "noted.json"
    outcome = run(command, folder, timeout=timeout, PYTHONPATH=str(beside), UNSTUCK_TEST_PROBE=str(noted))
    assert noted.exists(), f"the probe has noted nothing: {outcome.stderr.decode(errors='replace')[-2000:]}"
    report = beside / "report.json"
    return Observation(outcome, json.loads(noted.read_text()), json.loads(report.read_text()) if watched else None)


def with_probe(source: str) -> str:
    """``source`` with the import of the probe in front of its first import, on the same line."""
    lines = source.splitlines(keepends=True)
    for statement in ast.parse(source).body:
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if isinstance(statement, (ast.Import, ast.ImportFrom)) and not is_future:
            lines[statement.lineno - 1] = "import train_probe; " + lines[statement.lineno - 1]
            return "".join(lines)
    raise ValueError("the program imports nothing at its top level")


def differences(plain: Observation, watched: Observation) -> list[str]:
    """What differs between a plain run and one that was watched to its end, or up to a stop at an incident."""
    found = []
    steps, expected = watched.noted["steps"], plain.noted["steps"]
    if watched.report is not None and watched.report.get("stopped") is not None:
        if not plain.outcome.stdout.startswith(watched.outcome.stdout):
            found.append("stdout isn't a beginning of the plain run's")
        if steps != expected[: len(steps)]:
            found.append("steps before the stop")
        return found
    if plain.outcome.stdout != watched.outcome.stdout:
        found.append("stdout")
    if plain.outcome.status != watched.outcome.status:
        found.append(f"status {watched.outcome.status} instead of {plain.outcome.status}")
    if steps != expected:
        first = next((index for index, (a, b) in enumerate(zip(steps, expected, strict=False)) if a != b), None)
        found.append(f"steps: {len(steps)} instead of {len(expected)}, the first that differs is {first}")
    found += [
        name
        for name, value in plain.noted.items()
        if name not in ("steps", "nonfinite") and watched.noted[name] != value
    ]
    return found
