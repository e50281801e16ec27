"""Saves an incident so that its step can be run again: batch, weights, optimiser state, random states, versions.

Only what ``torch.load(..., weights_only=True)`` reads is written and read, so an incident never runs code of its own;
what else the program has is left out and listed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unstuck.errors import RecordError
from unstuck.findings.finding import jsonable
from unstuck.measure import rng
from unstuck.record.incident import IncidentRecord
from unstuck.record.plain import from_plain

__all__ = ["SavedIncident", "Script", "load_incident", "save_incident", "sha256_of"]

_FORMAT = 1
_NOTES, _TENSORS = "incident.json", "tensors.pt"


@dataclass(frozen=True)
class Script:
    """The program that an incident belongs to: its file, how it was called, and from which folder.

    ``module`` is its name where it was run with ``-m``; ``sha256`` of the file at that time.
    """

    path: str
    sha256: str | None
    arguments: tuple[str, ...] = ()
    folder: str | None = None
    module: str | None = None


@dataclass(frozen=True)
class SavedIncident:
    """An incident as it was read.

    Attributes:
        folder: where it lies.
        record: what was found.
        script: the program, None for one without a file.
        rebuild: how a Trainer's module is made again, None for a plain program.
        left_out: what could not be saved.
        random_state_at: the moment of :attr:`random_state`: ``forward``, ``draw``, ``step`` or ``call``.
        models: state dictionaries by the variable that holds each model.
        optimizers: state dictionaries.
        batches: what the step got, by where it came from.
        variables: those that the rest of the step read at its first module call, by frame.
        hyper_parameters: of the Trainer's module.
        random_state: None if it was not saved.
    """

    folder: Path
    record: IncidentRecord
    script: Script | None
    rebuild: dict[str, Any] | None
    left_out: tuple[str, ...]
    random_state_at: str | None
    models: dict[str, dict[str, Any]]
    optimizers: list[dict[str, Any]]
    batches: dict[str, Any]
    variables: list[dict[str, Any]]
    hyper_parameters: dict[str, Any]
    random_state: rng.RandomState | None


def save_incident(
    folder: Path,
    record: IncidentRecord,
    models: Mapping[str, torch.nn.Module],
    optimizers: Iterable[torch.optim.Optimizer],
    batches: Mapping[str, Any],
    random_state: rng.RandomState | None,
    script: Path | None,
    rebuild: Mapping[str, Any] | None = None,
    random_state_at: str | None = None,
    variables: Iterable[Mapping[str, Any]] = (),
) -> list[str]:
    """Write ``tensors.pt`` and ``incident.json`` into ``folder``, which is made.

    Args:
        folder: of this incident.
        record: what is known of it.
        models: by the variable that holds each.
        optimizers: all of the program.
        batches: what the step got, by where it came from.
        random_state: at the point from which the step was run again.
        script: the program's file.
        rebuild: what makes a Trainer's module again: plain values, and ``hyper_parameters`` of any kind.
        random_state_at: the moment of the random states.
        variables: of the program's frames, as :func:`unstuck.trials.variables.variables_of` gives them.

    Returns:
        What could not be saved, one phrase each.

    Raises:
        OSError: the folder can't be written.
    """
    left_out: list[str] = []
    tensors = {
        "models": {name: _plain(model.state_dict(), f"model {name}", left_out) for name, model in models.items()},
        "optimizers": [
            _plain(item.state_dict(), f"optimiser {index}", left_out) for index, item in enumerate(optimizers)
        ],
        "batches": {name: _plain(value, name, left_out) for name, value in batches.items()},
        "variables": [_plain(item, "variables", left_out) for item in variables],
        "random_state": None if random_state is None else _random(random_state),
    }
    again = dict(rebuild or {})
    if "hyper_parameters" in again:
        tensors["hyper_parameters"] = _plain(again.pop("hyper_parameters"), "hyper-parameters", left_out)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / _TENSORS, lambda file: torch.save(tensors, file))
    text = {
        "format": _FORMAT,
        "kind": "unstuck incident",
        "incident": asdict(record),
        "left_out": left_out,
        "rebuild": again or None,
        "script": None if script is None else asdict(_script(script)),
        "random_state_at": random_state_at,
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()},
    }
    data = json.dumps(jsonable(text), indent=1, allow_nan=False).encode()
    _write(folder / _NOTES, lambda file: file.write(data))
    return left_out


def load_incident(folder: Path) -> SavedIncident:
    """Read an incident's folder; nothing of it is executed.

    Raises:
        RecordError: it isn't one, it was written by another version, or it is damaged.
    """
    notes_file, tensors_file = folder / _NOTES, folder / _TENSORS
    if not notes_file.is_file():
        raise RecordError(f"{folder} is no incident: it has no {_NOTES}")
    try:
        notes = json.loads(notes_file.read_text(encoding="utf-8"))
        known = notes.get("format"), notes.get("kind")
    except (OSError, ValueError, AttributeError) as error:
        raise RecordError(f"{notes_file} can't be read, so the incident is damaged: {error}") from error
    if known != (_FORMAT, "unstuck incident"):
        raise RecordError(f"{notes_file} isn't an incident of this version")
    try:
        tensors = torch.load(tensors_file, weights_only=True, map_location="cpu")
    except Exception as error:  # torch raises many kinds for a file that is cut off or foreign
        raise RecordError(f"{tensors_file} can't be read, so the incident is damaged: {_first_line(error)}") from error
    try:
        script = notes["script"]
        return SavedIncident(
            folder=folder,
            record=from_plain(IncidentRecord, notes["incident"]),
            script=None if script is None else from_plain(Script, script),
            rebuild=notes["rebuild"],
            left_out=tuple(notes["left_out"]),
            random_state_at=notes["random_state_at"],
            models=dict(tensors["models"]),
            optimizers=list(tensors["optimizers"]),
            batches=dict(tensors["batches"]),
            variables=list(tensors.get("variables") or []),
            hyper_parameters=dict(tensors.get("hyper_parameters") or {}),
            random_state=_random_state(tensors["random_state"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{folder} is no whole incident ({type(error).__name__}: {error})") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].partition(". ")[0][:200]


def _script(path: Path) -> Script:
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return Script(os.fspath(path), sha256_of(path), tuple(sys.argv[1:]), os.getcwd(), getattr(spec, "name", None))


def _random_state(saved: Mapping[str, Any] | None) -> rng.RandomState | None:
    if saved is None:
        return None

    def raw(value: Any) -> Any:
        return None if value is None else bytes(value.numpy())

    now = rng.capture()
    numpy, python = raw(saved["numpy"]), raw(saved["python"])
    return now._replace(
        torch_cpu=saved["torch_cpu"],
        torch_cuda=tuple(saved["torch_cuda"]),
        numpy=now.numpy if numpy is None else numpy,
        python=now.python if python is None else python,
    )


def _write(path: Path, fill: Any) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _plain(value: Any, name: str, left_out: list[str]) -> Any:
    """``value`` with everything that ``weights_only`` doesn't load replaced by None and noted."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return torch.from_numpy(np.ascontiguousarray(value).copy())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _plain(item, f"{name}.{key}", left_out) for key, item in value.items() if _is_key(key)}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{name}[{index}]", left_out) for index, item in enumerate(value)]
    left_out.append(f"{name} ({type(value).__name__})")
    return None


def _is_key(key: Any) -> bool:
    return isinstance(key, (str, int, float, bool))


def _random(state: rng.RandomState) -> dict[str, Any]:
    def number(value: Any) -> Any:
        return torch.frombuffer(bytearray(value), dtype=torch.uint8) if isinstance(value, bytes) else None

    return {
        "torch_cpu": state.torch_cpu,
        "torch_cuda": list(state.torch_cuda),
        "numpy": number(state.numpy),
        "python": number(state.python),
    }


def sha256_of(path: Path) -> str | None:
    """Of a file's content; None where it can't be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
