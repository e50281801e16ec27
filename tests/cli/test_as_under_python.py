"""A script under `unstuck run` behaves as under `python`: each program runs both ways and the outsides are compared."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.cli.running import PLAIN, PROGRAMS, WATCHED, Outcome, both, environment, run, run_and_signal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder that holds a copy of the programs."""
    return Path(shutil.copytree(PROGRAMS, tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__")))


def assert_alike(plain: Outcome, watched: Outcome) -> None:
    assert watched.stdout == plain.stdout
    assert watched.own_stderr == plain.stderr
    assert watched.status == plain.status
    assert len(watched.our_lines) <= 1


EXITS = ["zero", "seven", "large", "negative", "text", "none", "bool", "object", "hard", "abort", "thread", "end"]
RAISES = ["cause", "context", "note", "hook", "failing-hook", "recursion", "interrupt", "group", "generator-exit"]
COMMANDS: dict[str, list[str]] = {
    "surroundings": ["surroundings.py", "one", "--two", "-m", "", "--steps", "3"],
    "relative path": ["../scripts/./surroundings.py"],
    "a module's surroundings": ["-m", "surroundings", "--json", "x"],
    "last words": ["last_words.py"],
    "workers": ["workers.py"],
    "habits": ["habits.py", "--steps", "4", "--json=y"],
    "chatter": ["chatter.py"],
    "a package": ["-m", "package", "a", "-b"],
    "a module in a package": ["-m", "package.module"],
    "a module that raises": ["-m", "package.module", "now"],
    "a package as a folder": ["package"],
    "a module that doesn't exist": ["-m", "nowhere"],
    "a submodule that doesn't exist": ["-m", "package.nowhere"],
    "a script that doesn't exist": ["nowhere.py"],
    "a folder that is no program": ["."],
    **{f"exit {kind}": ["exits.py", kind] for kind in EXITS},
    **{f"raise {kind}": ["raises.py", kind] for kind in RAISES},
}


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS.keys())
def test_program(arguments: list[str], folder: Path) -> None:
    plain, watched = both(arguments, folder, stdin=b"a line\nanother\n")
    assert plain.stdout or plain.status, "the program does something"
    assert_alike(plain, watched)


SOURCES: dict[str, bytes] = {
    "empty": b"",
    "syntax error": b"def f(:\n    pass\n",
    "syntax error deep inside": b"import os\n\nfor x in range(3):\n    print(x\n\nprint('end')\n",
    "indentation": b"if True:\nprint()\n",
    "unterminated string": b'x = """\n',
    "wrong encoding": b"# caf\xe9\nprint('x')\n",
    "declared encoding": b"# -*- coding: latin-1 -*-\nprint(ascii('caf\xe9'))\n",
    "unknown encoding": b"# -*- coding: nonsense -*-\nprint('x')\n",
    "byte order mark": b"\xef\xbb\xbfprint('x', __file__[-9:])\n",
    "binary": bytes(range(256)),
    "null bytes": b"print('x')\0\n",
    "line ends": b"print('x')\r\nraise ValueError('y')\r\n",
    "no newline at the end": b"raise ValueError('y')",
    "warns while it is compiled": b"print(1 is 1)\nassert (1, 'x')\n",
    "future statement": b"from __future__ import annotations\ndef f(x: undefined): pass\nprint(f.__annotations__)\n",
    "main is replaced": b"import sys\nsys.modules['__main__'] = None\nprint('x')\n",
    "streams are closed": b"import sys\nprint('x')\nsys.stdout.close()\nsys.stderr.close()\n",
    "main deletes itself": b"import os\nos.remove(__file__)\n1/0\n",
    "atexit is cleared": b"import atexit\natexit._clear()\nprint('x')\n",
    "exits in atexit": b"import atexit, os\natexit.register(os._exit, 5)\nprint('x', flush=True)\n",
    "replaces its process": b"import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(4)'])\n",
    "closes every descriptor": b"import os\nprint('x', flush=True)\nos.closerange(3, 256)\n",
    "code ends by an error at the exit": b"import atexit\natexit.register(lambda: 1/0)\nprint('x')\n",
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_source(source: bytes, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_bytes(source)
    plain = run([*PLAIN, "script.py"], tmp_path)
    (tmp_path / "script.py").write_bytes(source)
    assert_alike(plain, run([*WATCHED, "script.py"], tmp_path))


def test_unreadable_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('x')")
    (tmp_path / "script.py").chmod(0)
    if os.access(tmp_path / "script.py", os.R_OK):
        pytest.skip("this user may read everything")
    assert_alike(*both(["script.py"], tmp_path))


def test_script_from_standard_input(folder: Path) -> None:
    assert_alike(*both(["-", "a"], folder, stdin=b"import sys\nprint(sys.argv, __name__)\n1/0\n"))


def test_zip_file_and_folder_and_link(tmp_path: Path) -> None:
    program = "import sys, helper\nprint(sys.argv, sys.path[0], __file__, helper.NAME, __spec__)\n"
    for name in ("program", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "program" / "__main__.py").write_text(program)
    (tmp_path / "program" / "helper.py").write_text("NAME = 'helper'\n")
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as archive:
        for file in ("__main__.py", "helper.py"):
            archive.write(tmp_path / "program" / file, file)
    (tmp_path / "elsewhere" / "link.py").symlink_to(tmp_path / "program" / "__main__.py")
    for target in ("program", "program.zip", "elsewhere/link.py"):
        plain, watched = both([target, "x"], tmp_path)
        assert plain.status == 0
        assert_alike(plain, watched)


def test_compiled_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print(__file__, __cached__, __name__)\n")
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-b", "script.py"], cwd=tmp_path, check=True)
    (tmp_path / "script.py").unlink()
    plain, watched = both(["script.pyc"], tmp_path)
    assert plain.status == 0
    assert_alike(plain, watched)


@pytest.mark.parametrize("path", [None, "", "lib", f"{os.pardir}{os.pathsep}lib"])
def test_environment_is_the_users(path: str | None, folder: Path) -> None:
    (folder / "lib").mkdir()
    (folder / "lib" / "sitecustomize.py").write_text("import sys\nsys.stderr.write('')\nMARK = 1\n")
    (folder / "script.py").write_text(
        "import os, sys\nprint(sorted(os.environ.items()), sys.path)\n"
        "print('sitecustomize' in sys.modules and sys.modules['sitecustomize'].__file__)\n"
    )
    plain, watched = both(["script.py"], folder, PYTHONPATH=path)
    assert_alike(plain, watched)
    assert plain.status == 0


@pytest.mark.parametrize("flags", [["-OO"], ["-bW", "error"], ["-Wonce", "-X", "utf8"], ["-Bu"], ["-P"]], ids=" ".join)
def test_interpreter_flags(flags: list[str], folder: Path) -> None:
    if flags == ["-P"] and sys.version_info < (3, 11):
        pytest.skip("the flag came with Python 3.11")
    (folder / "script.py").write_text(
        "import sys\nprint(sys.flags, sys.path, sys.warnoptions, sys._xoptions, sys.orig_argv)\n"
    )
    plain = run([sys.executable, *flags, "script.py"], folder)
    watched = run([sys.executable, *flags, *WATCHED[1:], "script.py"], folder)
    assert_alike(plain, watched)
    assert plain.status == 0


@pytest.mark.parametrize("flags", [["-I"], ["-E"], ["-S"]], ids=" ".join)
def test_flags_that_keep_us_out(flags: list[str], folder: Path) -> None:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    code = f"import sys; sys.path[:] = {path!r}.split({os.pathsep!r}); from unstuck.cli import main; sys.exit(main())"
    refused = run([sys.executable, *flags, "-c", code, "run", "exits.py", "zero"], folder)
    assert refused.status == 2
    assert len(refused.our_lines) == 1
    assert refused.stdout == b""


SIGNALS = [
    ("default", signal.SIGINT),
    ("default", signal.SIGTERM),
    ("default", signal.SIGKILL),
    ("default", signal.SIGHUP),
    ("default", signal.SIGUSR1),
    ("handler", signal.SIGINT),
    ("handler", signal.SIGTERM),
    ("handler", signal.SIGUSR1),
    ("ignore", signal.SIGTERM),
]


@pytest.mark.parametrize(("kind", "number"), SIGNALS, ids=[f"{kind} {number.name}" for kind, number in SIGNALS])
def test_signal(kind: str, number: signal.Signals, folder: Path) -> None:
    arguments = ["signalled.py", kind]
    plain = run_and_signal([*PLAIN, *arguments], folder, number)
    assert_alike(plain, run_and_signal([*WATCHED, *arguments], folder, number))


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGABRT])
def test_script_that_is_killed(number: signal.Signals, folder: Path) -> None:
    assert_alike(*both(["signalled.py", "self", str(int(number))], folder))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_whole_group(number: signal.Signals, folder: Path) -> None:
    arguments = ["signalled.py", "default"]
    plain = run_and_signal([*PLAIN, *arguments], folder, number, to_group=True)
    watched = run_and_signal([*WATCHED, *arguments], folder, number, to_group=True)
    assert (watched.stdout, watched.status) == (plain.stdout, plain.status)


def test_module_and_signal(folder: Path) -> None:
    arguments = ["-m", "signalled", "default"]
    plain = run_and_signal([*PLAIN, *arguments], folder, signal.SIGINT)
    assert_alike(plain, run_and_signal([*WATCHED, *arguments], folder, signal.SIGINT))


def test_ctrl_c_on_a_terminal_comes_once(folder: Path) -> None:
    (folder / "script.py").write_text(
        "import time\n"
        "try:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "finally:\n    time.sleep(0.5)\n    print('cleaned up', flush=True)\n"
    )
    for command in (PLAIN, WATCHED):
        leader, follower = pty.openpty()
        # A session of its own whose terminal is the follower: the kernel turns the byte 3 into SIGINT for its group.
        script = (
            "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script, *command, "script.py"],
            cwd=folder,
            env=environment(),
            stdin=follower,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        os.close(follower)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.1)
        os.write(leader, b"\x03")
        stdout, _ = process.communicate(timeout=20)
        os.close(leader)
        assert stdout == b"cleaned up\n"
        assert process.returncode == -signal.SIGINT


def test_killing_us_kills_the_script(folder: Path) -> None:
    (folder / "script.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n")
    process = subprocess.Popen([*WATCHED, "script.py"], cwd=folder, env=environment(), stdout=subprocess.PIPE)
    assert process.stdout is not None
    script = int(process.stdout.readline())
    process.kill()
    # The pipe closes when its last holder, the script, is gone.
    assert process.communicate(timeout=20) == (b"", None)
    for _ in range(100):
        if not Path(f"/proc/{script}").exists() or "Z" in Path(f"/proc/{script}/stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    pytest.fail("the script is still alive")


def test_dispositions_are_inherited(folder: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "for name in ('SIGHUP', 'SIGCHLD', 'SIGINT'): signal.signal(getattr(signal, name), signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    (folder / "script.py").write_text(
        "import signal\nprint([signal.getsignal(n) for n in signal.valid_signals()], signal.pthread_sigmask(0, ()))\n"
    )
    starter = [sys.executable, "-c", code]
    plain = run([*starter, *PLAIN, "script.py"], folder)
    watched = run([*starter, *WATCHED, "script.py"], folder)
    assert plain.status == 0
    assert_alike(plain, watched)


def test_reader_that_goes_away(folder: Path) -> None:
    outcomes = []
    for command in (PLAIN, WATCHED):
        process = subprocess.Popen(
            [*command, "chatter.py"], cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        stderr = process.stderr.read()
        process.stderr.close()
        outcomes.append(Outcome(b"", stderr, process.wait(timeout=20)))
    assert_alike(*outcomes)


def test_closed_standard_error(folder: Path) -> None:
    for arguments in (["exits.py", "seven"], ["exits.py", "end"]):
        statuses = []
        for command in (PLAIN, WATCHED):
            shell = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command, *arguments]
            statuses.append(run(shell, folder).status)
        assert statuses[0] == statuses[1]


def test_users_modules_with_our_names(tmp_path: Path) -> None:
    names = ["click", "rich", "utils", "json", "tempfile", "ctypes", "resource", "rich_click", "cli", "console"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"WHOSE = 'user'\nprint('{name} is loaded')\n")
    (tmp_path / "script.py").write_text(
        "".join(f"import {name}; print({name}.WHOSE, {name}.__file__)\n" for name in names)
    )
    for variables in ({}, {"PYTHONPATH": str(tmp_path)}):
        plain, watched = both(["script.py"], tmp_path, **variables)
        assert plain.status == 0
        assert_alike(plain, watched)
        assert watched.our_lines == ["unstuck: nothing was trained in this process, so there is nothing to report"]


def test_nothing_is_left_behind_by_a_run_without_torch(folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    run([*WATCHED, "exits.py", "end"], folder)
    run([*WATCHED, "nowhere.py"], folder)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_folder_that_nobody_can_write_to(folder: Path) -> None:
    folder.chmod(0o555)
    try:
        assert_alike(*both(["exits.py", "seven"], folder))
    finally:
        folder.chmod(0o755)
