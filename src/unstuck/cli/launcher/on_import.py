"""Calls a function right after a module has been imported for the first time, without importing it.

Imported inside the user's process before the script starts: imports only what every Python has loaded by then.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["after_import"]


def after_import(name: str, function: Callable[[], None]) -> None:
    """Call ``function`` once, right after module ``name`` has run and before the ``import`` returns.

    Called at once where the module is loaded already. Afterwards nothing is left on ``sys.meta_path``.
    """
    if name in sys.modules:
        function()
        return
    sys.meta_path.insert(0, _Watcher(name, function))


class _Watcher:
    """A finder that finds nothing itself: it lets the other finders work and hooks into the loader they give."""

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self._name = name
        self._function = function
        self._hooked: object = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        for finder in sys.meta_path:
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find_spec is None else find_spec(fullname, path, target)
            if spec is not None:
                self._hook(spec.loader)
                return spec
        return None

    def _hook(self, loader: object) -> None:
        """Shadow ``exec_module`` on this one loader object until it has run the module; its class stays as it is."""
        run: Callable[[ModuleType], None] | None = getattr(loader, "exec_module", None)
        if run is None or isinstance(loader, type) or loader is self._hooked:
            return

        def run_and_tell(module: ModuleType) -> None:
            # A loader of somebody else's may serve other modules as well.
            if module.__name__ != self._name:
                run(module)
                return
            vars(loader).pop("exec_module", None)
            self._hooked = None
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._function()

        vars(loader)["exec_module"] = run_and_tell
        self._hooked = loader
