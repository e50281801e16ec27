"""The second run: the same program from the start, everything traced from the step that the first couldn't explain."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unstuck.cli.launcher.interpreter import python_environment
from unstuck.cli.launcher.message import Message
from unstuck.errors import RecordError
from unstuck.report.files import read_report

__all__ = ["explain_by_second_run"]

RERUN_FOLDER = "rerun"


def explain_by_second_run(message: Message, report: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Run the program once more, muted, and take over what the second run has found.

    Args:
        message: what the first run was asked for.
        report: the first run's report; its ``rerun_step`` says where to trace. Findings are replaced where the second
            run has named the line, else ``unchecked`` says that it couldn't.
        environment: the environment in which the script started.
    """
    out = Path(message.out) / RERUN_FOLDER
    again = replace(message, out=str(out), json_file=None, quiet=True, rerun=False, trace_step=report["rerun_step"])
    # The original command line of this interpreter is that of the program without us.
    subprocess.run(
        sys.orig_argv,
        executable=sys.executable,
        cwd=message.folder,
        env=python_environment(again, environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    try:
        second = read_report(out)
    except RecordError:
        second = {"findings": []}
    if any(finding["where"].get("line") is not None for finding in second["findings"]):
        report["findings"] = second["findings"]
        report["incidents"] = [*report.get("incidents", ()), *second.get("incidents", ())]
    else:
        report["unchecked"] = [*report["unchecked"], "a second run didn't come to the same incident"]
