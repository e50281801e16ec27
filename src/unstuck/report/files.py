"""Reports on disk: strict JSON, written whole or not at all. No torch."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from unstuck.errors import RecordError
from unstuck.findings.finding import jsonable

__all__ = ["REPORT_NAME", "read_report", "write_json", "write_report", "write_text"]

REPORT_NAME = "report.json"


def write_report(folder: str | os.PathLike[str], report: dict[str, Any]) -> None:
    """Write ``report`` as the report of the run whose output ``folder`` is given; the folder is made if need be."""
    os.makedirs(folder, exist_ok=True)
    write_json(Path(folder) / REPORT_NAME, report)


def write_json(path: Path, report: dict[str, Any]) -> None:
    """Write ``report`` to ``path``; a number that isn't finite becomes the string "nan", "inf" or "-inf".

    Raises:
        OSError: the file can't be written; an older one is untouched then.
    """
    write_text(path, json.dumps(jsonable(report), indent=1, allow_nan=False, default=str) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, whole or not at all; a device or a pipe simply gets it, a link's target is replaced.

    Raises:
        OSError: the file can't be written; an older one is untouched then.
    """
    if path.exists() and (not path.is_file() or path.is_relative_to("/dev")):
        # to put a file in its place would destroy it for everybody
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "w", encoding="utf-8") as file:
            file.write(text)
        return
    path = path.resolve()
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # A temporary file is private by default; a report has the permissions that any new file gets.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read_report(path: Path) -> dict[str, Any]:
    """Read a report: a JSON file, or a run's output folder.

    Raises:
        RecordError: there is none, or the file is something else.
    """
    file = path / REPORT_NAME if path.is_dir() else path
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"can't read {file}: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{file} isn't a report: {error}") from error
    if not isinstance(report, dict) or not isinstance(report.get("findings"), list):
        raise RecordError(f"{file} isn't a report: it has no list of findings")
    return report
