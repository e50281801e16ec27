"""``unstuck doctor``: examine a program, show each check, write the reports, answer with an exit code."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

import unstuck
from unstuck.console import console
from unstuck.errors import MisconfigurationException, RecordError, UnstuckError
from unstuck.findings import Severity
from unstuck.report.examination import check_lines, result_lines
from unstuck.report.files import write_json, write_report, write_text
from unstuck.workflow.doctor import Examination, examine, unbuildable
from unstuck.workflow.doctor.blame import is_interrupt
from unstuck.workflow.doctor.outcome import Outcome, Plan
from unstuck.workflow.doctor.target import load_target

__all__ = ["DoctorOptions", "doctor"]

RAISED, FOUND, FAULT = 1, 3, 4
_FOLDER = "unstuck-out"


@dataclass(frozen=True)
class DoctorOptions:
    """What was asked for.

    Attributes:
        target: ``file.py:callable`` or ``package.module:callable``.
        plan: how long the checks may be.
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
    """Examine, show and write.

    Returns:
        The exit code: 1 where the program raised, 3 for findings or a failed check, 4 where unstuck itself failed, else
        0.

    Raises:
        MisconfigurationException: an option or the target can't work.
        KeyboardInterrupt: Ctrl-C, after the report of what was done.
    """
    json_file = None if options.json_file is None else options.json_file.absolute()
    folder = os.getcwd()
    out = (options.out or _folder(options.target)).absolute()
    told: list[Text] = []

    def tell(lines: list[Text]) -> None:
        told.extend(lines)
        for line in lines:
            console().print(line, soft_wrap=True)

    with _prepared(out, json_file), _silenced(options.quiet):
        examination = _examined(options, lambda outcome: tell(check_lines(outcome.as_json())))
        report: dict[str, Any] = {
            "version": unstuck.__version__,
            "target": options.target,
            "out": str(out),
            **examination.as_json(folder),
        }
        report["exit_code"] = 130 if examination.interrupted else _status(examination, options.fail_on)
        unseen = [item for item in report["checks"] if item["status"] == "not reached"]
        tell([line for item in unseen for line in check_lines(item)])
        tell(result_lines(report))
        try:
            write_report(out, report)
            write_text(out / "report.txt", "\n".join(line.plain for line in told) + "\n")
            if json_file is not None:
                write_json(json_file, report)
        except OSError as error:
            raise RecordError(f"can't write the report: {error}") from error
    if examination.interrupted:
        raise KeyboardInterrupt
    return int(report["exit_code"])


def _examined(options: DoctorOptions, tell: Callable[[Outcome], None]) -> Examination:
    try:
        target = load_target(options.target)
    except UnstuckError:
        raise
    except (Exception, SystemExit) as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        examination = unbuildable(error)
        tell(examination.outcomes[0])
        return examination
    if options.quiet or not console().is_terminal:
        return examine(target, options.plan, tell)
    with console().status("starting") as status:  # what is being done is shown while it lasts
        return examine(target, options.plan, tell, status.update)


@contextmanager
def _silenced(quiet: bool) -> Iterator[None]:
    """Inside, nothing reaches the terminal, also from the trials of a check, where that was asked for."""
    before, console().quiet = console().quiet, quiet or console().quiet
    try:
        yield
    finally:
        console().quiet = before


@contextmanager
def _prepared(out: Path, json_file: Path | None) -> Iterator[None]:
    """The output folder exists inside; one that stays empty is removed.

    Raises:
        MisconfigurationException: the reports can't be written, which is told before the work and not after it.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=out):
                pass
        except OSError as error:
            raise MisconfigurationException(
                f"can't write to the output folder {out} (--out): {error.strerror}"
            ) from error
        if json_file is not None:
            _check_file(json_file)
        yield
    finally:
        with suppress(OSError):  # one that isn't empty stays, and so do those around it
            for folder in made:
                folder.rmdir()


def _check_file(file: Path) -> None:
    """Refuse a file that can't be written."""
    try:
        if file.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise MisconfigurationException(f"can't write {file} (--json): {error.strerror}") from error


def _status(examination: Examination, fail_on: str) -> int:
    statuses = {item.status for item in examination.outcomes}
    if "raised" in statuses:
        return RAISED
    worst = min((item.severity.rank for item in examination.findings), default=len(Severity))
    if fail_on != "never" and ("failed" in statuses or worst <= Severity.ERROR.rank):
        return FOUND
    if fail_on == "warning" and ("look" in statuses or worst <= Severity.WARNING.rank):
        return FOUND
    return FAULT if examination.faults else 0


def _folder(target: str) -> Path:
    name = Path(target.rpartition(":")[0]).stem or "target"
    return Path(_FOLDER) / f"doctor-{name}-{time.strftime('%Y%m%d-%H%M%S')}"
