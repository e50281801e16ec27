"""A second run names what the first couldn't, unseen by whoever watches the program's output."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import PROGRAMS
from unstuck.cli.launcher.message import Message
from unstuck.cli.rerun import explain_by_second_run


def second_run(folder: Path, monkeypatch: pytest.MonkeyPatch, *command: str) -> dict[str, Any]:
    """The report of a first run that saw an incident at step 2, after the second run."""
    shutil.copy(PROGRAMS / "late_log.py", folder)
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, *command])
    message = Message(
        target=command[0],
        is_module=False,
        arguments=(),
        folder=str(folder),
        out=str(folder / "out"),
        json_file=str(folder / "report.json"),
        steps=None,
        on_nonfinite="stop",
        rerun=True,
        quiet=False,
    )
    report: dict[str, Any] = {"findings": [{"where": {"line": None}}], "unchecked": [], "rerun_step": 2}
    explain_by_second_run(message, report, os.environ)
    return report


def test_second_run_names_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    report = second_run(tmp_path, monkeypatch, "late_log.py")
    where = report["findings"][0]["where"]
    assert (where["file"], where["line"], where["op"], where["step"]) == ("late_log.py", 15, "log", 2)
    assert report["unchecked"] == []
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "report.json").exists(), "the report is written once, when it is complete"


def test_second_run_that_goes_well_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = second_run(tmp_path, monkeypatch, "-c", "import torch")
    assert report["findings"] == [{"where": {"line": None}}]
    assert "didn't come to the same incident" in report["unchecked"][0]
