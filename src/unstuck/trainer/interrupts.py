"""Signals during a run: SIGTERM asks for an orderly end, and whatever was installed before is installed again
afterwards.
"""

from __future__ import annotations

import os
import signal
import threading
from traceback import walk_tb
from types import FrameType
from typing import Any

from unstuck.messages import rank_zero_info

__all__ = ["SignalGuard", "TerminationRequested"]

STATUS = 128 + signal.SIGTERM


class TerminationRequested(SystemExit):
    """SIGTERM arrived: raised at the next point where the loops can stop.

    No error of the program's, which would be caught by whoever catches errors: the process ends with the status that a
    shell gives to one that SIGTERM has ended.

    Args:
        during: what was running.
    """

    def __init__(self, during: str) -> None:
        super().__init__(STATUS)
        self.during = during

    def __str__(self) -> str:
        return f"SIGTERM was received during {self.during}."


class SignalGuard:
    """Remembers a SIGTERM for the loops to act on.

    The loops read :attr:`received_sigterm`, a plain flag. A handler of the user's program is still called. Outside of
    the main thread,
    where Python forbids handlers, nothing is installed.
    """

    def __init__(self) -> None:
        self.received_sigterm = False
        self.stop_requested = False
        """Whether the loops have to end at the next point where they can."""
        self.awaits_batch = False
        """Whether a fit waits for data, so that there is no batch that could come to its end."""
        self._previous: Any = None
        self._previous_interrupt: Any = None
        self._installed = False
        self._pid = os.getpid()

    def install(self, defer_interrupt: bool = False) -> None:
        """Begins to watch for SIGTERM.

        Args:
            defer_interrupt: whether Ctrl-C lets the batch come to its end, too, so that a checkpoint can be saved of a
                step that is complete. A second one interrupts at once.
        """
        if threading.current_thread() is threading.main_thread():
            self.received_sigterm = self.stop_requested = self.awaits_batch = False
            self._pid = os.getpid()
            self._previous = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, self._on_sigterm)
            if defer_interrupt and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._previous_interrupt = signal.signal(signal.SIGINT, self._on_interrupt)
            self._installed = True

    def stop(self, during: str) -> None:
        """Raises what was asked for by a signal.

        Args:
            during: what was running.
        """
        if self.received_sigterm:
            raise TerminationRequested(during)
        raise KeyboardInterrupt

    def accounts_for(self, error: Exception) -> bool:
        """Whether an error came of a signal that the loops have yet to act on: it has reached the loader's workers too,
        as Ctrl-C does in a terminal, and what they were loading never comes.
        """
        return self.stop_requested and (self.awaits_batch or _comes_from_loading(error))

    def uninstall(self) -> None:
        """Puts back the handler that was there, unless somebody has replaced ours meanwhile."""
        if self._installed:
            self._installed = False
            if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
                signal.signal(signal.SIGTERM, self._previous if self._previous is not None else signal.SIG_DFL)
            self._release_interrupt()
        self._previous = None

    def _release_interrupt(self) -> None:
        if self._previous_interrupt is not None:
            if signal.getsignal(signal.SIGINT) == self._on_interrupt:
                signal.signal(signal.SIGINT, self._previous_interrupt)
            self._previous_interrupt = None

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self._release_interrupt()
        if os.getpid() != self._pid:
            raise KeyboardInterrupt
        self.stop_requested = True
        if self.awaits_batch:
            raise KeyboardInterrupt
        rank_zero_info("Interrupted by the keyboard: finishing this batch. Press Ctrl-C again to stop at once.")

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # A forked data worker inherits the handler, but must die as it would have without us.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self.received_sigterm = self.stop_requested = True
        if callable(self._previous):
            self._previous(number, frame)


def _comes_from_loading(error: Exception) -> bool:
    """Whether torch's loader raised it; of workers that have died a signal tells, wherever the program is just then."""
    return any(
        frame.f_globals.get("__name__", "").startswith("torch.utils.data") for frame, _ in walk_tb(error.__traceback__)
    )
