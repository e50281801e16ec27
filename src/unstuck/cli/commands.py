"""The commands and their options. Parses, hands over, and turns our exceptions into one line and an exit code."""

from __future__ import annotations

import signal
from pathlib import Path

import click

import unstuck
from unstuck.console import console
from unstuck.errors import UnstuckError

__all__ = ["run_command_line"]


def run_command_line() -> int:
    """Run the command that ``sys.argv`` asks for; return the exit status."""
    from unstuck.cli.launcher.supervisor import Ended, end_alike

    try:
        status = _unstuck.main(prog_name="unstuck", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except UnstuckError as error:
        _print_error(str(error))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return end_alike(Ended(None, signal.SIGINT))
    return status if isinstance(status, int) else 0


def _print_error(message: str) -> None:
    from rich.text import Text

    console().print(Text(f"unstuck: {message}"), soft_wrap=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(unstuck.__version__, prog_name="unstuck")
def _unstuck() -> None:
    """Finds out why a PyTorch training doesn't learn or blows up, and says where and what to do about it."""


@_unstuck.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.option("-m", "is_module", is_flag=True, help="TARGET is a module's dotted name, as for `python -m`.")
@click.option("--steps", type=click.IntRange(min=1), help="Stop cleanly after this many optimiser steps.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the JSON report to this file.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Output folder  [default: unstuck-out/NAME-TIME in the working folder].",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "never"]),
    default="never",
    show_default=True,
    help="Exit with 3 when the script succeeds but there are findings as bad as this, or worse.",
)
@click.option(
    "--on-nonfinite",
    type=click.Choice(["stop", "continue"]),
    default="stop",
    show_default=True,
    help="At a NaN or infinity that would destroy the weights: stop the run (exit code 3), or report it at the end.",
)
@click.option(
    "--rerun", is_flag=True, help="If the failing step can't be replayed, run the script again to explain it."
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0.0),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that trials on copies may take at the end, where something is suspected; 0 for none.",
)
@click.option("--quiet", is_flag=True, help="Print nothing; the report is written all the same.")
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _run(
    is_module: bool,
    steps: int | None,
    json_file: Path | None,
    out: Path | None,
    fail_on: str,
    on_nonfinite: str,
    rerun: bool,
    budget: float,
    quiet: bool,
    target: str,
    arguments: tuple[str, ...],
) -> int:
    """Run a training under watch, exactly as `python TARGET ARGUMENTS...` would.

    Options come before TARGET (a script, or with -m a module); everything after it belongs to the script.
    """
    from unstuck.cli.run import RunOptions, run

    return run(
        RunOptions(
            target=target,
            is_module=is_module,
            arguments=arguments,
            steps=steps,
            json_file=json_file,
            out=out,
            fail_on=fail_on,
            on_nonfinite=on_nonfinite,
            rerun=rerun,
            budget=budget,
            quiet=quiet,
        )
    )


@_unstuck.command("report")
@click.argument("path", type=click.Path(path_type=Path))
def _report(path: Path) -> int:
    """Show a saved report again: PATH is a report's JSON file, or a run's output folder.

    The recording of a run that was killed before it could report is judged now.
    """
    from unstuck.cli.saved import saved_report
    from unstuck.report.terminal import show

    show(saved_report(path))
    return 0
