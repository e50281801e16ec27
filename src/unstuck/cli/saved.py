"""The report of a run that is over: as it was saved, or judged from the recording of a run that was killed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from unstuck.diagnosis import judge
from unstuck.record.recording import RECORDING_NAME, load_recording
from unstuck.report.files import REPORT_NAME, read_report

__all__ = ["saved_report"]


def saved_report(path: Path) -> dict[str, Any]:
    """Read a report.

    Args:
        path: a report's JSON file, or a run's output folder.

    Raises:
        RecordError: there is neither a report nor a recording, or the file is something else.
    """
    recording = path / RECORDING_NAME
    if not path.is_dir() or (path / REPORT_NAME).exists() or not recording.exists():
        return read_report(path)
    folder = os.getcwd()
    return {
        "findings": [finding.as_json(folder) for finding in judge(load_recording(recording))],
        "watched": ["the recording of a run that ended before it could report"],
        "unchecked": [],
        "cost": None,
        "failure": None,
        "out": str(path),
    }
