"""Imported by the copy of a program that is compared: notes every step's bits and the random states at the end.

It stands on the path of that program alone. States that the program doesn't seed are made the same for each run.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import random
from typing import Any

import numpy
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

steps: list[str] = []
nonfinite: list[int] = []


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def bits(tensor: torch.Tensor) -> bytes:
    if tensor.is_sparse:
        return b""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def note_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """The first and the last parameter and their gradients: no loss can change without changing them."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    ends = [parameters[0], parameters[-1]]
    tensors = [tensor for end in ends for tensor in (end, end.grad) if tensor is not None]
    steps.append(digest(b"".join(bits(tensor) for tensor in tensors)))
    if not all(tensor.isfinite().all() for tensor in tensors if not tensor.is_sparse):
        nonfinite.append(len(steps) - 1)


def write() -> None:
    state = {
        "torch's random state": digest(bits(torch.get_rng_state())),
        "numpy's random state": digest(repr(numpy.random.get_state(legacy=False)).encode()),
        "python's random state": digest(repr(random.getstate()).encode()),
        "steps": steps,
        "nonfinite": nonfinite,
    }
    with open(os.environ["UNSTUCK_TEST_PROBE"], "w", encoding="utf-8") as file:
        json.dump(state, file)


random.seed(0)
numpy.random.seed(0)
register_optimizer_step_post_hook(note_step)
atexit.register(write)
