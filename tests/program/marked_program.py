"""A program in a file, its lines found by their marks."""

from __future__ import annotations

import importlib.util
import linecache
import textwrap
from pathlib import Path
from types import ModuleType

from unstuck.places import Frame


class Program:
    """A file with its lines found by their marks."""

    def __init__(self, folder: Path, text: str) -> None:
        self.file = folder / "train.py"
        self.file.write_text(textwrap.dedent(text))
        linecache.checkcache(str(self.file))

    def line(self, mark: str) -> int:
        return next(n for n, text in enumerate(self.file.read_text().splitlines(), 1) if text.endswith(f"# {mark}"))

    def frame(self, mark: str) -> Frame:
        return Frame(str(self.file), self.line(mark), "<module>")

    def module(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"marked_program_{abs(hash(str(self.file)))}", self.file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
