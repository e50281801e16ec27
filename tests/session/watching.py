"""Runs a program given as text under a session, in this process, as `unstuck run` would in its own."""

from __future__ import annotations

import contextlib
import io
import linecache
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from unstuck.findings import Finding
from unstuck.session import Ending, Session, SessionOptions, StopRun, Verdict

PRELUDE = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
"""


@dataclass
class Watched:
    """What came of a watched program: its verdict, its namespace, what it printed, the code it was stopped with."""

    verdict: Verdict
    namespace: dict[str, Any]
    output: str
    stopped: int | None
    session: Session
    file: str

    @property
    def finding(self) -> Finding:
        """The first finding."""
        assert self.verdict.findings, f"nothing was found; unchecked: {self.verdict.unchecked}"
        return self.verdict.findings[0]

    def line_of(self, mark: str) -> int:
        """1-based line of the only line of the program that contains ``mark``."""
        lines = [index for index, line in enumerate(linecache.getlines(self.file), 1) if mark in line]
        assert len(lines) == 1, (mark, lines)
        return lines[0]


def watch(program: str, folder: Path, options: SessionOptions | None = None) -> Watched:
    """Run ``program`` (with the usual imports before it) as ``__main__`` under a session."""
    file = folder / "train.py"
    file.write_text(PRELUDE + textwrap.dedent(program))
    linecache.checkcache(str(file))
    module = ModuleType("__main__")
    module.__file__ = str(file)
    session = Session(replace(options or SessionOptions(), script=file))
    output = io.StringIO()
    stopped: int | None = None
    main = sys.modules["__main__"]
    sys.modules["__main__"] = module
    session.start()
    try:
        with contextlib.redirect_stdout(output):
            exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    except StopRun as stop:
        stopped = int(stop.code or 0)
    finally:
        sys.modules["__main__"] = main
        verdict = session.finish(Ending("completed"))
    assert not session._bus.faults, session._bus.faults
    assert not any("was switched off: " in phrase for phrase in verdict.unchecked), verdict.unchecked
    return Watched(verdict, module.__dict__, output.getvalue(), stopped, session, str(file))


def same_state(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit equality, NaN included."""
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())
