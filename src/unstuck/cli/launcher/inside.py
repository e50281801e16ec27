"""Our part of the user's process: puts the session on watch, and has the report made when everything is over.

Runs before the script's folder is on ``sys.path``. Until torch is imported it loads nothing that Python hasn't loaded
by itself, so that no module of the user's is replaced by one that we needed first; the session comes with torch.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys

from unstuck.cli.launcher.on_import import after_import
from unstuck.isolation import private_imports, remember_import_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from unstuck.cli.launcher.message import Message
    from unstuck.session import Ending, Session

__all__ = ["MESSAGE_VARIABLE", "PATH_VARIABLE", "enter"]

# Environment variables that carry the command line's message; both are gone before the script starts.
MESSAGE_VARIABLE = "UNSTUCK_MESSAGE"
PATH_VARIABLE = "UNSTUCK_PYTHONPATH"


def enter() -> None:
    """Restore the environment, and watch from the moment at which the script imports torch until the process ends."""
    message = os.environ.pop(MESSAGE_VARIABLE)
    path = os.environ.pop(PATH_VARIABLE, None)
    if path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = path
    remember_import_path()
    watch = _Watch(message)
    after_import("torch", watch.start)
    # Registered first, so called last: the script's own handlers, and the threads that it left running, are done.
    atexit.register(watch.finish)


class _Watch:
    """The session of this process, from the import of torch to the end."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._process = os.getpid()
        # As the script got it: a second run starts from here, whatever the script has changed since.
        self._environment = dict(os.environ)
        self._session: Session | None = None
        self._failure: Exception | None = None

    def start(self) -> None:
        """Begin to watch. Never raises: a script that can't be watched still runs."""
        # A forked worker may be the one that imports torch; its run isn't the one that is watched.
        if os.getpid() != self._process:
            return
        try:
            with private_imports(), _no_collection():
                from unstuck.cli.launcher.message import Message

                session = _open_session(Message.decode(self._message))
            session.start()
            self._session = session
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's run goes on
            self._failure = error

    def finish(self) -> None:
        """Leave everything as found, judge, and report."""
        # A forked child inherits this handler.
        if os.getpid() != self._process:
            return
        try:
            with private_imports(), _no_collection():
                from unstuck.cli.conclusion import conclude
                from unstuck.cli.launcher.message import Message

                message = Message.decode(self._message)
                conclude(message, self._verdict(message.folder), self._failure, self._environment)
        except KeyboardInterrupt:
            # Whoever presses Ctrl-C now doesn't want to wait for the report.
            return
        finally:
            if type(_last_error()) is KeyboardInterrupt:
                _die_of_interrupt_after_all()

    def _verdict(self, folder: str) -> dict[str, Any]:
        if self._session is None:
            return {}
        try:
            return self._session.finish(_ending()).as_json(folder)
        except Exception as error:  # noqa: BLE001 - a report that says so is better than none
            self._failure = error
            return {}


class _no_collection:  # noqa: N801 - reads as the statement that it is
    """Context without cyclic garbage collection: our imports may set off one, which walks torch's whole heap."""

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_enabled:
            gc.enable()


def _open_session(message: Message) -> Session:
    from pathlib import Path
    from typing import Literal, cast

    from unstuck.places import add_user_root
    from unstuck.session import Session, SessionOptions
    from unstuck.trials.incident_folder import load_incident

    script: str | None = os.path.join(message.folder, message.target)
    if message.is_module:
        script = getattr(sys.modules["__main__"], "__file__", None)
        root = _root_of(message.target.partition(".")[0])
        if root is not None:
            add_user_root(root)
    return Session(
        SessionOptions(
            out=Path(message.out),
            steps=message.steps,
            on_nonfinite=cast('Literal["stop", "continue", "skip-step"]', message.on_nonfinite),
            rerun=message.rerun,
            script=None if script is None or message.target == "-" else Path(script),
            trace_step=message.trace_step,
            budget=message.budget,
            quiet=message.quiet,
            replay=None if message.replay is None else load_incident(Path(message.replay)),
        )
    )


def _root_of(package: str) -> str | None:
    """The folder of a top-level package, the file of a top-level module; it isn't imported for that."""
    from importlib.util import find_spec

    spec = find_spec(package)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return folders[0] if folders else spec.origin


def _last_error() -> BaseException | None:
    """The exception that ended the main thread, which Python keeps unless it was SystemExit."""
    error: BaseException | None = getattr(sys, "last_exc", getattr(sys, "last_value", None))
    return error


def _die_of_interrupt_after_all() -> None:
    """Let Python end by SIGINT, as it means to after Ctrl-C.

    Python notes an uncaught KeyboardInterrupt and forgets it again when a source text is executed, as the import of
    dataclasses does; one more uncaught by such a text is noted again.
    """
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return


def _ending() -> Ending:
    from unstuck.session import Ending

    error = _last_error()
    if isinstance(error, KeyboardInterrupt):
        return Ending("interrupt", exception=error)
    if error is not None:
        return Ending("exception", exception=error)
    return Ending("completed")
