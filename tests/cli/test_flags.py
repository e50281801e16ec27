"""The interpreter's own flags are told from ours and the script's."""

from __future__ import annotations

import pytest

from unstuck.cli.launcher.flags import interpreter_flags


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("python -m unstuck run x.py -O", ""),
        ("python /bin/unstuck run -m x -B", ""),
        ("python -OO -B -m unstuck", "-OO -B"),
        ("python -OBm unstuck run", "-OB"),
        ("python -W error -X dev -m unstuck run", "-W error -X dev"),
        ("python -Werror -Xdev unstuck run", "-Werror -Xdev"),
        ("python -bW error -c pass", "-bW error"),
        ("python --check-hash-based-pycs always -u -munstuck", "--check-hash-based-pycs always -u"),
        ("python - run", ""),
        ("python", ""),
    ],
)
def test_flags(line: str, flags: str) -> None:
    assert interpreter_flags(line.split()) == flags.split()
