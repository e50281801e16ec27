"""The demo tells its story: the loss turns NaN unexplained, is explained with its line, and the fix passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


def test_demo(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(DEMO)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    plain, faulty, fixed = done.stdout.split("--- ")[1:]
    assert "     nan " in plain
    assert "     nan " not in faulty
    assert "     nan " not in fixed
    explained, passed = done.stderr.strip().split("unstuck: ")[1:]
    assert "numerics.nonfinite-forward  digits_nan.py:12" in explained
    assert "entropy" in explained
    assert passed.startswith("nothing wrong found")
    assert "\n" not in passed
    assert list(tmp_path.iterdir()) == []
