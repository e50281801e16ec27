"""Copies of a plain program for trials; one that can't be copied is built once more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from unstuck.errors import MisconfigurationException
from unstuck.trials.overfit.copies import copied_model, copied_optimizer
from unstuck.workflow.doctor.target import Patient
from unstuck.workflow.overfit import OptimizerOrMaker

__all__ = ["copyable"]


def copyable(patient: Patient, build: Callable[[], Patient]) -> tuple[torch.nn.Module, OptimizerOrMaker]:
    """The model and optimiser of a plain program, such that copies can be made of them.

    A model that holds a lock, an open file or a generator can't be copied, and an optimiser may have a constructor of
    its own. The target builds both anew from the same seed, so then what it builds stands for the copy.

    Args:
        patient: a plain program.
        build: builds it once more.
    """
    assert patient.plain is not None
    model, _, _, optimizer = patient.plain
    try:
        copied_optimizer(optimizer, copied_model(model)[1])
    except MisconfigurationException:
        blueprint = _Blueprint(patient, build)
        return blueprint, blueprint.its_optimizer
    return model, optimizer


class _Blueprint(torch.nn.Module):
    """Stands for a model; a deep copy of it is the model that the target builds once more."""

    def __init__(self, patient: Patient, build: Callable[[], Patient]) -> None:
        super().__init__()
        self._patient = patient
        self._build = build
        self._optimizer: torch.optim.Optimizer | None = None

    def named_parameters(self, *arguments: Any, **keywords: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Of the model that was built first."""
        return self._patient.model.named_parameters(*arguments, **keywords)

    def named_buffers(self, *arguments: Any, **keywords: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """The same for its buffers."""
        return self._patient.model.named_buffers(*arguments, **keywords)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Module:
        patient = self._build()
        assert patient.plain is not None
        self._optimizer = patient.plain[3]
        return patient.plain[0]

    def its_optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """The optimiser that was built with the latest model."""
        assert self._optimizer is not None
        return self._optimizer
