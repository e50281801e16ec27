"""Messages: on rank 0, once, and through the one console."""

import logging
import os
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch

from unstuck import messages
from unstuck.console import console
from unstuck.messages import (
    PossibleUserWarning,
    global_rank,
    rank_zero_debug,
    rank_zero_info,
    rank_zero_only,
    rank_zero_warn,
    show_messages,
)


def test_the_console_is_one_and_writes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("hello")
    assert capsys.readouterr() == ("", "hello\n")
    assert console() is console()


@pytest.mark.parametrize("variable", ["RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK"])
def test_the_launcher_tells_the_rank(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    assert global_rank() == 0
    monkeypatch.setenv(variable, "3")
    assert global_rank() == 3
    monkeypatch.setenv("RANK", "2")
    assert global_rank() == 2


def test_the_process_group_knows_better(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("RANK", "3")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/r", rank=0, world_size=1)
    try:
        assert global_rank() == 0
    finally:
        torch.distributed.destroy_process_group()


def test_other_ranks_are_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    caplog.set_level(logging.DEBUG)
    doubled = rank_zero_only(lambda value: value * 2)
    assert doubled(2) == 4
    rank_zero_info("info 100%")
    rank_zero_debug("debug")
    assert [record.getMessage() for record in caplog.records] == ["info 100%", "debug"]
    monkeypatch.setenv("RANK", "1")
    rank_zero_info("info")
    rank_zero_debug("debug")
    rank_zero_warn("warning")
    assert doubled(2) is None
    assert len(caplog.records) == 2
    assert len(recwarn) == 0


def a_function_of_the_package(call: str) -> dict[str, Any]:
    """``warns()`` and ``passes_on()``, which calls it, as if they stood in a file of the package."""
    made: dict[str, Any] = {"rank_zero_warn": rank_zero_warn, "PossibleUserWarning": PossibleUserWarning}
    made["__name__"] = "unstuck.somewhere"
    code = f"def warns():\n    {call}\n\ndef passes_on():\n    warns()\n"
    exec(compile(code, os.path.join(os.path.dirname(messages.__file__), "somewhere.py"), "exec"), made)
    return made


@pytest.mark.parametrize(("depth", "stacklevel"), [("warns", ""), ("passes_on", ""), ("warns", ", stacklevel=2")])
def test_a_warning_points_to_the_users_line(depth: str, stacklevel: str) -> None:
    function = a_function_of_the_package(f"rank_zero_warn('odd', PossibleUserWarning{stacklevel})")[depth]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
        line = sys._getframe().f_lineno - 1
    assert [(type(w.message), str(w.message), w.filename, w.lineno) for w in caught] == [
        (PossibleUserWarning, "odd", __file__, line)
    ]


def test_a_filter_sees_the_module_that_warns() -> None:
    warns = a_function_of_the_package("rank_zero_warn('odd')")["passes_on"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module=r"unstuck\.")
        warns()
    assert caught == []


SHOW = """
import sys, logging
from unstuck.messages import rank_zero_info, show_messages
if len(sys.argv) > 1:
    logging.basicConfig(format="own %(message)s", level=logging.INFO)
rank_zero_info("before")
show_messages(); show_messages()
rank_zero_info("[bold]markup stays[/bold] and a long line isn't broken: " + "x" * 100)
print("rich" in sys.modules)
"""


@pytest.mark.parametrize("own_logging", [False, True])
def test_info_lines_are_shown_unless_the_program_logs_itself(own_logging: bool) -> None:
    command = [sys.executable, "-c", SHOW, *(["own"] if own_logging else [])]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    long_line = "[bold]markup stays[/bold] and a long line isn't broken: " + "x" * 100
    expected = [f"own before\nown {long_line}\n", "False\n"] if own_logging else [f"{long_line}\n", "True\n"]
    assert [result.stderr, result.stdout] == expected


def test_showing_twice_adds_one_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages.log, "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    level = messages.log.level
    try:
        show_messages()
        show_messages()
        assert len(messages.log.handlers) == 1
    finally:
        messages.log.setLevel(level)
