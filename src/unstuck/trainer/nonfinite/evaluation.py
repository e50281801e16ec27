"""Losses of validations and tests that aren't finite: what the step returned, or logged under a name with "loss" in it.

Other values may be undefined for a batch and rightly be NaN, such as a ratio over nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unstuck.measure import rng
from unstuck.places import user_chain
from unstuck.trainer.nonfinite.repeating import call_moment
from unstuck.trials.replay.evaluation import EvaluationStep

if TYPE_CHECKING:
    from unstuck.session.incident_desk import IncidentDesk
    from unstuck.trainer.run import Run

__all__ = ["NonfiniteEvaluationWatcher"]


class NonfiniteEvaluationWatcher:
    """An :class:`unstuck.trainer.watching.EvaluationWatcher`; tells of one loss per run.

    Args:
        run: the run.
        desk: where it is explained.
    """

    def __init__(self, run: Run, desk: IncidentDesk) -> None:
        self._run = run
        self._desk = desk
        self._over = False
        self._start: rng.RandomState | None = None

    def begin(self) -> None:
        if not self._over:
            self._start = rng.capture()

    def see(self, name: str, output: Any, arguments: tuple[Any, ...], batch_idx: int, dataloader_idx: int) -> None:
        if self._over or self._desk.recording.incidents:
            return
        found = _bad_loss(output, self._logged(name))
        if found is None:
            return
        self._over = True
        key, value = found
        self._declare(name, key, value, arguments, batch_idx, dataloader_idx)

    def _logged(self, name: str) -> dict[str, Any]:
        store = self._run.logbook.store
        return {} if store is None else store.newest(name, "loss")

    def _declare(
        self, name: str, key: str, value: float, arguments: tuple[Any, ...], batch_idx: int, dataloader_idx: int
    ) -> None:
        run = self._run
        assert self._start is not None
        moment = call_moment(run, name, arguments, self._start)
        logged: dict[str, Tensor] = {}
        store: Any = run.logbook.store

        def log(name: str, value: Any, *_: Any, **__: Any) -> None:
            if isinstance(value, Tensor):
                logged.setdefault(name, value)

        def log_dict(values: Mapping[str, Any], *_: Any, **__: Any) -> None:
            for name, value in values.items():
                log(name, value)

        def find(result: Any) -> Tensor | None:
            return _returned(result) if key == _RETURNED else logged.get(key)

        assert moment.call is not None
        step = EvaluationStep(
            call=moment.call,
            value=value,
            find=find,
            start=self._start,
            roots=(run.module, arguments),
            batch=arguments[0],
            models={},
            optimizers=run.strategy.optimizers,
            stand_ins=() if store is None else ((store, "log", log), (store, "log_dict", log_dict)),
        )
        self._desk.declare_evaluation(
            step, run.module, name, key, batch_idx, dataloader_idx, moment, user_chain(sys._getframe(1))
        )


_RETURNED = "what the step returned"


def _bad_loss(output: Any, logged: Mapping[str, Tensor]) -> tuple[str, float] | None:
    """(name, number) of the first loss that isn't finite."""
    returned = _returned(output)
    candidates = ({} if returned is None else {_RETURNED: returned}) | dict(logged)
    for name, tensor in candidates.items():
        value = tensor.item()
        if isinstance(value, float) and value - value != 0.0:
            return name, value
    return None


def _returned(output: Any) -> Tensor | None:
    loss = output.get("loss") if isinstance(output, Mapping) else output
    return loss if isinstance(loss, Tensor) and loss.numel() == 1 and not torch.is_complex(loss) else None
