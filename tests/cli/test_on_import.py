"""A function is called right after a module's first import, and nothing is left behind."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from unstuck.cli.launcher.on_import import after_import

NAME = "watched_module_of_this_test"


@pytest.fixture
def module_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that can be imported by ``NAME``."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    file = tmp_path / f"{NAME}.py"
    file.write_text("VALUE = 1\n\n\ndef function():\n    return VALUE\n")
    yield file
    sys.modules.pop(NAME, None)


def test_called_once_after_the_module_has_run(module_file: Path) -> None:
    before = list(sys.meta_path)
    seen: list[object] = []
    after_import(NAME, lambda: seen.append(sys.modules[NAME].VALUE))
    assert seen == []
    module = importlib.import_module(NAME)
    assert seen == [1]
    assert sys.meta_path == before
    importlib.reload(module)
    assert seen == [1]


def test_looking_for_the_module_is_not_importing_it(module_file: Path) -> None:
    seen: list[int] = []
    after_import(NAME, lambda: seen.append(1))
    assert importlib.util.find_spec(NAME) is not None
    assert importlib.util.find_spec("no_such_module_anywhere") is None
    assert seen == []
    importlib.import_module(NAME)
    assert seen == [1]


def test_module_looks_as_if_nobody_had_hooked_in(module_file: Path) -> None:
    after_import(NAME, lambda: None)
    hooked = importlib.import_module(NAME)
    source, loader = inspect.getsource(hooked.function), hooked.__spec__.loader
    del sys.modules[NAME]
    plain = importlib.import_module(NAME)
    assert inspect.getsource(plain.function) == source
    assert vars(plain.__spec__.loader) == vars(loader)
    assert type(plain.__spec__.loader) is type(loader)


def test_failed_import_is_tried_again(module_file: Path) -> None:
    seen: list[int] = []
    after_import(NAME, lambda: seen.append(1))
    good = module_file.read_text()
    module_file.write_text("raise RuntimeError('not today')\n")
    with pytest.raises(RuntimeError, match="not today"):
        importlib.import_module(NAME)
    assert seen == []
    module_file.write_text(good + "# another size, so that no cached code is taken\n")
    importlib.invalidate_caches()
    importlib.import_module(NAME)
    assert seen == [1]


def test_module_that_is_there_already() -> None:
    seen: list[int] = []
    after_import("sys", lambda: seen.append(1))
    assert seen == [1]
