"""First code in the interpreter that runs the user's script: put the session on watch, then leave no trace.

Python imports ``sitecustomize`` at start-up; this one is found first, takes itself away and imports the user's own.
"""

from __future__ import annotations

import os
import sys


def _enter() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    sys.path_importer_cache.pop(folder, None)
    # Where unstuck isn't installed but run from a folder, this process doesn't find it by itself.
    root = os.path.abspath(os.path.join(folder, *[os.pardir] * 4))
    sys.path.append(root)
    try:
        from unstuck.cli.launcher.inside import enter
    finally:
        sys.path.pop()
    enter()


_enter()
# The user's or the system's own, which is now the first on the path. Where there is none, the ImportError that names
# this module tells `site` so, and this module goes as if it had never been.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
