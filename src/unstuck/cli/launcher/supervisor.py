"""Runs the user's program in a second process and waits for it, for an exit code that only its end can decide.

The program stays in the supervisor's process group, so the terminal, job control and Ctrl-C reach it as they would
without us. A signal that is sent to the supervisor alone (``kill``, a scheduler, a launcher) is passed on.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from dataclasses import dataclass

from unstuck.cli.launcher.interpreter import become_python, python_command
from unstuck.cli.launcher.message import Message
from unstuck.errors import ScriptError

__all__ = ["Ended", "end_alike", "run_python"]

# Signals that end or notify a program; those that stop and continue it reach the whole group by themselves.
_PASSED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
_SI_KERNEL = 0x80  # si_code of a signal that the terminal made; Linux
_PR_SET_PDEATHSIG = 1  # prctl(2); Linux


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit ``code``, or the number of the ``signal`` that killed it."""

    code: int | None
    signal: int | None = None


def run_python(message: Message) -> Ended:
    """Run the program under watch in a process of its own and wait for its end.

    Raises:
        ScriptError: this interpreter can't run a watched program.
    """
    python_command(message)  # what is wrong with it is told here, not in the other process
    waited = _PASSED_ON | {signal.SIGCHLD}
    # A parent that ignores SIGCHLD would let the status be lost.
    children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask: set[int | signal.Signals] = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    child = _start(message, mask, children)
    while True:
        number, from_terminal = _next_signal(waited)
        if number == signal.SIGCHLD:
            done, status = os.waitpid(child, os.WNOHANG)
            if done == child:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                return Ended(None, os.WTERMSIG(status)) if os.WIFSIGNALED(status) else Ended(os.WEXITSTATUS(status))
        elif not from_terminal:
            os.kill(child, number)


def end_alike(ended: Ended) -> int:
    """Die of the same signal, so that whoever waits for us sees the same status; return the exit code otherwise."""
    if ended.signal is None:
        return ended.code or 0
    sys.stderr.flush()
    # The program has dumped its core, if it should; ours would hide it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if ended.signal not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(ended.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal})
    os.kill(os.getpid(), ended.signal)
    return 128 + ended.signal


def _start(message: Message, mask: set[int | signal.Signals], children: object) -> int:
    """Fork and exec with the signal mask and dispositions that we were started with; return the process's id."""
    library = ctypes.CDLL(None)
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        if children == signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if sys.platform == "linux":
            # Whoever kills us the hard way means the program.
            library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
        become_python(message)
    except ScriptError as error:
        os.write(2, f"unstuck: {error}\n".encode())
    finally:
        os._exit(127)


def _next_signal(waited: set[signal.Signals]) -> tuple[int, bool]:
    """Wait for a signal; return its number and whether the terminal sent it, to the program as well as to us."""
    if sys.platform == "linux":
        information = signal.sigwaitinfo(waited)
        return information.si_signo, information.si_code == _SI_KERNEL
    number = signal.sigwait(waited)
    return number, number in (signal.SIGINT, signal.SIGQUIT) and sys.stdin is not None and sys.stdin.isatty()
