"""The end of a watched run: the report is completed, written and shown, in the user's process."""

from __future__ import annotations

import contextlib
import io
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import unstuck
from unstuck.cli.launcher.message import Message
from unstuck.cli.rerun import explain_by_second_run
from unstuck.console import console
from unstuck.report.files import write_json, write_report

__all__ = ["conclude"]


def conclude(
    message: Message, verdict: dict[str, Any], failure: Exception | None, environment: Mapping[str, str]
) -> None:
    """Complete the report, explain by a second run what the first couldn't, write the report, show it.

    Args:
        message: what was asked for.
        verdict: the session's, as JSON data; empty where torch was never imported or watching failed.
        failure: what made the watching fail.
        environment: the environment in which the script started.
    """
    out = Path(message.out)
    report = _complete(message, verdict, failure)
    if message.rerun and report.get("rerun_step") is not None:
        explain_by_second_run(message, report, environment)
    troubles = _save(report, out, None if message.json_file is None else Path(message.json_file))
    if not message.quiet:
        _show(report, troubles)
    _remove_if_empty(out)


def _complete(message: Message, verdict: dict[str, Any], failure: Exception | None) -> dict[str, Any]:
    """Every key that a reader may count on has a value."""
    return {
        "version": unstuck.__version__,
        "script": message.target,
        "arguments": list(message.arguments),
        "findings": [],
        "watched": [],
        "unchecked": [],
        "cost": None,
        **verdict,
        "ending": {**_ending(), **verdict.get("ending", {})},
        "out": message.out,
        "failure": None if failure is None else "".join(traceback.format_exception(failure)),
    }


def _ending() -> dict[str, Any]:
    error = getattr(sys, "last_exc", getattr(sys, "last_value", None))
    if error is None:
        return {"kind": "completed", "exception": None}
    kind = "interrupt" if isinstance(error, KeyboardInterrupt) else "exception"
    return {"kind": kind, "exception": "".join(traceback.format_exception_only(error)).strip()}


def _save(report: dict[str, Any], out: Path, json_file: Path | None) -> list[str]:
    """Write the report where it belongs; return what went wrong, one line each."""
    troubles = []
    # A run that left nothing behind needs no folder for a report that says so.
    if report["findings"] or (out.is_dir() and any(out.iterdir())):
        try:
            write_report(out, report)
        except OSError as error:
            troubles.append(f"can't write the report to {out}: {error.strerror}")
    if json_file is not None:
        try:
            write_json(json_file, report)
        except OSError as error:
            troubles.append(f"can't write {json_file}: {error.strerror}")
    return troubles


def _show(report: dict[str, Any], troubles: list[str]) -> None:
    from rich.text import Text

    from unstuck.report.terminal import literal, show

    # The script may have put something else in the place of sys.stderr, and closed what was there: then its number may
    # belong to a file of the script's by now.
    stream = sys.__stderr__
    if stream is None or stream.closed:
        return
    # What the script still holds back comes first, as it does where Python ends without us.
    for held in (sys.stdout, stream):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            held.flush()
    with contextlib.suppress(OSError, ValueError, io.UnsupportedOperation):
        console().file = stream
        show(report)
        for trouble in troubles:
            console().print(Text(f"unstuck: {literal(trouble)}"), soft_wrap=True)


def _remove_if_empty(out: Path) -> None:
    with contextlib.suppress(OSError):
        out.rmdir()
        if out.parent.name == "unstuck-out":
            out.parent.rmdir()
