"""The user's modules and ours stay apart: each side's `import rich` gives its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PRELUDE = """
import sys
from unstuck import isolation
isolation.remember_import_path()
sys.path.insert(0, {folder!r})
"""


def python(code: str, folder: Path) -> str:
    """The output of ``code`` in an interpreter that is about to run a script of ``folder``."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE.format(folder=str(folder)) + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ours_while_we_import_theirs_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("WHOSE = 'user'\n")
    code = """
import rich
theirs = rich
with isolation.private_imports():
    import rich
    from rich.console import Console
    assert not hasattr(rich, "WHOSE")
import rich
assert rich is theirs
assert not [name for name in sys.modules if name.startswith("rich.")]
with isolation.private_imports():
    from rich.text import Text
print(Console.__name__, Text.__name__, rich.WHOSE, sys.path[0])
"""
    assert python(code, tmp_path) == f"Console Text user {tmp_path}\n"


def test_what_we_loaded_first_is_not_what_they_get(tmp_path: Path) -> None:
    (tmp_path / "click").mkdir()
    (tmp_path / "click" / "__init__.py").write_text("WHOSE = 'user'\n")
    (tmp_path / "statistics.py").write_text("WHOSE = 'user'\n")
    code = """
with isolation.private_imports():
    import click, statistics, colorsys
    assert click.command and statistics.mean
import click, statistics
print(click.WHOSE, statistics.WHOSE, "colorsys" in sys.modules)
"""
    assert python(code, tmp_path) == "user user True\n"


def test_exception_inside_restores_everything(tmp_path: Path) -> None:
    code = """
before = list(sys.path)
try:
    with isolation.private_imports():
        assert sys.path != before
        raise KeyError
except KeyError:
    print(sys.path == before)
"""
    assert python(code, tmp_path) == "True\n"


def test_a_folder_of_data_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "rich").mkdir()
    code = """
with isolation.private_imports():
    import rich
print("rich" in sys.modules)
"""
    assert python(code, tmp_path) == "True\n"
