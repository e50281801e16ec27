"""What `unstuck run` adds to a script that imports torch and ends: processor seconds, at most 0.3."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 0.3
ROUNDS = 5


def _seconds(command: list[str], folder: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # An installed package has its bytecode; a working tree gets it in the first round.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Time both ways in turn; the smallest of each counts, as everything else is the machine's doing."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "script.py").write_text("import torch\n")
        plain, watched = [], []
        for _ in range(ROUNDS):
            plain.append(_seconds([sys.executable, "script.py"], folder))
            watched.append(_seconds([sys.executable, "-m", "unstuck", "run", "script.py"], folder))
    added = min(watched) - min(plain)
    print(f"plain {min(plain):.2f} s, watched {min(watched):.2f} s, added {added:.2f} s (limit {LIMIT} s)")


if __name__ == "__main__":
    main()
