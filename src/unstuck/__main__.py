"""``python -m unstuck``: the same as the console script ``unstuck``."""

from __future__ import annotations

import sys

from unstuck.cli import main

if __name__ == "__main__":
    sys.exit(main())
