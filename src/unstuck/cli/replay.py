"""The command ``replay``: run the step of a saved incident again, in the program that it belongs to."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import unstuck
from unstuck.cli.launcher.interpreter import become_python
from unstuck.cli.launcher.message import Message
from unstuck.errors import RecordError, ScriptError
from unstuck.report.files import write_json
from unstuck.report.terminal import show
from unstuck.trials.incident_folder import SavedIncident, load_incident, sha256_of

__all__ = ["ReplayOptions", "replay"]

EXIT_REPEATED = 3


@dataclass(frozen=True)
class ReplayOptions:
    """The command's options, as ``unstuck replay --help`` tells them."""

    incident: Path
    changed: bool = False
    json_file: Path | None = None
    quiet: bool = False


def replay(options: ReplayOptions) -> int:
    """Run the step again: in this process for a Trainer's module, else this process becomes the program.

    Raises:
        RecordError: the folder is no incident, or a damaged one.
        ScriptError: the program isn't there any more, or has been changed.
    """
    saved = load_incident(options.incident)
    if saved.rebuild is not None:
        return _replay_module(saved, options)
    _become_program(saved, options)
    return 0


def _replay_module(saved: SavedIncident, options: ReplayOptions) -> int:
    from unstuck.cli.replay_module import replay_module

    assert saved.rebuild is not None
    file = saved.rebuild.get("file")
    if file is not None:
        _check_file(file, saved.rebuild.get("sha256"), options.changed)
    found = replay_module(saved)
    report = {
        "version": unstuck.__version__,
        "script": file or saved.rebuild["module"],
        "arguments": [],
        "findings": [item.as_json(os.getcwd()) for item in found.findings],
        "watched": [f"the step of the incident {options.incident}"],
        "unchecked": list(found.left),
        "cost": None,
        "stopped": "incident" if found.findings else "steps",
        "ending": {"kind": "stopped", "exception": None},
        "incidents": [str(options.incident)],
        "out": None,
        "failure": None,
    }
    if options.json_file is not None:
        write_json(options.json_file.absolute(), report)
    if not options.quiet:
        show(report)
    return EXIT_REPEATED if found.findings else 0


def _become_program(saved: SavedIncident, options: ReplayOptions) -> None:
    script = saved.script
    if script is None:
        raise RecordError(f"{options.incident}: the program had no file, so its step can't be run again")
    _check_file(script.path, script.sha256, options.changed)
    folder = script.folder
    if folder is not None and not os.path.isdir(folder):
        raise ScriptError(f"{folder}, the working folder of the run, isn't there any more")
    json_file = None if options.json_file is None else str(options.json_file.absolute())
    message = Message(
        target=script.path if script.module is None else script.module.removesuffix(".__main__"),
        is_module=script.module is not None,
        arguments=script.arguments,
        folder=folder or os.getcwd(),
        out=tempfile.mkdtemp(prefix="unstuck-replay-"),
        json_file=json_file,
        steps=1,
        on_nonfinite="stop",
        rerun=False,
        quiet=options.quiet,
        budget=0.0,
        trace_step=0,
        replay=str(options.incident.absolute()),
    )
    if folder is not None:
        os.chdir(folder)
    become_python(message)


def _check_file(path: str, sha256: str | None, changed: bool) -> None:
    """Refuse a program that isn't the one of the incident.

    Raises:
        ScriptError: the file is gone, or has another content and that wasn't allowed.
    """
    now = sha256_of(Path(path))
    if now is None:
        raise ScriptError(f"{path}, the program of the incident, can't be read")
    if sha256 is not None and now != sha256 and not changed:
        raise ScriptError(
            f"{path} was changed after the incident, so its step may be another one; --changed runs it all the same"
        )
