"""Trials are announced once they take their time, once each, and not at all where nothing is to be printed."""

from __future__ import annotations

import pytest

from unstuck.session import progress
from unstuck.session.progress import Progress


def test_said_once_and_late(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = Progress(quiet=False)
    told.tell("trying rates")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    told.tell("trying rates")
    told.tell("trying rates")
    told.tell("mixing samples")
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["unstuck: trying rates ...", "unstuck: mixing samples ..."]
    assert captured.out == ""


def test_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    Progress(quiet=True).tell("trying rates")
    assert capsys.readouterr().err == ""
