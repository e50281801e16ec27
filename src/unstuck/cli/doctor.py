"""``unstuck doctor``: examine a program, show each step in a line, write the reports, answer with an exit code."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from unstuck.console import console
from unstuck.errors import RecordError
from unstuck.findings import Severity
from unstuck.report.files import write_json, write_report, write_text
from unstuck.report.terminal import lines, literal
from unstuck.workflow.doctor.examine import Examination, examine
from unstuck.workflow.doctor.steps import Outcome, Plan
from unstuck.workflow.doctor.target import load_target

__all__ = ["DoctorOptions", "doctor"]

FOUND, FAILED = 3, 1
_MARKS = {"ok": ("ok", "green"), "suspicious": ("look", "yellow"), "stopped": ("stop", "bold red")}


@dataclass(frozen=True)
class DoctorOptions:
    """What was asked for.

    Attributes:
        target: ``file.py:callable`` or ``package.module:callable``.
        plan: how long the steps may be.
        json_file: also write the report here.
        out: folder for the reports.
        fail_on: findings as bad as this make the exit code 3.
        quiet: print nothing.
    """

    target: str
    plan: Plan
    json_file: Path | None = None
    out: Path | None = None
    fail_on: str = "error"
    quiet: bool = False


def doctor(options: DoctorOptions) -> int:
    """Examine; returns 0, 3 for findings, 1 where the user's code raised."""
    json_file = None if options.json_file is None else options.json_file.absolute()
    folder = os.getcwd()
    out = (options.out or _folder(options.target)).absolute()
    told: list[Text] = []

    def tell(line: Text) -> None:
        told.append(line)
        if not options.quiet:
            console().print(line, soft_wrap=True)

    try:
        out.mkdir(parents=True, exist_ok=True)  # that nothing can be written there is told before the work, not after
    except OSError as error:
        raise RecordError(f"can't write to the output folder {out}: {error.strerror}") from error
    target = load_target(options.target)
    with _shown(options.quiet) as begin:
        examination = examine(target, options.plan, lambda outcome: tell(_line(outcome)), begin)
    report: dict[str, Any] = {"target": options.target, "out": str(out), **examination.as_json(folder)}
    if examination.failure is not None:
        tell(Text(f"  stop  the program raised {literal(examination.failure)}", style="bold red"))
    for name in examination.skipped:
        tell(Text(f"  -     {name}: not reached", style="dim"))
    for line in lines({**report, "failure": None}) if examination.findings else [_clear(examination)]:
        tell(line)
    try:
        write_report(out, report)
        write_text(out / "report.txt", "\n".join(line.plain for line in told) + "\n")
        if json_file is not None:
            write_json(json_file, report)
    except OSError as error:
        raise RecordError(f"can't write the report: {error}") from error
    if examination.interruption is not None:
        raise examination.interruption
    return _status(examination, options.fail_on)


@contextmanager
def _shown(quiet: bool) -> Iterator[Callable[[str], None]]:
    """On a terminal the step that is being done is shown while it lasts."""
    if quiet or not console().is_terminal:
        yield lambda name: None
        return
    with console().status("starting") as status:
        yield status.update


def _line(outcome: Outcome) -> Text:
    mark, style = _MARKS[outcome.verdict]
    line = Text(f"  {mark:<5} ", style=style)
    line.append(f"{outcome.name}: {outcome.purpose} ", style="not bold default")
    line.append(literal(outcome.told), style="not bold dim")
    return line


def _clear(examination: Examination) -> Text:
    if examination.failure is not None:
        return Text("unstuck: the examination ended early")
    failed = [outcome.name for outcome in examination.outcomes if not outcome.passed]
    if failed:
        return Text(f"unstuck: the {failed[0]} test failed, and no cause was found in what was watched")
    return Text(
        f"unstuck: nothing wrong found in {len(examination.outcomes)} steps; see report.txt for what was looked at"
    )


def _status(examination: Examination, fail_on: str) -> int:
    if examination.failure is not None:
        return FAILED
    limits = {"error": Severity.ERROR.rank, "warning": Severity.WARNING.rank, "never": -1}
    if fail_on != "never" and not all(outcome.passed for outcome in examination.outcomes):
        return FOUND
    return FOUND if any(item.severity.rank <= limits[fail_on] for item in examination.findings) else 0


def _folder(target: str) -> Path:
    name = Path(target.rpartition(":")[0]).stem or "target"
    return Path("unstuck-out") / f"doctor-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
