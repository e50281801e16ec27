"""The options of `unstuck run`: where they are read, what they write, and what a bad one gets."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.cli.running import PLAIN, PROGRAMS, WATCHED, run, run_and_signal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder that holds a copy of the programs."""
    return Path(shutil.copytree(PROGRAMS, tmp_path / "work", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--nonsense", "exits.py"],
        ["--steps", "0", "exits.py", "end"],
        ["--steps", "many", "exits.py", "end"],
        ["--fail-on", "info", "exits.py", "end"],
        ["--on-nonfinite", "ignore", "exits.py", "end"],
        ["--json", "no/such/folder/report.json", "exits.py", "end"],
        ["--out", "exits.py", "exits.py", "end"],
        ["--out", "exits.py/below", "exits.py", "end"],
        ["-m"],
    ],
    ids=" ".join,
)
def test_bad_option_ends_with_2_before_the_script_starts(arguments: list[str], folder: Path) -> None:
    before = sorted(folder.iterdir())
    done = run([*WATCHED, *arguments], folder)
    assert done.status == 2
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 4
    assert sorted(folder.iterdir()) == before


def test_options_after_the_script_are_the_scripts(folder: Path) -> None:
    (folder / "script.py").write_text("import sys\nprint(sys.argv)\n")
    options = ["--steps", "3", "--json", "x", "--quiet", "--help", "-m", "--"]
    done = run([*WATCHED, "script.py", *options], folder)
    assert done.stdout.decode().strip() == str(["script.py", *options])
    module = run([*WATCHED, "-m", "script", *options], folder)
    assert module.stdout.decode().strip() == str([str(folder / "script.py"), *options])


def test_json_is_written_for_every_end(folder: Path) -> None:
    ends = {
        ("exits.py", "end"): "completed",
        ("exits.py", "seven"): "completed",
        ("raises.py", "cause"): "exception",
        ("nowhere.py",): "completed",
    }
    for arguments, kind in ends.items():
        (folder / "report.json").unlink(missing_ok=True)
        run([*WATCHED, "--json", "report.json", *arguments], folder)
        report = json.loads((folder / "report.json").read_text())
        assert report["findings"] == []
        assert report["script"] == arguments[0]
        assert report["arguments"] == list(arguments[1:])
        assert report["ending"]["kind"] == kind
    assert not (folder / "unstuck-out").exists()


def test_json_at_an_interrupt(folder: Path) -> None:
    run_and_signal([*WATCHED, "--json", "report.json", "signalled.py", "default"], folder, signal.SIGINT)
    assert json.loads((folder / "report.json").read_text())["ending"]["kind"] == "interrupt"


def test_json_is_resolved_before_the_script_changes_the_folder(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / "script.py").write_text("import os\nos.chdir('../elsewhere')\n")
    run([*WATCHED, "--json", "report.json", "script.py"], folder)
    assert (folder / "report.json").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_json_that_can_no_longer_be_written_leaves_the_scripts_end_alone(folder: Path) -> None:
    (folder / "reports").mkdir()
    (folder / "script.py").write_text("import os, sys\nos.rmdir('reports')\nsys.exit(5)\n")
    done = run([*WATCHED, "--json", "reports/report.json", "script.py"], folder)
    assert done.status == 5
    assert "can't write" in done.our_lines[-1]
    assert b"Traceback" not in done.stderr


def test_quiet_prints_nothing(folder: Path) -> None:
    done = run([*WATCHED, "--quiet", "--json", "report.json", "exits.py", "end"], folder)
    assert done.stderr == b""
    assert (folder / "report.json").exists()


def test_old_report_in_the_output_folder_is_not_taken_for_this_run(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "report.json").write_text('{"findings": [{"severity": "error", "code": "optim.no-step"}]}')
    done = run([*WATCHED, "--fail-on", "error", "--out", "out", "exits.py", "end"], folder)
    assert done.status == 0


@pytest.mark.parametrize("kind", ["zero", "seven", "text", "hard", "abort", "end"])
def test_exit_status_under_fail_on(kind: str, folder: Path) -> None:
    plain = run([*PLAIN, "exits.py", kind], folder)
    watched = run([*WATCHED, "--fail-on", "error", "exits.py", kind], folder)
    assert (watched.stdout, watched.status) == (plain.stdout, plain.status)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
@pytest.mark.parametrize("kind", ["default", "handler"])
def test_signal_under_fail_on(kind: str, number: signal.Signals, folder: Path) -> None:
    if (kind, number) == ("handler", signal.SIGKILL):
        pytest.skip("can't be handled")
    arguments = ["signalled.py", kind]
    plain = run_and_signal([*PLAIN, *arguments], folder, number)
    watched = run_and_signal([*WATCHED, "--fail-on", "warning", *arguments], folder, number)
    # A process that is killed the hard way can't wait for its script's last words.
    assert watched.status == plain.status
    assert watched.stdout == plain.stdout


def test_version_and_help(folder: Path) -> None:
    assert run([*WATCHED[:-1], "--version"], folder).stdout.startswith(b"unstuck, version ")
    assert b"--fail-on" in run([*WATCHED, "--help"], folder).stdout


def test_console_script_is_the_same_command(folder: Path) -> None:
    script = Path(PLAIN[0]).with_name("unstuck")
    if not os.access(script, os.X_OK):
        pytest.skip("the console script isn't installed beside this interpreter")
    done = run([str(script), "run", "exits.py", "seven"], folder)
    assert (done.stdout, done.status) == (b"ends by seven\n", 7)
