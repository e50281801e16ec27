"""Runs a program under plain Python and under `unstuck run`, and tells what the outside can see of each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
PLAIN = [sys.executable]
WATCHED = [sys.executable, "-m", "unstuck", "run"]
OURS = b"unstuck: "

# A suite that is started in the background (``nohup``, ``&``) ignores these, and children inherit that.
for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)


@dataclass(frozen=True)
class Outcome:
    """What whoever started a process gets: its two streams and its wait status (negative: the signal)."""

    stdout: bytes
    stderr: bytes
    status: int

    @property
    def own_stderr(self) -> bytes:
        """Standard error without our lines."""
        return b"".join(line for line in self.stderr.splitlines(keepends=True) if not line.startswith(OURS))

    @property
    def our_lines(self) -> list[str]:
        """Our lines of standard error."""
        return [line.decode() for line in self.stderr.splitlines() if line.startswith(OURS)]


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment, without bytecode files and with one thread; None removes a variable."""
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    for variable in ("RANK", "PYTHONPATH", "COLUMNS", "FORCE_COLOR"):
        variables.pop(variable, None)
    variables.update({name: value for name, value in changes.items() if value is not None})
    return {name: value for name, value in variables.items() if changes.get(name, "") is not None}


def run(command: list[str], folder: Path, stdin: bytes = b"", timeout: float = 60, **variables: str | None) -> Outcome:
    """Run ``command`` in ``folder`` to its end."""
    done = subprocess.run(
        command,
        cwd=folder,
        input=stdin,
        capture_output=True,
        timeout=timeout,
        env=environment(**variables),
        check=False,
    )
    return Outcome(_without_addresses(done.stdout), _without_addresses(done.stderr), done.returncode)


def _without_addresses(text: bytes) -> bytes:
    return re.sub(rb"\b0x[0-9a-f]{6,}", b"0x...", text)


def both(
    arguments: list[str], folder: Path, stdin: bytes = b"", options: tuple[str, ...] = (), **variables: str | None
) -> tuple[Outcome, Outcome]:
    """The outcomes of ``python arguments...`` and ``unstuck run options... arguments...`` in the same folder."""
    plain = run([*PLAIN, *arguments], folder, stdin, **variables)
    return plain, run([*WATCHED, *options, *arguments], folder, stdin, **variables)


def run_and_signal(
    command: list[str], folder: Path, number: signal.Signals, to_group: bool = False, stdin: int | None = None
) -> Outcome:
    """Start ``command``, wait until it has printed its line ``ready``, send it a signal and wait for its end."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,  # communicate() doesn't see what a buffered reader has read ahead
    )
    assert process.stdout is not None
    head = b""
    for line in process.stdout:
        head += line
        if line == b"ready\n":
            break
    # So that the signal finds it asleep, not still returning from the print.
    time.sleep(0.1)
    if to_group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    try:
        stdout, stderr = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return Outcome(head + stdout, stderr, process.returncode)
