"""Trials at the end of a run: which are made, in what order, and how much time they get together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from unstuck.diagnosis.suspicion import suspicions, unusual_settings
from unstuck.instruments.kept_steps import Kept, KeptSteps
from unstuck.record.gradients import OptimizerRecord
from unstuck.record.recording import Recording
from unstuck.record.trials import LearningTrial, LearningTrials
from unstuck.trials.learning import Change, Clip, TrialPlan, learn
from unstuck.trials.rehearsal import Rehearsal, RehearsalError, rehearse

__all__ = ["Probing"]

LENGTH = 64
"""Steps of a learning trial, where there is time."""


class Probing:
    """The trials of one session.

    Args:
        recording: what they are judged by, and where what they show goes.
        kept: steps of the program.
        run_backward: the original ``torch.autograd.backward``.
        budget: seconds for all of them together.
        told: called with what is being done, again and again: a progress display.
    """

    def __init__(
        self,
        recording: Recording,
        kept: KeptSteps,
        run_backward: Callable[..., None],
        budget: float,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._recording = recording
        self._kept = kept
        self._run_backward = run_backward
        self._budget = budget
        self._told = told

    def run(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Make every trial that something is suspected for."""
        wanted = _suspected(self._recording)
        if not wanted:
            self._kept.take()
            return
        index, reasons = wanted
        kept = self._kept.take()
        if kept is None:
            self._recording.add_unchecked(f"other rates and settings: not tried, {self._kept.refused}")
            return
        begin = time.monotonic()
        try:
            with rehearse(kept, optimizers, self._run_backward) as rehearsal:
                made = self._learning(rehearsal, kept, index, reasons, begin)
        except RehearsalError as error:
            self._recording.add_unchecked(f"other rates and settings: not tried, {error}")
            return
        self._recording.keep(replace(made, seconds=time.monotonic() - begin), whole=True)

    def _learning(
        self, rehearsal: Rehearsal, kept: Kept, index: int, reasons: tuple[str, ...], begin: float
    ) -> LearningTrials:
        record = self._recording.optimizers[index]
        plan = _plan(self._recording, index, kept, begin + self._budget)
        trials: list[LearningTrial] = []
        for change in _changes(record, reasons):
            trial = learn(rehearsal, change, plan, lambda: self._told("trying other rates and settings"))
            trials.append(trial)
            if trial.timed_out:
                break
        return LearningTrials(index, reasons, len(plan.training), len(plan.held_out), plan.length, tuple(trials))


def _suspected(recording: Recording) -> tuple[int, tuple[str, ...]] | None:
    for index in range(len(recording.optimizers)):
        reasons = suspicions(recording, index)
        if reasons:
            return index, reasons
    return None


def _plan(recording: Recording, index: int, kept: Kept, deadline: float) -> TrialPlan:
    record = recording.optimizers[index]
    count = len(kept.steps)
    held = max(1, min(8, count // 4))
    passes = max(1, round(sum(item.passes for item in kept.steps) / count))
    first = [float(group.get("lr", 0.0)) for group in kept.settings]
    highest = max([value for _, value in record.rates.highs(0)], default=max(first, default=0.0))
    scale = highest / max(first) if first and max(first) > 0.0 else 1.0
    rates = [value * scale for value in first]
    clips = [
        Clip(item.kind, item.limit) for item in recording.clips if index in item.optimizers and item.fresh > item.stale
    ]
    steps = max(1, min(LENGTH, record.steps))
    return TrialPlan(
        tuple(range(count - held)) or (0,), tuple(range(count - held, count)), steps, 4, passes, rates, clips, deadline
    )


def _changes(record: OptimizerRecord, reasons: tuple[str, ...]) -> list[Change]:
    changes = [Change("own")]
    changes += [Change(f"rate x {factor:g}", factor) for factor in (0.1, 0.01, 10.0, 100.0)]
    unusual = unusual_settings(record)
    if unusual:
        changes.append(Change("usual settings", settings=unusual))
    if record.settings.get("weight_decay"):
        changes.append(Change("no weight decay", settings={"weight_decay": 0.0}))
    return changes
