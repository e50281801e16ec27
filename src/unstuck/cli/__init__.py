"""The command line: the only part of unstuck that turns exceptions into output and exit codes.

This package's ``__init__`` is also imported inside the user's process before the script starts, so it imports nothing.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> int:
    """Run the command line on ``sys.argv``; return the exit status (both entry points come here)."""
    from unstuck.isolation import prefer_installed_packages

    # Before click is imported: a user's own click.py beside the script, or on PYTHONPATH, isn't ours.
    prefer_installed_packages()
    from unstuck.cli.commands import run_command_line

    return run_command_line()
