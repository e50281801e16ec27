"""Puts a saved incident into a program that has come to its first training step: state, batch, random numbers.

Done again at every draw and call until gradients are computed for the first time, so that what the program does before
(a look at its data, a sanity check) doesn't use it up. What can't be put back is listed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from unstuck.instruments.guard import Guard
from unstuck.instruments.inventory import find_models
from unstuck.measure import rng
from unstuck.record.incident import IncidentRecord
from unstuck.session.live_trace import LiveTrace
from unstuck.trials.incident_folder import SavedIncident
from unstuck.trials.variables import put_into_frames

__all__ = ["Restoring"]

_PLACE = (
    "the program's position: counters, the place in its loops and loaders, and objects that it keeps between steps are "
    "those of its first step"
)


class Restoring:
    """The instrument.

    Args:
        saved: the incident.
        guard: knows the optimisers and counts backward passes.
        live: the trace of the step, which begins after everything was put in.

    Attributes:
        left: what could not be restored, one phrase each.
    """

    name = "restoring"

    def __init__(self, saved: SavedIncident, guard: Guard, live: LiveTrace | None) -> None:
        self._saved = saved
        self._guard = guard
        self._live = live
        self._restored: set[str] = set()
        self._told: dict[str, str] = {"place": _PLACE}
        for phrase in saved.left_out:
            self._told[phrase] = f"not saved: {phrase}"
        if saved.random_state is None:
            self._told["random"] = "the random state, which was not saved"
        elif saved.random_state_at == "step":
            self._told["random"] = "the random state at the very start of the step: it is put in before the first one"

    @property
    def left(self) -> tuple[str, ...]:
        """What could not be restored."""
        return tuple(f"not restored: {phrase}" for phrase in self._told.values())

    def batch(self, drawn: Any, frame: FrameType) -> Any:
        """What the program gets in the place of a batch that its loader gave."""
        if self._guard.passes or not self._guard.optimizers:
            return drawn
        self._restore_state(frame)
        found = [value for name, value in self._saved.batches.items() if name.startswith("draw ")]
        if not found:
            return drawn
        given = self._like(drawn, found[-1], "the batch")
        if self._saved.random_state_at == "draw":
            self._restore_random()
        return given

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        if self._saved.random_state_at == "step":
            self._restore_random()

    def forward_begins(self, module: torch.nn.Module, args: Any, kwargs: Any, frame: FrameType) -> None:
        if self._guard.passes or not self._guard.optimizers:
            return
        if self._live is not None:
            self._live.end()
        self._restore_state(frame)
        # before the arguments, which may be views of what a variable holds
        put_into_frames(self._saved.variables, frame, self._like)
        arguments = self._saved.batches.get("arguments")
        if arguments is not None:
            self._fill(args, arguments[0])
            self._fill(kwargs, arguments[1])
        if self._saved.random_state_at == "forward":
            self._restore_random()

    def as_saved(self, record: IncidentRecord) -> IncidentRecord:
        """An incident of the repeated step, at the place that the saved one had in its run."""
        saved = self._saved.record
        if record.loss is not None and saved.loss is not None and not _same(record.loss, saved.loss):
            self._told["loss"] = f"the loss: it was {saved.loss:.9g}, now it is {record.loss:.9g}"
        precision = saved.precision if record.origin is not None else None
        return replace(
            record,
            step=saved.step,
            batch=saved.batch,
            indices=saved.indices,
            late=saved.late,
            extra=saved.extra,
            precision=precision,
        )

    # -- putting back ------------------------------------------------------------------------------------------------

    def _restore_random(self) -> None:
        state = self._saved.random_state
        if state is not None:
            rng.restore(state._replace(others=()))

    def _restore_state(self, frame: FrameType) -> None:
        optimizers = list(self._guard.optimizers.values())
        models = find_models(frame, optimizers)
        for name, state in self._saved.models.items():
            model = _holder(name, state, models)
            if model is None:
                if name in self._restored:
                    continue
                self._told[f"model {name}"] = f"the model {name!r}, which the program doesn't have at its first step"
                continue
            self._told.pop(f"model {name}", None)
            try:
                missing, unexpected = model.load_state_dict(state, strict=False)
            except RuntimeError as error:
                self._told[f"model {name}"] = f"the model {name!r}: {' '.join(str(error).split())[:200]}"
                continue
            self._restored.add(name)
            self._told = {key: phrase for key, phrase in self._told.items() if not key.startswith(f"state {name}.")}
            for key in (*missing, *unexpected):
                self._told[f"state {name}.{key}"] = f"{key} of the model {name!r}"
        for index, state in enumerate(self._saved.optimizers):
            self._load_optimizer(index, state, optimizers)

    def _load_optimizer(self, index: int, state: dict[str, Any], optimizers: list[torch.optim.Optimizer]) -> None:
        key = f"optimiser {index}"
        try:
            optimizers[index].load_state_dict(copy.deepcopy(state))
            self._told.pop(key, None)
        except (IndexError, ValueError, KeyError, RuntimeError) as error:
            self._told[key] = f"the state of optimiser {index} ({type(error).__name__}: {str(error)[:120]})"

    def _like(self, drawn: Any, saved: Any, name: str) -> Any:
        """The saved batch in the containers of a drawn one."""
        if isinstance(drawn, torch.Tensor) and isinstance(saved, torch.Tensor):
            return drawn if drawn.requires_grad else saved.clone()
        if isinstance(drawn, Mapping) and isinstance(saved, Mapping):
            changed = copy.copy(drawn)
            for key in drawn:
                if key in saved:
                    changed[key] = self._like(drawn[key], saved[key], f"{name}[{key!r}]")  # type: ignore[index]
            return changed
        if isinstance(drawn, (list, tuple)) and isinstance(saved, list):
            items = [self._like(old, new, f"{name}[{index}]") for index, (old, new) in enumerate(zip(drawn, saved))]  # noqa: B905
            if isinstance(drawn, tuple):
                return type(drawn)(*items) if hasattr(drawn, "_fields") else tuple(items)
            return items
        if saved is not None and type(saved) is type(drawn):
            return saved
        if saved is None and drawn is not None:
            self._told[name] = f"{name} ({type(drawn).__name__})"
        return drawn

    def _fill(self, values: Any, saved: Any) -> None:
        """Put the saved arguments of the first module call into those that it got."""
        pairs = (
            [(values[key], saved.get(key)) for key in values]
            if isinstance(values, Mapping)
            else list(zip(values, saved or ()))  # noqa: B905
        )
        for value, wanted in pairs:
            if not isinstance(value, torch.Tensor) or not isinstance(wanted, torch.Tensor):
                continue
            same = value.shape == wanted.shape and value.dtype == wanted.dtype and not value.requires_grad
            if not same:
                self._told["arguments"] = "the first module call's arguments: they have another shape"
            elif not torch.equal(value, wanted):
                with torch.no_grad():
                    value.copy_(wanted)


def _holder(name: str, state: Mapping[str, Any], models: Mapping[str, torch.nn.Module]) -> torch.nn.Module | None:
    """The module that a saved state belongs to: it was perhaps held by another variable, or by another module."""
    known = models.get(name)
    candidates = [*([] if known is None else [known]), *models.values()]
    inner = (child for model in models.values() for child in model.modules())
    for module in (*candidates, *inner):
        if module.state_dict().keys() == state.keys():
            return module
    return next(iter(models.values())) if known is None and len(models) == 1 else known


def _same(loss: float, other: float) -> bool:
    return loss == other or (math.isnan(loss) and math.isnan(other))
