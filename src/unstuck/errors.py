"""The exceptions that unstuck raises, one small tree.

Libraries raise, the command line prints: only :mod:`unstuck.cli` turns an exception into output or an exit code.

- :class:`UnstuckError`: root of the tree.

  - :class:`MisconfigurationException`: an argument or a combination of arguments can't work (name as in Lightning).

    - :class:`NameClashError`: two parts of a program use one name (a ``RuntimeError`` too, as in Lightning).

  - :class:`CheckpointError`: a checkpoint can't be written, read or used (damaged, foreign, of another module). It is a
    ``RuntimeError`` too, which is what torch and Lightning raise where weights don't fit.

    - :class:`IncompleteCheckpointError`: it lacks what is needed (a ``KeyError`` too, as in Lightning).
    - :class:`MissingHyperparametersError`: it lacks arguments of the module (a ``TypeError`` too, as in Lightning).

  - :class:`RecordError`: a recording or incident on disk can't be read (truncated, foreign, another version).
  - :class:`NonFiniteError`: a value has turned NaN or infinite in a run that was asked to end there.
  - :class:`ScriptError`: the program that should be run can't be started.

- :class:`MisconfigurationError` is the same class under the name that Python's conventions would give it.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "IncompleteCheckpointError",
    "MisconfigurationError",
    "MisconfigurationException",
    "MissingHyperparametersError",
    "NameClashError",
    "NonFiniteError",
    "RecordError",
    "ScriptError",
    "UnstuckError",
]


class UnstuckError(Exception):
    """Root of all exceptions that unstuck raises on purpose.

    ``exit_code`` is the status with which the command line ends when the exception reaches it.
    """

    exit_code: int = 1


class MisconfigurationException(UnstuckError):  # noqa: N818 - the name is Lightning's public interface
    """An argument, or a combination of arguments, can't work."""

    exit_code = 2


MisconfigurationError = MisconfigurationException


class NameClashError(MisconfigurationException, RuntimeError):
    """Two parts of a program use one name, so that one would overwrite the other."""


class CheckpointError(UnstuckError, RuntimeError):
    """A checkpoint can't be written, read or used."""


class IncompleteCheckpointError(CheckpointError, KeyError):
    """A checkpoint lacks what is needed."""

    def __str__(self) -> str:
        # A KeyError would show the message in quotes.
        return str(self.args[0]) if self.args else ""


class MissingHyperparametersError(CheckpointError, TypeError):
    """A checkpoint lacks arguments that its module or data module can't be made without."""


class NonFiniteError(UnstuckError):
    """A loss, gradient, weight or optimiser state has turned NaN or infinite, and the run was asked to end there.

    Args:
        message: what was found, with its place and what to do about it.
        finding: the same as a :class:`unstuck.findings.Finding`, None where nothing more is known.
    """

    exit_code = 3

    def __init__(self, message: str, finding: object = None) -> None:
        super().__init__(message)
        self.finding = finding


class RecordError(UnstuckError):
    """A recording or incident on disk can't be read."""


class ScriptError(UnstuckError):
    """The program that should be run can't be started."""

    exit_code = 2
