"""The demo tells its story: the loss turns NaN unexplained, is explained with its line, and the fix passes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"
README = DEMO.parents[1] / "README.md"


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
    assert re.sub(r"[\d.]+ %", "0 %", f"    unstuck: {passed}") in re.sub(r"[\d.]+ %", "0 %", README.read_text("utf-8"))
    assert "\n" not in passed
    assert list(tmp_path.iterdir()) == []
    shown = [" ".join(line.split()) for line in done.stderr.splitlines()]
    assert [line for line in shown if line in told_by_readme()] == told_by_readme()


def test_the_second_example_of_the_readme(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unstuck", "run", "--out", str(tmp_path / "out"), "digits_softmax.py"]
    done = subprocess.run(command, cwd=DEMO.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    told = told_by_readme("    error   loss.activation-mismatch  digits_softmax.py:17")
    shown = [" ".join(line.split()) for line in done.stderr.splitlines()]
    assert [line for line in shown if line in told] == told


def told_by_readme(first_line: str = "    unstuck: 1 error") -> list[str]:
    """What the README shows of the demo's terminal, a line each, up to the line whose share of time differs."""
    lines = README.read_text(encoding="utf-8").splitlines()
    first = lines.index(first_line)
    return [" ".join(line.split()) for line in lines[first : lines.index("", first)]]
