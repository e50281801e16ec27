"""Reports on disk: strict JSON, whole or not at all, readable without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unstuck.errors import RecordError
from unstuck.report.files import read_report, write_json, write_report


def test_round_trip_is_strict_json(tmp_path: Path) -> None:
    report = {"findings": [], "cost": float("nan"), "more": {"a": [float("inf"), -float("inf"), 1.5, True, None]}}
    write_report(tmp_path / "out", report)

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} isn't JSON")

    json.loads((tmp_path / "out" / "report.json").read_text(), parse_constant=refuse)
    expected = {"findings": [], "cost": "nan", "more": {"a": ["inf", "-inf", 1.5, True, None]}}
    assert read_report(tmp_path / "out") == expected
    assert read_report(tmp_path / "out" / "report.json") == expected


def test_what_is_no_file_of_its_own_gets_the_report_and_stays(tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link.json", tmp_path / "target.json"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_json(pipe, {"findings": []})
        assert json.loads(os.read(reader, 10_000)) == {"findings": []}
        assert pipe.is_fifo()
    finally:
        os.close(reader)
    link.symlink_to(target)
    write_json(link, {"findings": []})
    assert link.is_symlink()
    assert read_report(target) == {"findings": []}
    write_json(Path(os.devnull), {"findings": []})
    assert Path(os.devnull).is_char_device()


def test_failed_write_leaves_the_old_report(tmp_path: Path) -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise RuntimeError

    write_json(tmp_path / "report.json", {"findings": []})
    with pytest.raises(RuntimeError):
        write_json(tmp_path / "report.json", {"findings": [Unprintable()]})
    assert read_report(tmp_path / "report.json") == {"findings": []}
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_json(tmp_path / "folder.json", {"findings": []})
    assert sorted(os.listdir(tmp_path)) == ["folder.json", "report.json"]


def test_permissions_are_those_of_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_json(tmp_path / "report.json", {"findings": []})
    assert (tmp_path / "report.json").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("content", ["", "{", "[]", '{"findings": 3}', "\x00", '{"other": []}'])
def test_what_is_no_report_is_told(content: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(content)
    with pytest.raises(RecordError, match="report"):
        read_report(tmp_path)


def test_missing_report_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        read_report(tmp_path / "nothing.json")


def test_saved_report_is_drawn_without_torch(tmp_path: Path) -> None:
    where = {"file": "train.py", "line": 3, "step": 7}
    finding = {"code": "optim.no-step", "severity": "error", "summary": "s", "where": where, "remedy": "call it"}
    write_report(tmp_path, {"findings": [finding]})
    code = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'lightning'): sys.modules[name] = None\n"
        "import unstuck.findings, unstuck.record, unstuck.report.terminal\n"
        "from unstuck.cli import main\n"
        f"sys.argv = ['unstuck', 'report', {str(tmp_path)!r}]\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "optim.no-step  train.py:3" in done.stderr
    assert done.stdout == ""


def test_command_tells_what_is_no_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unstuck", "report", str(tmp_path / "nothing.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "can't read" in done.stderr
