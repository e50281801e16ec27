"""The interpreter that runs the user's program: its command line, its environment, and becoming it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from unstuck.cli.launcher.flags import interpreter_flags
from unstuck.cli.launcher.inside import MESSAGE_VARIABLE, PATH_VARIABLE
from unstuck.cli.launcher.message import Message
from unstuck.errors import ScriptError

__all__ = ["become_python", "python_command", "python_environment"]


def python_command(message: Message) -> list[str]:
    """The command that runs the program without us, with this interpreter and its flags.

    Raises:
        ScriptError: this interpreter ignores the environment (``-E``, ``-I``) or start-up code (``-S``), which is how
            the session gets in.
    """
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise ScriptError("a script can't be watched under `python -I`, `-E` or `-S`; run it without these flags")
    target = ["-m", message.target] if message.is_module else [message.target]
    return [sys.executable, *interpreter_flags(sys.orig_argv), *target, *message.arguments]


def python_environment(message: Message, base: Mapping[str, str]) -> dict[str, str]:
    """Environment ``base`` with our message in it; the bootstrap takes it out again before the script starts."""
    environment = dict(base)
    path = environment.get("PYTHONPATH")
    bootstrap = str(Path(__file__).parent / "bootstrap")
    environment["PYTHONPATH"] = bootstrap if not path else bootstrap + os.pathsep + path
    if path is not None:
        environment[PATH_VARIABLE] = path
    environment[MESSAGE_VARIABLE] = message.encode()
    return environment


def become_python(message: Message) -> NoReturn:
    """Replace this process by the interpreter that runs the program.

    Raises:
        ScriptError: see :func:`python_command`; or the interpreter can't be started.
    """
    command = python_command(message)
    try:
        os.execve(command[0], command, python_environment(message, os.environ))
    except OSError as error:
        raise ScriptError(f"can't start {command[0]}: {error.strerror}") from error
