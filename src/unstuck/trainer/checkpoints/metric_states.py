"""What metric objects (of torchmetrics) have collected of an epoch: no part of a module's ``state_dict``, but of where
a fit stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from unstuck.trainer.results.metric_objects import is_metric

__all__ = ["metric_states", "restore_metric_states", "states_on_cpu"]


def metric_states(module: torch.nn.Module) -> dict[str, Any]:
    """Copies of the states of all metrics within a module that have collected something, by name."""
    return {
        name: {
            "count": metric._update_count,
            "states": {state: _copied(getattr(metric, state)) for state in metric._defaults},
        }
        for name, metric in _metrics(module)
        if metric._update_count > 0
    }


def restore_metric_states(module: torch.nn.Module, saved: dict[str, Any]) -> None:
    """Gives metrics back what they had collected. One that is new, or that keeps other states now, begins anew."""
    for name, metric in _metrics(module):
        entry = saved.get(name)
        if entry is None or entry["states"].keys() != metric._defaults.keys():
            continue
        for state, value in entry["states"].items():
            setattr(metric, state, _on_device(value, metric.device))
        metric._update_count = entry["count"]
        metric._computed = None


def states_on_cpu(states: Any) -> Any:
    """The same states on the CPU."""
    if isinstance(states, torch.Tensor):
        return states.detach().cpu()
    if isinstance(states, dict):
        return {name: states_on_cpu(value) for name, value in states.items()}
    return [states_on_cpu(item) for item in states] if isinstance(states, list) else states


def _metrics(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for name, child in module.named_modules():
        if is_metric(child) and hasattr(child, "_defaults") and hasattr(child, "_update_count"):
            yield name, child


def _copied(value: Any) -> Any:
    # What has been put into a list isn't changed any more.
    return (
        value.detach().clone() if isinstance(value, torch.Tensor) else list(value) if isinstance(value, list) else value
    )


def _on_device(value: Any, device: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return [_on_device(item, device) for item in value] if isinstance(value, list) else value
