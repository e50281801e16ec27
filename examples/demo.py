"""The demo of `make demo`: a training on real data turns NaN; plain Python doesn't say why, `unstuck run` does.

Runs `digits_nan.py` under plain Python and under unstuck, then its fixed twin under unstuck. Ends with 0 if each came
out as promised.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WATCH = [sys.executable, "-m", "unstuck", "run"]


def show(title: str, script: str, watch_options: list[str] | None = None) -> int:
    """Run a script on this terminal, under watch where there are options for that; print how it ended."""
    watched = watch_options is not None
    print(f"\n--- {title}\n$ {'unstuck run' if watched else 'python'} {script}", flush=True)
    command = [*WATCH, *watch_options, script] if watch_options is not None else [sys.executable, script]
    # Matrices as small as these gain nothing from threads, and the numbers are the same on every machine.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    status = subprocess.run(command, cwd=HERE, env=environment, check=False).returncode
    print(f"(exit code {status})", flush=True)
    return status


def line_of(text: str) -> int:
    """The line of `digits_nan.py` that holds ``text``."""
    lines = (HERE / "digits_nan.py").read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        plain = show("plain Python: the loss turns NaN, and nothing says why", "digits_nan.py")
        out = ["--out", folder]
        faulty = show("watched: stopped before the weights are lost, the line named", "digits_nan.py", out)
        report = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
        where = report["findings"][0]["where"] if report["findings"] else {}
        fixed = show("watched, with log_softmax in that line: one line", "digits_nan_fixed.py", out)
    named = (where.get("file"), where.get("line")) == ("digits_nan.py", line_of("probabilities.log()"))
    if (plain, faulty, fixed) != (0, 3, 0) or not named:
        print(f"\nthe demo didn't come out as it should: exit codes {plain}, {faulty}, {fixed}, place {where}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
