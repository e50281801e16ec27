"""``Trainer(deterministic=..., benchmark=...)``: which algorithms torch may choose."""

from __future__ import annotations

import os

import torch

from unstuck.errors import MisconfigurationException

__all__ = ["apply_benchmark", "apply_determinism"]


def apply_determinism(deterministic: bool | str | None) -> None:
    """Lets torch use deterministic algorithms only.

    Args:
        deterministic: True: an operation without one raises; "warn": it warns; False or None: torch's setting stays.

    Raises:
        MisconfigurationException: anything else.
    """
    if deterministic is None or deterministic is False:
        return
    if deterministic is not True and deterministic != "warn":
        raise MisconfigurationException(f"`Trainer(deterministic={deterministic!r})`: choose True, False or 'warn'.")
    torch.use_deterministic_algorithms(True, warn_only=deterministic == "warn")
    # CuBLAS is deterministic only with a workspace of its own.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def apply_benchmark(benchmark: bool | None, deterministic: bool | str | None) -> None:
    """Lets cuDNN try out algorithms (True) or not (False); None: its setting stays, but is off with
    ``deterministic``.
    """
    if benchmark is None and deterministic:
        benchmark = False
    if benchmark is not None:
        torch.backends.cudnn.benchmark = benchmark
