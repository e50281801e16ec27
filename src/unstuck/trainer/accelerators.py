"""From the Trainer's ``accelerator`` and ``devices`` to one :class:`torch.device`."""

from __future__ import annotations

from typing import Any

import torch

from unstuck.errors import MisconfigurationException

__all__ = ["select_device"]

_NAMES = ("auto", "cpu", "cuda", "gpu", "mps")


def select_device(accelerator: str, devices: list[int] | str | int) -> torch.device:
    """Chooses the device of a run in one process.

    Args:
        accelerator: "cpu", "gpu" (the best graphics device), "cuda", "mps" or "auto" (a graphics device where there is
            one).
        devices: how many devices, or which (a list of indices, or text such as "0," or "1"), or "auto" (one).

    Raises:
        ValueError: an unknown accelerator.
        TypeError: devices that can't be read.
        MisconfigurationException: the accelerator isn't on this machine, or the devices aren't, or they are more than
            one.
    """
    kind = _resolve_kind(accelerator)
    indices = _parse_devices(devices, kind)
    if len(indices) != 1:
        raise MisconfigurationException(
            f"`Trainer(devices={devices!r})` asks for {len(indices)} devices; this Trainer runs on one device in one"
            " process so far."
        )
    index = indices[0]
    if kind == "cpu":
        return torch.device("cpu")
    if kind == "mps":
        return torch.device("mps", 0)
    if index >= torch.cuda.device_count():
        raise MisconfigurationException(
            f"`Trainer(devices={devices!r})` names cuda:{index}, but this machine has {torch.cuda.device_count()}"
            " CUDA device(s)."
        )
    return torch.device("cuda", index)


def _resolve_kind(accelerator: str) -> str:
    if not isinstance(accelerator, str) or accelerator.lower() not in _NAMES:
        raise ValueError(
            f"`Trainer(accelerator={accelerator!r})` is not known. Choose one of"
            f" {', '.join(repr(name) for name in _NAMES)}."
        )
    name = accelerator.lower()
    if name in ("auto", "gpu"):
        if torch.cuda.is_available():
            return "cuda"
        if torch.backends.mps.is_available():
            return "mps"
        if name == "auto":
            return "cpu"
        raise MisconfigurationException("`Trainer(accelerator='gpu')`: this machine has no GPU that torch can use.")
    if name == "cuda" and not torch.cuda.is_available():
        raise MisconfigurationException(
            "`Trainer(accelerator='cuda')`: this machine has no CUDA device that torch can use."
        )
    if name == "mps" and not torch.backends.mps.is_available():
        raise MisconfigurationException("`Trainer(accelerator='mps')`: this machine has no MPS device.")
    return name


def _parse_cpu_count(devices: Any) -> list[int]:
    """One index for each process that is asked for: on the CPU ``devices`` can mean nothing else."""
    count = int(devices) if isinstance(devices, str) and devices.strip().isdigit() else devices
    if count in (0, []):
        raise MisconfigurationException(f"`Trainer(devices={devices!r})` asks for no device.")
    if not isinstance(count, int) or count < 0:
        raise TypeError(f"`Trainer(devices={devices!r})`: the CPU takes a count of processes, an int above 0.")
    return list(range(count))


def _parse_devices(devices: list[int] | str | int, kind: str) -> list[int]:
    """The indices of the devices asked for."""
    refusal = MisconfigurationException(
        f"`Trainer(devices={devices!r})` can't be read: pass a count, a list of indices, text such as '0,' or 'auto'."
    )
    if devices == "auto":
        return [0]
    if kind == "cpu":
        return _parse_cpu_count(devices)
    if isinstance(devices, str):
        parts = [part.strip() for part in devices.split(",") if part.strip()]
        if not parts or not all(part.lstrip("-").isdigit() for part in parts):
            raise TypeError(str(refusal))
        numbers = [int(part) for part in parts]
        devices = numbers if "," in devices else numbers[0]
    if isinstance(devices, (list, tuple)):
        if (
            not devices
            or not all(isinstance(index, int) and index >= 0 for index in devices)
            or len(set(devices)) != len(devices)
        ):
            raise refusal
        return list(devices)
    if isinstance(devices, bool) or not isinstance(devices, int) or devices == 0 or devices < -1:
        raise refusal
    if devices == -1:
        available = torch.cuda.device_count() if kind == "cuda" else 1
        return list(range(available))
    return list(range(devices))
