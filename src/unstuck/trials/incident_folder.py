"""Saves an incident so that its step can be run again: batch, weights, optimiser state, random states, versions.

Only what ``torch.load(..., weights_only=True)`` reads is written; everything else is left out and listed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unstuck.findings.finding import jsonable
from unstuck.measure import rng
from unstuck.record.incident import IncidentRecord

__all__ = ["save_incident"]


def save_incident(
    folder: Path,
    record: IncidentRecord,
    models: Mapping[str, torch.nn.Module],
    optimizers: Iterable[torch.optim.Optimizer],
    batches: Mapping[str, Any],
    random_state: rng.RandomState | None,
    script: Path | None,
    rebuild: Mapping[str, Any] | None = None,
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
        "random_state": None if random_state is None else _random(random_state),
    }
    again = dict(rebuild or {})
    if "hyper_parameters" in again:
        tensors["hyper_parameters"] = _plain(again.pop("hyper_parameters"), "hyper-parameters", left_out)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "tensors.pt", lambda file: torch.save(tensors, file))
    text = {
        "format": 1,
        "incident": asdict(record),
        "left_out": left_out,
        "rebuild": again or None,
        "script": None if script is None else {"path": os.fspath(script), "sha256": _sha256(script)},
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()},
    }
    data = json.dumps(jsonable(text), indent=1, allow_nan=False).encode()
    _write(folder / "incident.json", lambda file: file.write(data))
    return left_out


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


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
