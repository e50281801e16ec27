"""The steps of an examination: each runs the program in one way and says in a line what that has shown."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

import torch

from unstuck.callbacks.callback import Callback
from unstuck.findings import Finding, Severity, Where
from unstuck.places import Frame
from unstuck.record.gradients import FIRST_PARAMETER, TOTAL
from unstuck.record.recording import Recording
from unstuck.session.watch import watch
from unstuck.trainer.data.transfer import move_data_to_device
from unstuck.trainer.trainer import Trainer
from unstuck.trials.tracing import OpTrace
from unstuck.workflow.doctor.target import Patient
from unstuck.workflow.overfit import overfit

__all__ = ["STEPS", "Outcome", "Plan"]


@dataclass(frozen=True)
class Plan:
    """How long the steps may be.

    Attributes:
        steps: optimiser steps of the overfit test and of the real run.
        batches: that are overfit.
        max_seconds: for each step.
    """

    steps: int = 200
    batches: int = 1
    max_seconds: float = 60.0


@dataclass(frozen=True)
class Outcome:
    """What a step has shown.

    Attributes:
        name: of the step.
        purpose: why it is done, in a line.
        verdict: ``ok``, ``suspicious`` (goes on), or ``stopped`` (a cause is certain).
        told: what was seen, in a line.
        findings: of the diagnosis.
        numbers: measured values by name.
        unchecked: what could not be checked, and why.
        passed: False where the step has failed, whether a cause was found or not.
    """

    name: str
    purpose: str
    verdict: Literal["ok", "suspicious", "stopped"]
    told: str
    findings: tuple[Finding, ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()
    passed: bool = True


Build = Callable[[], Patient]


def dry_run(build: Build, plan: Plan) -> Outcome:
    """Two batches of everything."""
    seen = _Shapes()
    with watch(budget=0.0) as watching:
        patient = build()
        _fit(patient, plan, fast_dev_run=2, callbacks=[seen])
    count = sum(item.numel() for item in patient.module.parameters())
    trained = sum(item.numel() for item in patient.module.parameters() if item.requires_grad)
    losses = _losses(watching.recording)
    told = f"batches of {seen.told}; {count:,} parameters, {trained:,} trained"
    told += f"; first loss {losses[0]:.4g}" if losses else ""
    findings = watching.findings
    if any(item.code.startswith("numerics.") and item.where.op is None for item in findings):
        traced = numerical_check(build, plan).findings
        findings = (*traced, *(item for item in findings if not (traced and item.code.startswith("numerics."))))
    return _judged("dry run", "does everything run, and do shapes fit?", told, findings, {"first_loss": losses[:1]})


def overfit_test(build: Build, plan: Plan) -> Outcome:
    """A few batches learnt by heart."""
    purpose = "can the model learn a few batches by heart?"
    with watch(budget=0.0) as building:
        patient = build()
    place = building.optimizer_place(None if patient.plain is None else patient.plain[3])
    if patient.plain is not None:
        model, loader, loss_fn, optimizer = patient.plain
        result = overfit(
            model, loader, loss_fn, optimizer, steps=plan.steps, batches=plan.batches, max_seconds=plan.max_seconds
        )
        memory, rate = result.memory, result.best_rate
        findings = tuple(_with_place(item, place) for item in result.findings)
        told = memory.sentence
        if memory.verdict != "memorised" and rate is not None:
            told += f"; a learning rate of {rate:.3g} learns"
    else:
        from unstuck.callbacks.overfit_verdict import OverfitVerdict

        verdict = OverfitVerdict()
        passes = max(1, math.ceil(plan.steps / plan.batches))
        _fit(patient, plan, overfit_batches=plan.batches, limit_val_batches=0, max_epochs=passes, callbacks=[verdict])
        if verdict.memory is None:
            return Outcome("overfit", purpose, "suspicious", "training_step returned no loss", verdict.findings)
        memory, findings, told = verdict.memory, verdict.findings, verdict.memory.sentence
    outcome = _judged("overfit", purpose, told, findings, {"first": memory.first, "last": memory.last})
    if memory.verdict != "not memorised":
        return outcome
    return replace(outcome, verdict="suspicious" if outcome.verdict == "ok" else outcome.verdict, passed=False)


def gradient_health(build: Build, plan: Plan) -> Outcome:
    """The norms of all gradients over the first steps."""
    with watch(every_gradient=True, budget=0.0) as watching:
        patient = build()
        _fit(patient, plan, max_steps=min(50, plan.steps), limit_val_batches=0, num_sanity_val_steps=0)
    told, numbers = _gradients_told(watching.recording)
    return _judged(
        "gradients",
        "do gradients reach every layer, not vanishing or exploding?",
        told,
        watching.findings,
        numbers,
    )


def numerical_check(build: Build, plan: Plan) -> Outcome:
    """One step, operation by operation."""
    tracing = _Traced()
    with watch(budget=0.0):  # so that the Trainer doesn't tell of the same value
        patient = build()
        _fit(patient, plan, max_steps=1, limit_val_batches=0, num_sanity_val_steps=0, callbacks=[tracing])
    finding = tracing.finding
    told = f"{tracing.ops:,} operations of one step looked at, forward and backward"
    told += "; all finite" if finding is None else f"; {finding.summary}"
    return _judged(
        "numbers",
        "is every operation of a step finite?",
        told,
        () if finding is None else (finding,),
        {"operations": tracing.ops},
        tracing.failures,
    )


def real_run(build: Build, plan: Plan) -> Outcome:
    """A short training, and a validation after it."""
    with watch() as watching:
        patient = build()
        trainer = _fit(patient, plan, max_steps=plan.steps, limit_val_batches=0, num_sanity_val_steps=0)
    losses = _losses(watching.recording)
    part = max(1, len(losses) // 10)
    numbers: dict[str, Any] = {"steps": trainer.global_step}
    told = f"{trainer.global_step} steps"
    if losses:
        numbers |= {"first": _mean(losses[:part]), "last": _mean(losses[-part:])}
        told += f", loss {numbers['first']:.4g} -> {numbers['last']:.4g}"
    if patient.validates:
        with _without_notes():
            validated = _trainer(plan, limit_val_batches=16).validate(
                patient.module, patient.val, datamodule=patient.datamodule, verbose=False
            )
        for name, value in (validated[0] if validated else {}).items():
            numbers[name] = value
            told += f", {name} {value:.4g}"
    return _judged("real run", "does it learn on the real data?", told, watching.findings, numbers)


STEPS: tuple[Callable[[Build, Plan], Outcome], ...] = (
    dry_run,
    overfit_test,
    gradient_health,
    numerical_check,
    real_run,
)
"""In the order in which they are done."""


# -- running the program -----------------------------------------------------------------------------------------------


def _trainer(plan: Plan, **options: Any) -> Trainer:
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_time": timedelta(seconds=plan.max_seconds),
    }
    return Trainer(**{**quiet, **options})


def _fit(patient: Patient, plan: Plan, **options: Any) -> Trainer:
    with _without_notes():
        trainer = _trainer(plan, **options)
        trainer.fit(patient.module, patient.train, patient.val, datamodule=patient.datamodule)
    return trainer


@contextmanager
def _without_notes() -> Iterator[None]:
    """What the Trainer tells of its own settings is of no interest here; what the user's code warns of is."""
    log = logging.getLogger("unstuck")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"unstuck\.")
            yield
    finally:
        log.setLevel(level)


class _Shapes(Callback):
    """Notes the shapes of the first batch."""

    told = "unknown form"

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 0:
            leaves = [item for item in torch.utils._pytree.tree_leaves(batch) if isinstance(item, torch.Tensor)]
            self.told = ", ".join(
                f"{str(item.dtype).removeprefix('torch.')} {'x'.join(map(str, item.shape)) or 'scalar'}"
                for item in leaves[:6]
            )


class _Traced(Callback):
    """Runs one step under the tracer and asks it where a non-finite value came from."""

    def __init__(self) -> None:
        self.ops = 0
        self.finding: Finding | None = None
        self.failures: tuple[str, ...] = ()
        self._trace: OpTrace | None = None
        self._loss: torch.Tensor | None = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        batch = move_data_to_device(batch, pl_module.device)
        self._trace = OpTrace(models={"model": pl_module}, batch=batch)
        self._trace.__enter__()

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: torch.Tensor) -> None:
        self._loss = loss

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self._close(pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._close(pl_module)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._close(None)

    def _close(self, module: Any) -> None:
        trace, self._trace = self._trace, None
        if trace is None:
            return
        trace.__exit__(None, None, None)
        self.ops, self.failures = trace.ops, tuple(f"tracing: {item}" for item in trace.failures[:4])
        if module is None:
            return
        origin = trace.origin_of(self._loss) if self._loss is not None else None
        origin = origin or trace.origin_of_gradient(*module.parameters())
        if origin is not None:
            from unstuck.diagnosis.remedies import advise

            advice = advise(origin)
            last = origin.chain[-1] if origin.chain else None
            self.finding = Finding(
                code="data.nonfinite-input" if origin.leaf == "batch" else f"numerics.nonfinite-{origin.phase}",
                severity=Severity.ERROR,
                summary=advice.summary,
                where=Where(
                    file=last.file if last else None,
                    line=last.line if last else None,
                    step=0,
                    batch=0,
                    sample=origin.sample,
                    module=origin.module,
                    op=origin.op,
                    chain=origin.chain,
                ),
                remedy=advice.remedy,
            )


# -- telling what was seen ---------------------------------------------------------------------------------------------


def _judged(
    name: str,
    purpose: str,
    told: str,
    findings: Sequence[Finding],
    numbers: dict[str, Any],
    unchecked: tuple[str, ...] = (),
) -> Outcome:
    worst = min((item.severity.rank for item in findings), default=len(Severity))
    verdict: Literal["ok", "suspicious", "stopped"] = "ok"
    if worst == Severity.ERROR.rank:
        verdict = "stopped"
    elif worst == Severity.WARNING.rank:
        verdict = "suspicious"
    return Outcome(name, purpose, verdict, told, tuple(findings), numbers, unchecked)


def _with_place(finding: Finding, chain: tuple[Frame, ...]) -> Finding:
    """A finding on the optimiser with the line that constructs it, where it has none."""
    if finding.where.file is not None or not finding.code.startswith("optim.") or not chain:
        return finding
    last = chain[-1]
    return replace(finding, where=replace(finding.where, file=last.file, line=last.line, chain=chain))


def _losses(recording: Recording) -> list[float]:
    return [bucket.last[0] for bucket in recording.loss_series]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _gradients_told(recording: Recording) -> tuple[str, dict[str, Any]]:
    told, numbers = [], {}
    for index, record in enumerate(recording.optimizers):
        rows = [bucket.last for bucket in record.norms if bucket.last[TOTAL] == bucket.last[TOTAL]]
        if not rows:
            continue
        totals = sorted(row[TOTAL] for row in rows)
        means = [(name, _known_mean(rows, FIRST_PARAMETER + place)) for place, name in enumerate(record.names)]
        low, high = min(means, key=lambda item: item[1]), max(means, key=lambda item: item[1])
        told.append(
            f"{record.kind}: norm {totals[0]:.3g} to {totals[-1]:.3g}, median {totals[len(totals) // 2]:.3g}; "
            f"smallest {low[0]} {low[1]:.3g}, largest {high[0]} {high[1]:.3g}"
        )
        numbers[f"optimizer {index}"] = {"norms": dict(means), "total": totals[len(totals) // 2]}
    return "; ".join(told) or "no gradients were seen", numbers


def _known_mean(rows: Sequence[Sequence[float]], column: int) -> float:
    """Mean of a column over the rows in which it has a value; 0 where none has."""
    values = [row[column] for row in rows if not math.isnan(row[column])]
    return _mean(values) if values else 0.0
