"""A run whose exit code depends on what was found: ``--fail-on``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unstuck.cli.launcher.message import Message
from unstuck.cli.launcher.supervisor import end_alike, run_python
from unstuck.findings import Severity
from unstuck.report.files import REPORT_NAME, read_report

__all__ = ["run_supervised"]

EXIT_FINDINGS = 3


def run_supervised(message: Message, fail_on: str) -> int:
    """Run the program under watch in a second process; return the exit status, or die of the program's signal.

    Args:
        message: how to watch.
        fail_on: ``error`` or ``warning``: how bad a finding must be to fail a program that has succeeded.
    """
    ended = run_python(message)
    out = Path(message.out)
    if ended.code == 0 and (out / REPORT_NAME).exists() and _is_failure(read_report(out), fail_on):
        return EXIT_FINDINGS
    return end_alike(ended)


def _is_failure(report: dict[str, Any], fail_on: str) -> bool:
    return any(Severity(finding["severity"]).rank <= Severity(fail_on).rank for finding in report["findings"])
