"""Random states as a checkpoint holds them: plain values and tensors, which any loader accepts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from unstuck.measure.rng import is_generator

__all__ = ["RandomStates", "capture", "pack", "random_sources", "restore"]

RandomStates = dict[str, Any]
_LONG = 600


def random_sources(loaders: Iterable[Any]) -> list[Any]:
    """The generators of a program's own that decide about the order or content of loaders' batches, each once.

    They are looked for where people keep them: in attributes of the loader, its samplers, its dataset, and the datasets
    that this one wraps.
    """
    found: dict[int, Any] = {}
    seen: set[int] = set()
    waiting: list[Any] = list(loaders)
    while waiting:
        owner = waiting.pop(0)
        if id(owner) in seen or not hasattr(owner, "__dict__"):
            continue
        seen.add(id(owner))
        inside: list[Any] = []
        for name, value in vars(owner).items():
            if is_generator(value):
                found[id(value)] = value
            elif name in ("sampler", "batch_sampler", "dataset", "original"):
                inside.append(value)
            elif name == "datasets" and isinstance(value, (list, tuple)):
                inside.extend(value)
        # All of a loader before the next one, so that loaders that come later change nothing of the order.
        waiting = inside + waiting
    return list(found.values())


def capture(sources: Sequence[Any] = ()) -> RandomStates:
    """The states of the global generators of torch, numpy and Python, and of ``sources``, as they are now.

    A GPU's is taken only where CUDA is in use.
    """
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "mps": torch.mps.get_rng_state() if torch.backends.mps.is_available() else None,
        "numpy": np.random.get_state(legacy=False),
        "python": random.getstate(),
        "sources": [_state_of(source) for source in sources],
    }


def restore(states: RandomStates, sources: Sequence[Any] = ()) -> None:
    """Puts the generators back to captured states, packed or not.

    Args:
        states: what :func:`capture` returned, maybe packed and read from a file.
        sources: the generators in the order of capturing. Those beyond what was captured are left alone, as are the
            GPUs where there are other ones.
    """
    torch.set_rng_state(states["torch"].cpu())
    if states["cuda"] and torch.cuda.is_available() and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])
    if states["mps"] is not None and torch.backends.mps.is_available():
        torch.mps.set_rng_state(states["mps"].cpu())
    np.random.set_state(_unpack(states["numpy"], np.random.get_state(legacy=False)))
    random.setstate(_tuples(states["python"]))
    for source, state in zip(sources, states["sources"], strict=False):
        _set_state(source, state)


def pack(states: RandomStates) -> RandomStates:
    """The states without arrays, so that a file with them can be loaded with ``weights_only=True``."""
    packed: RandomStates = _packed(states)
    return packed


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.astype(np.int64))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: _packed(item) for key, item in value.items()}
    if isinstance(value, tuple) and len(value) >= _LONG:
        # The words of Python's generator; the loader that runs no code takes long for many numbers.
        return torch.tensor(value, dtype=torch.int64)
    if isinstance(value, (list, tuple)):
        return type(value)(_packed(item) for item in value)
    return value


def _unpack(value: Any, like: Any) -> Any:
    """Arrays where the generator's present state has arrays."""
    if isinstance(like, np.ndarray):
        return np.asarray(value).astype(like.dtype)
    if isinstance(like, dict) and isinstance(value, dict):
        return {key: _unpack(item, like.get(key)) for key, item in value.items()}
    return value


def _tuples(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.tolist())
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value


def _state_of(source: Any) -> Any:
    if isinstance(source, torch.Generator):
        return source.get_state()
    if isinstance(source, np.random.Generator):
        return source.bit_generator.state
    if isinstance(source, np.random.RandomState):
        return source.get_state(legacy=False)
    return source.getstate()


def _set_state(source: Any, state: Any) -> None:
    if isinstance(source, torch.Generator):
        source.set_state(state.cpu())
    elif isinstance(source, np.random.Generator):
        source.bit_generator.state = _unpack(state, source.bit_generator.state)
    elif isinstance(source, np.random.RandomState):
        source.set_state(_unpack(state, source.get_state(legacy=False)))
    else:
        source.setstate(_tuples(state))
