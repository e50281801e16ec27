"""The command ``run``: prepare the output, start the program under watch, choose the exit status."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from unstuck.cli.launcher.interpreter import become_python
from unstuck.cli.launcher.message import Message
from unstuck.errors import MisconfigurationException
from unstuck.report.files import REPORT_NAME

__all__ = ["RunOptions", "run"]


@dataclass(frozen=True)
class RunOptions:
    """The command's options, as ``unstuck run --help`` tells them."""

    target: str
    is_module: bool = False
    arguments: tuple[str, ...] = ()
    steps: int | None = None
    json_file: Path | None = None
    out: Path | None = None
    fail_on: str = "never"
    on_nonfinite: str = "stop"
    rerun: bool = False
    budget: float = 20.0
    quiet: bool = False


def run(options: RunOptions) -> int:
    """Run the program under watch: this process becomes it, or, for ``--fail-on``, waits for it.

    Raises:
        MisconfigurationException: the output folder or the JSON file can't be written.
        ScriptError: this interpreter can't run a watched program.
    """
    json_file = None if options.json_file is None else _writable_file(options.json_file)
    out = _output_folder(options)
    message = Message(
        target=options.target,
        is_module=options.is_module,
        arguments=options.arguments,
        folder=os.getcwd(),
        out=str(out),
        json_file=None if json_file is None else str(json_file),
        steps=options.steps,
        on_nonfinite=options.on_nonfinite,
        rerun=options.rerun,
        budget=options.budget,
        quiet=options.quiet,
    )
    if options.fail_on == "never":
        become_python(message)
    # Imported where it is needed: the command has to be out of the script's way soon.
    from unstuck.cli.supervised import run_supervised

    return run_supervised(message, options.fail_on)


def _writable_file(path: Path) -> Path:
    file = path.absolute()
    if file.exists() and not (file.is_file() or file.is_dir()) and os.access(file, os.W_OK):
        return file  # a device or a pipe: nothing is put beside it
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise MisconfigurationException(f"--json {path}: the folder {file.parent} doesn't exist or can't be written to")
    return file


def _output_folder(options: RunOptions) -> Path:
    """Make the folder now: two runs that begin in the same second must not share one."""
    if options.out is not None:
        return _given_folder(options.out)
    name = _run_name(options)
    parent = Path.cwd() / "unstuck-out"
    try:
        parent.mkdir(exist_ok=True)
        for attempt in range(1, 1000):
            out = parent / (name if attempt == 1 else f"{name}-{attempt}")
            with contextlib.suppress(FileExistsError):
                out.mkdir()
                return out
    except OSError:
        # A script may be run from a folder that nobody can write to.
        return Path(tempfile.mkdtemp(prefix="unstuck-"))
    raise MisconfigurationException(f"{parent} holds a thousand runs called {name}; use --out")


def _given_folder(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MisconfigurationException(f"--out {out}: {error.strerror}") from error
    if not os.access(out, os.W_OK | os.X_OK):
        raise MisconfigurationException(f"--out {out}: the folder can't be written to")
    # An older run's report must not be taken for this one's.
    (out / REPORT_NAME).unlink(missing_ok=True)
    return out.absolute()


def _run_name(options: RunOptions) -> str:
    target = options.target if options.is_module else Path(options.target).stem
    rank = f"-rank{os.environ['RANK']}" if "RANK" in os.environ else ""
    return f"{target.strip('-') or 'stdin'}-{time.strftime('%Y%m%d-%H%M%S')}{rank}"
