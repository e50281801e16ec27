"""Runs the user's program exactly as ``python`` would, because ``python`` does it.

The command line checks its options and then *becomes* ``python script.py args...`` (``exec``, the same process).
Python itself runs the script, so argv, ``sys.path``, ``__main__``, tracebacks, exit status and what signals do are
Python's own, and none of our frames lie below the script's. The folder ``bootstrap`` is on that interpreter's path just
long enough for its ``sitecustomize`` to put the session on watch (:mod:`.inside`). Nothing else of ours enters the
process before the script imports torch; when all of the script is over, atexit handlers included, the report is made.

Only the exit code of ``--fail-on`` needs a second process, which waits for the first (:mod:`.supervisor`).
"""

from __future__ import annotations
