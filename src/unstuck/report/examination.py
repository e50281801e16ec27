"""The report of ``unstuck doctor``, drawn: a block for each check, the findings, and a closing line that sums up."""

from __future__ import annotations

import textwrap
from typing import Any

from rich.text import Text

from unstuck.report.terminal import lines, literal

__all__ = ["check_lines", "examination_lines", "is_examination", "result_lines"]

COLUMNS = 80
_MARK_COLUMNS = 14
_STYLES = {
    "ok": "green",
    "look": "yellow",
    "failed": "bold red",
    "raised": "bold red",
    "not judged": "cyan",
    "interrupted": "yellow",
    "not reached": "dim",
}
_REASONS = {"look": "look at: "}


def is_examination(report: dict[str, Any]) -> bool:
    """Whether a report is one of ``unstuck doctor``."""
    return isinstance(report.get("checks"), list)


def examination_lines(report: dict[str, Any], width: int = COLUMNS) -> list[Text]:
    """All of the report."""
    return [*(line for item in report["checks"] for line in check_lines(item, width)), *result_lines(report, width)]


def check_lines(check: dict[str, Any], width: int = COLUMNS) -> list[Text]:
    """A check: status, name and question; what was seen; and why it isn't simply ok.

    Args:
        check: as in the report.
        width: columns of the terminal.
    """
    status = str(check["status"])
    head = Text(f"  {status:<{_MARK_COLUMNS - 2}}", style=_STYLES.get(status, ""))
    head.append(literal(check["name"]), style="not bold default" if status != "not reached" else "")
    if status == "not reached":
        return [head]
    head.append(f": {literal(check['purpose'])}", style="not bold default")
    told = _indented(literal(check["told"]), width) if check["told"] else []
    why = _indented(_REASONS.get(status, "") + literal(check["why"]), width) if check["why"] else []
    return [head, *(Text(line, style="dim") for line in told), *(Text(line) for line in why)]


def result_lines(report: dict[str, Any], width: int = COLUMNS) -> list[Text]:
    """The findings and the closing line."""
    found = lines({**report, "failure": None, "unchecked": [], "out": None}, width) if report["findings"] else []
    return [*found, Text(f"unstuck: {_closing(report)}")]


def _closing(report: dict[str, Any]) -> str:
    checks = report["checks"]
    by_status = {status: [literal(item["name"]) for item in checks if item["status"] == status] for status in _STYLES}
    told = [
        f"{status}: {', '.join(names)}" for status, names in by_status.items() if names and status not in ("ok", "look")
    ]
    if by_status["look"]:
        told.insert(0, f"look at: {', '.join(by_status['look'])}")
    if not told and not report["findings"]:
        head = f"nothing wrong found in {len(checks)} checks"
    else:
        head = "; ".join([f"{len(by_status['ok'])} of {len(checks)} checks ok", *told])
    faults = "; unstuck itself failed, please report that with the report's `faults`" if report.get("faults") else ""
    saved = f"; report in {literal(report['out'])}" if report.get("out") else ""
    return head + faults + saved


def _indented(text: str, width: int) -> list[str]:
    indent = " " * _MARK_COLUMNS
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
