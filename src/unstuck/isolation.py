"""Keeps the user's modules and ours apart: a ``rich.py`` beside the script neither breaks us nor is replaced by ours.

The bottom layer. It is imported inside the user's process before the script starts, so it imports only what every
Python has loaded by then.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType, TracebackType

__all__ = ["prefer_installed_packages", "private_imports", "remember_import_path"]

# Where our own imports look first: the standard library and the installed packages.
_own_path: list[str] = []


def _installed(path: list[str]) -> list[str]:
    """The entries of ``path`` that didn't come by PYTHONPATH."""
    variable = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    from_variable = {os.path.abspath(entry) for entry in variable.split(os.pathsep) if entry}
    return [entry for entry in path if os.path.abspath(entry) not in from_variable]


def prefer_installed_packages() -> None:
    """In a process that runs no user code: let imports find installed packages before the user's files."""
    path = list(sys.path)
    # `python -m` puts the working folder first; the console script its own folder, which holds no modules.
    if path and not getattr(sys.flags, "safe_path", False):
        del path[0]
    installed = _installed(path)
    sys.path[:] = installed + [entry for entry in path if entry not in installed]


def remember_import_path() -> None:
    """Take the present ``sys.path``, which doesn't hold the script's folder yet, as the one for our own imports."""
    _own_path[:] = _installed(sys.path)


class private_imports:  # noqa: N801 - reads as the statement that it is
    """Context in which ``import`` finds installed packages, whatever the user's folder holds.

    Inside the user's process, modules that the user has loaded from the script's folder and that have the name of an
    installed package are laid aside and put back at the end; a package that we have loaded and that the user's folder
    shadows is forgotten again, so that the user's next ``import`` gets the user's. Does nothing before
    :func:`remember_import_path`.
    """

    def __enter__(self) -> None:
        self._path = list(sys.path)
        self._before: set[str] = set()
        self._laid_aside: dict[str, ModuleType] = {}
        if not _own_path:
            return
        self._user_entries = [entry for entry in self._path if entry not in _own_path]
        for name in self._shadowing():
            for loaded in _family(name):
                self._laid_aside[loaded] = sys.modules.pop(loaded)
        self._before = set(sys.modules)
        # The user's folders stay reachable: what is only there may be wanted by what we call.
        sys.path[:] = _own_path + self._user_entries

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not _own_path:
            return
        sys.path[:] = self._path
        fresh = {name.partition(".")[0] for name in sys.modules if name not in self._before}
        for name in fresh - {"unstuck"}:
            if name in self._laid_aside or _is_in(name, self._user_entries):
                for loaded in _family(name):
                    del sys.modules[loaded]
        sys.modules.update(self._laid_aside)

    def _shadowing(self) -> list[str]:
        """Top-level modules that were loaded from the user's folders in place of an installed package."""
        if not self._user_entries:
            return []
        folders = _as_folders(self._user_entries)
        # a virtual environment often lies in the user's folder, and holds installed packages all the same
        installed = _as_folders(_own_path)
        shadowing = []
        for name, module in list(sys.modules.items()):
            origin = getattr(getattr(module, "__spec__", None), "origin", None)
            if "." in name or not isinstance(origin, str) or not os.path.abspath(origin).startswith(folders):
                continue
            if os.path.abspath(origin).startswith(installed):
                continue
            if _is_in(name, _own_path):
                shadowing.append(name)
        return shadowing


def _as_folders(path: list[str]) -> tuple[str, ...]:
    return tuple(os.path.join(os.path.abspath(entry), "") for entry in path)


def _family(name: str) -> list[str]:
    return [loaded for loaded in sys.modules if loaded == name or loaded.startswith(name + ".")]


def _is_in(name: str, path: list[str]) -> bool:
    """Whether a regular module or package called ``name`` (no namespace folder) can be found on ``path``."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(name, path)
    return spec is not None and spec.loader is not None
