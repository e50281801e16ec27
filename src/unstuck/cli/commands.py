"""The commands and their options. Parses, hands over, and turns our exceptions into one line and an exit code."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

import unstuck
from unstuck.console import console
from unstuck.errors import UnstuckError
from unstuck.places import add_own_file

__all__ = ["run_command_line"]


def run_command_line() -> int:
    """Run the command that ``sys.argv`` asks for; return the exit status."""
    from unstuck.cli.launcher.supervisor import Ended, end_alike

    add_own_file(sys.argv[0])
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
    type=click.Choice(["stop", "continue", "skip-step"]),
    default="stop",
    show_default=True,
    help="At a NaN or infinity that would destroy the weights: stop the run (exit code 3), report it at the end, or "
    "drop the step and go on as if its batch had not been (stops after 10 in a row).",
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


@_unstuck.command("doctor", options_metavar="[OPTIONS]")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Training steps of the overfit test and of the real run.",
)
@click.option("--batches", type=click.IntRange(min=1), default=1, show_default=True, help="Batches to overfit.")
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0.0, min_open=True),
    default=60.0,
    show_default=True,
    help="For each training.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the JSON report to this file.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Output folder  [default: unstuck-out/doctor-NAME-TIME in the working folder].",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "never"]),
    default="error",
    show_default=True,
    help="Exit with 3 for findings as bad as this, or worse. A failed check counts as an error, one to look at as a "
    "warning.",
)
@click.option("--quiet", is_flag=True, help="Print nothing; the reports are written all the same.")
@click.argument("target")
def _doctor(
    steps: int,
    batches: int,
    max_seconds: float,
    json_file: Path | None,
    out: Path | None,
    fail_on: str,
    quiet: bool,
    target: str,
) -> int:
    """Examine a program: dry run, overfit test, gradients, numbers, a short real run; ends where a cause is certain.

    TARGET is file.py:callable or package.module:callable. The callable builds and returns a LightningModule with its
    loaders or datamodule, or (model, loader, loss_fn, optimizer); it is called anew for every check.

    \b
    Exit codes:
      0    nothing was found and no check failed (what is to be looked at, or
           could not be judged, is said in the closing line)
      1    the program raised an exception or ended itself
      2    an option or the target can't work; nothing was examined
      3    something was found, or a check failed (see --fail-on)
      4    unstuck itself failed, and else nothing was found
      130  ended by Ctrl-C (signal SIGINT)
    """
    from unstuck.cli.doctor import DoctorOptions, doctor
    from unstuck.workflow.doctor.outcome import Plan

    plan = Plan(steps=steps, batches=batches, max_seconds=max_seconds)
    return doctor(DoctorOptions(target=target, plan=plan, json_file=json_file, out=out, fail_on=fail_on, quiet=quiet))


@_unstuck.command("replay", options_metavar="[OPTIONS]")
@click.option("--changed", is_flag=True, help="Run the program even if its file was changed after the incident.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the JSON report to this file.",
)
@click.option("--quiet", is_flag=True, help="Print nothing; the exit code tells.")
@click.argument("incident", type=click.Path(path_type=Path))
def _replay(changed: bool, json_file: Path | None, quiet: bool, incident: Path) -> int:
    """Run the step of a saved incident again: INCIDENT is the folder `incident-N` of a run.

    A Trainer's module is made from its class and hyper-parameters; a plain program is run until its first training
    step, which gets the saved weights, batch and random numbers. Exit code 3: the same was found again; 0: the step was
    finite.
    """
    from unstuck.cli.replay import ReplayOptions, replay

    return replay(ReplayOptions(incident=incident, changed=changed, json_file=json_file, quiet=quiet))


@_unstuck.command("report")
@click.argument("path", type=click.Path(path_type=Path))
def _report(path: Path) -> int:
    """Show a saved report again: PATH is a report's JSON file, or a run's output folder.

    The recording of a run that was killed before it could report is judged now.
    """
    from unstuck.cli.saved import saved_report
    from unstuck.report.examination import examination_lines, is_examination
    from unstuck.report.terminal import show

    report = saved_report(path)
    if not is_examination(report):
        show(report)
        return 0
    for line in examination_lines(report):
        console().print(line, soft_wrap=True)
    return 0
