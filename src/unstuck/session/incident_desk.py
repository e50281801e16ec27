"""Explains the incidents of a run that goes on, and hands each finding to whoever tells the user."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from unstuck.diagnosis import judge
from unstuck.diagnosis.rules import numerics_low_precision_overflow, numerics_scaler_stuck
from unstuck.findings import Finding
from unstuck.instruments.guard import Incident
from unstuck.instruments.inventory import find_models
from unstuck.instruments.moments import Moment, Moments
from unstuck.measure.bad_samples import nonfinite_in
from unstuck.places import Frame
from unstuck.record.gradients import ScalerRecord
from unstuck.record.incident import IncidentRecord, SkippedStep, UnderflowRecord
from unstuck.record.recording import Recording
from unstuck.session.explain import explain, explain_skipped_step, explain_zero_gradients
from unstuck.session.options import SessionOptions
from unstuck.trials.replay.evaluation import EvaluationStep, replay_evaluation
from unstuck.trials.replay.routes import with_callers

__all__ = ["IncidentDesk"]


class IncidentDesk:
    """Where a Trainer's watcher brings its incidents.

    Args:
        folder: where incidents are saved; asked for at the first one, None saves nothing.
        describe: what the Trainer knows of its position: epoch, global step.
        tell: called with each finding and the folder of its incident, None if it wasn't saved.
        script: the program's file.
        recording: where incidents are kept; a new one if it is left out.
    """

    def __init__(
        self,
        folder: Callable[[], Path | None],
        describe: Callable[[], dict[str, Any]],
        tell: Callable[[Finding, str | None], None],
        script: Path | None,
        recording: Recording | None = None,
    ) -> None:
        self.recording = Recording() if recording is None else recording
        self._folder = folder
        self._describe = describe
        self.tell = tell
        self._underflow: UnderflowRecord | None = None
        self._script = script

    def declare(
        self,
        incident: Incident,
        moments: Moments,
        optimizers: list[torch.optim.Optimizer],
        frame: FrameType | None,
        run_backward: Callable[..., None],
        rebuild: dict[str, Any] | None = None,
        module: torch.nn.Module | None = None,
        since: int = 0,
    ) -> None:
        """A step is about to take a value that isn't finite, or has made one.

        Args:
            incident: what was seen.
            moments: of the step.
            optimizers: all of the program.
            frame: innermost frame of the program at present.
            run_backward: the original ``torch.autograd.backward``.
            rebuild: what another process needs to make the program's module again.
            module: that is trained.
            since: steps that the Trainer has counted since that of the incident.
        """
        record = explain(
            incident,
            moments=moments,
            optimizers=optimizers,
            frame=frame,
            run_backward=run_backward,
            options=self._options(),
            trace=None,
            number=len(self.recording.incidents),
            extra=self._position(since),
            rebuild=rebuild,
            module=module,
        )
        self.recording.add_incident(record)
        self._tell_of(record)

    def declare_evaluation(
        self,
        step: EvaluationStep,
        module: torch.nn.Module,
        method: str,
        name: str,
        batch: int,
        loader: int,
        moment: Moment,
        chain: tuple[Frame, ...],
    ) -> None:
        """A loss of a validation or test isn't finite.

        Args:
            step: how to run its batch again.
            module: that is evaluated.
            method: ``validation_step`` or ``test_step``.
            name: of the loss.
            batch: index of the batch.
            loader: index of the loader.
            moment: before the batch.
            chain: the user's lines at present.
        """
        models = find_models(sys._getframe(), step.optimizers, [module]) or {"model": module}
        origin, reason = replay_evaluation(replace(step, models=models))
        if origin is not None:
            origin = replace(origin, chain=with_callers(origin.chain, moment))
        sample, key = nonfinite_in(step.batch)
        record = IncidentRecord(
            kind="evaluation",
            step=None,
            batch=batch,
            loss=step.value,
            chain=chain,
            origin=origin,
            replayed=origin is not None,
            reasons=() if reason is None else (reason,),
            batch_sample=sample,
            batch_key=key,
            extra={**self._describe(), "method": method, "loader": loader, "value": name},
        )
        self.recording.add_incident(record)
        self._tell_of(record)

    def examine_skip(
        self,
        incident: Incident,
        scaler: Any,
        moments: Moments,
        optimizers: list[torch.optim.Optimizer],
        frame: FrameType | None,
        run_backward: Callable[..., None],
        module: torch.nn.Module | None = None,
    ) -> SkippedStep | None:
        """What isn't finite in a step that a loss scaler has skipped, when its losses aren't scaled."""
        return explain_skipped_step(
            incident, scaler, moments, optimizers, frame, run_backward, SessionOptions(script=self._script), module
        )

    def tell_of_skips(self, skipped: SkippedStep, since: int = 0) -> None:
        """A loss scaler goes on skipping for this reason; ``since``: steps that the Trainer has counted since then."""
        record = replace(skipped.incident, extra=self._position(since))
        self.recording.add_incident(record)
        self._tell_of(record)

    def examine_zeros(
        self,
        incident: Incident,
        moments: Moments,
        optimizers: list[torch.optim.Optimizer],
        frame: FrameType | None,
        run_backward: Callable[..., None],
        module: torch.nn.Module,
    ) -> bool:
        """Whether float16 has flushed the gradients of this step, and of one before, to zero; then the user is told."""
        found = explain_zero_gradients(incident, "float16", moments, optimizers, frame, run_backward, module)
        if found is None:
            return False
        if self._underflow is None:
            self._underflow = found
        else:
            self._underflow.add(found)
        only = Recording()
        only.keep(self._underflow)
        findings = numerics_low_precision_overflow.rule(only)
        for finding in findings:
            self.tell(finding, None)
        return bool(findings)

    def tell_of_scaler(self, record: ScalerRecord) -> None:
        """A loss scaler skips step after step, and why isn't known."""
        only = Recording()
        only.scalers.append(record)
        for finding in numerics_scaler_stuck.rule(only):
            self.tell(finding, None)

    def _position(self, since: int) -> dict[str, Any]:
        position = self._describe()
        if since:
            position["global step"] -= since
        return position

    def _options(self) -> SessionOptions:
        return SessionOptions(out=self._folder(), script=self._script)

    def _tell_of(self, record: IncidentRecord) -> None:
        only = Recording()
        only.incidents.append(record)
        for finding in judge(only)[:1]:
            self.tell(finding, record.folder)
