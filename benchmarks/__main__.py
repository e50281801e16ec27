"""Runs every benchmark: ``python -m benchmarks [name ...]``."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path


def main() -> None:
    """Run the named benchmarks, or all of them; each prints its table."""
    here = Path(__file__).parent
    names = sys.argv[1:] or [item.name for item in pkgutil.iter_modules([str(here)]) if not item.name.startswith("_")]
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        if hasattr(module, "main"):
            print(f"\n== {name}: {(module.__doc__ or '').strip().splitlines()[0]}")
            module.main()


if __name__ == "__main__":
    main()
