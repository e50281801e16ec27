"""The checks of an examination: each runs the program in one way and says in a line what that has shown."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unstuck.callbacks.overfit_verdict import OverfitVerdict
from unstuck.diagnosis.cuts import Cut, cut_before
from unstuck.diagnosis.memorised import Memory
from unstuck.findings import Finding, Severity, Where
from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy
from unstuck.record.gradients import FIRST_PARAMETER, TOTAL, OptimizerRecord
from unstuck.record.recording import Recording
from unstuck.session.session import Session
from unstuck.session.watch import Watch, watch
from unstuck.workflow.doctor.judging import (
    Course,
    course_of,
    has_clearly_fallen,
    is_rising,
    judge_course,
    judge_norms,
    judge_validation,
)
from unstuck.workflow.doctor.outcome import Opinion, Outcome, Plan, Status, concluded
from unstuck.workflow.doctor.rebuilding import copyable
from unstuck.workflow.doctor.running import OtherRate, fitted, validated
from unstuck.workflow.doctor.target import Patient
from unstuck.workflow.doctor.tracing import Shapes, TracedStep
from unstuck.workflow.overfit import overfit

__all__ = ["CHECKS", "Build", "Check"]

Build = Callable[[], Patient]

_FIRST_STEPS = 50
"""Training steps over which gradients are looked at."""

_VALIDATION_BATCHES = 16
"""Of each validation loader."""

_UNTRAINED_BATCHES = 10
"""On which the loss is measured before any step."""

_LOWER = (0.1, 0.01, 0.001)
"""Factors on a learning rate with which the training has diverged."""

_OTHER = (0.1, 10.0, 0.01, 100.0, 1e-3, 1e3)
"""Factors on a learning rate with which the batches weren't memorised."""

_HIGHER = (1e1, 1e2, 1e3, 1e4, 1e5, 1e6)
"""The same where the loss stood still."""

_STILL = 0.05
"""Share of a loss below which a change is none."""

_DISCONNECTED = "loss.disconnected"

_NO_GRAPH = "does not require grad and does not have a grad_fn"
"""What torch says where ``backward`` is called on a loss that depends on no parameter."""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: in a word or two.
        purpose: the question that it answers.
        run: answers it.
    """

    name: str
    purpose: str
    run: Callable[[Check, Build, Plan], Outcome]


def dry_run(check: Check, build: Build, plan: Plan) -> Outcome:
    """Two batches of everything."""
    seen = Shapes()
    with watch(budget=0.0) as watching:
        patient = build()
        graphless = _trial_run(patient, plan, seen)
    parameters = list(patient.model.parameters())
    count = sum(item.numel() for item in parameters)
    trained = sum(item.numel() for item in parameters if item.requires_grad)
    if graphless is not None and not (trained and _has_error(watching.findings)):
        raise graphless  # no finding tells why, and where nothing is trained none is to be believed
    losses = _losses(watching.recording)
    told = f"first batch: {seen.told}; {count:,} parameters, {trained:,} trained"
    told += f"; first loss {losses[0]:.4g}" if losses else ""
    findings = _located(watching.findings, build, plan)
    if graphless is not None:
        findings = _with_cut(findings, build, plan)
    opinions = []
    if not all(math.isfinite(loss) for loss in losses):
        opinions.append(Opinion("failed", "the loss is not finite"))
    if not trained:
        opinions.append(Opinion("failed", "no parameter is trained"))
    outcome = concluded(check.name, check.purpose, told, findings, opinions, {"first_loss": losses[:1]})
    return _watched(outcome, watching)


def _trial_run(patient: Patient, plan: Plan, seen: Shapes) -> RuntimeError | None:
    """Two batches of everything; returns what ``backward`` raised at a loss that depends on no parameter."""
    try:
        fitted(patient, plan, fast_dev_run=2, callbacks=[seen])
    except RuntimeError as error:
        if _NO_GRAPH not in str(error):
            raise
        return error
    return None


def _with_cut(findings: Sequence[Finding], build: Build, plan: Plan) -> tuple[Finding, ...]:
    """With the line at which the loss has lost its graph, which only who knows the parameters can tell.

    No frame of the user's holds a plain model while it is trained here, so it is given to a second watch.
    """
    if not any(_lacks_cut(item) for item in findings):
        return tuple(findings)
    patient = build()
    optimizer = None if patient.plain is None else patient.plain[3]
    with watch(patient.module, optimizer, budget=0.0) as watching:
        _trial_run(patient, plan, Shapes())
    # a pass that reaches no parameter is none of the given model's, and ends the trace: the loss was computed last
    steps = [item for item in watching.recording.all(Anatomy) if item.ops]
    cuts = (cut_before(item, len(item.ops), len(item.ops) - 1) for item in steps)
    cut = next((item for item in cuts if item is not None and item.chain), None)
    return tuple(_cut_at(item, cut) if cut is not None and _lacks_cut(item) else item for item in findings)


def _cut_at(finding: Finding, cut: Cut) -> Finding:
    last = cut.chain[-1]
    return replace(
        finding,
        summary=f"{finding.summary}; the graph ends at {cut.words}",
        where=replace(finding.where, file=last.file, line=last.line, chain=cut.chain),
        evidence={**finding.evidence, "cut by": cut.words},
    )


def _lacks_cut(finding: Finding) -> bool:
    return finding.code == _DISCONNECTED and finding.evidence.get("cut by") is None


def overfit_test(check: Check, build: Build, plan: Plan) -> Outcome:
    """A few batches learnt by heart."""
    verdict = OverfitVerdict()
    with watch(budget=0.0) as watching:
        patient = build()
        if patient.plain is None:
            _overfit_by_trainer(patient, plan, verdict)
    if patient.plain is None:
        return _module_judged(check, build, plan, verdict, watching)
    _, loader, loss_fn, optimizer = patient.plain
    place = watching.optimizer_place(optimizer)
    model, maker = copyable(patient, build)
    result = overfit(
        model,
        loader,
        loss_fn,
        maker,
        steps=plan.steps,
        batches=plan.batches,
        max_seconds=plan.max_seconds,
        progress=False,
    )
    findings = tuple(_with_place(item, place) for item in _without_consequences(result.findings))
    rate = result.best_rate if result.verdict == "not memorised" else None
    return _memory_judged(check, build, plan, result.memory, findings, rate)


def _module_judged(check: Check, build: Build, plan: Plan, verdict: OverfitVerdict, watching: Watch) -> Outcome:
    """What came of the test under a Trainer; where the batches weren't learnt, other rates are tried."""
    findings = watching.findings
    memory = verdict.memory
    if memory is None:
        why = "training_step returns no loss to judge by, as in manual optimisation"
        return concluded(check.name, check.purpose, "", findings, [Opinion("not judged", why)])
    rate = None
    if memory.verdict == "not memorised" and not _has_error(findings):
        found = _rate_that_memorises(build, plan, memory)
        if found is not None:
            rate = found[0]
            findings = (_rate_finding(watching, *found), *findings)
    return _memory_judged(check, build, plan, memory, findings, rate)


def _overfit_by_trainer(patient: Patient, plan: Plan, *callbacks: Any) -> None:
    passes = max(1, math.ceil(plan.steps / plan.batches))
    fitted(
        patient,
        plan,
        overfit_batches=plan.batches,
        max_epochs=passes,
        callbacks=list(callbacks),
    )


def _rate_that_memorises(build: Build, plan: Plan, own: Memory) -> tuple[float, float, str] | None:
    """(rate, factor on the program's own, what came of both) of the first rate that memorises; None without one."""
    end = time.monotonic() + plan.max_seconds
    for factor in _other_rates(own):
        if time.monotonic() > end:
            return None
        verdict, other = OverfitVerdict(), OtherRate(factor)
        with Session.set_aside():
            _overfit_by_trainer(build(), plan, verdict, other)
        memory = verdict.memory
        if memory is not None and memory.verdict == "memorised" and other.rate is not None:
            told = (
                f"at the learning rate {other.rate / factor:.3g} the batches are not learnt (loss {own.first:.4g} -> "
                f"{own.last:.4g}), at {other.rate:.3g} they are (-> {memory.last:.4g})"
            )
            return other.rate, factor, told
    return None


def _other_rates(own: Memory) -> tuple[float, ...]:
    """Factors on the program's rate, the most promising first."""
    if not own.last <= own.first + 0.5 * abs(own.first):
        return _LOWER
    stands = abs(own.last - own.first) < _STILL * abs(own.first)
    return (*_HIGHER, *_LOWER) if stands else _OTHER


def _memory_judged(
    check: Check, build: Build, plan: Plan, memory: Memory, findings: Sequence[Finding], rate: float | None
) -> Outcome:
    told, opinions = memory.sentence, []
    if memory.verdict == "not memorised":
        too_few = None if _has_error(findings) else _too_few_parameters(build, plan)
        opinions.append(too_few or Opinion("failed", "the batches were not learnt by heart"))
        told += f"; a learning rate of {rate:.3g} learns" if rate is not None else ""
    elif memory.verdict == "memorised" and memory.constant is not None and memory.last >= memory.constant:
        why = (
            "a constant prediction scores as well: the targets of the batch are all the same, or the loss ignores them"
        )
        opinions.append(Opinion("look", why))
    elif memory.verdict == "undecided":
        if memory.steps < plan.steps:
            way = f"only {memory.steps} steps fitted into {plan.max_seconds:g} s; raise --max-seconds"
        elif memory.more_steps is not None:
            known = memory.constant is not None and memory.floor is not None
            steps = f"--steps {memory.steps + memory.more_steps}" if known else "more --steps"
            way = f"the loss may still fall; try {steps}"
        else:
            way = "no bound of this loss is known to judge it by"
        opinions.append(Opinion("not judged", way))
    numbers = {"verdict": memory.verdict, "first": memory.first, "last": memory.last, "steps": memory.steps}
    return concluded(check.name, check.purpose, told, findings, opinions, numbers)


def _too_few_parameters(build: Build, plan: Plan) -> Opinion | None:
    """Whether the batches hold more samples than the model has parameters: then it needn't be able to learn them."""
    seen = Shapes()
    with Session.set_aside():
        patient = build()
        fitted(patient, plan, fast_dev_run=1, limit_val_batches=0, callbacks=[seen])
    trained = sum(item.numel() for item in patient.model.parameters() if item.requires_grad)
    samples = seen.samples * plan.batches
    if trained >= samples:
        return None
    return Opinion("not judged", f"{trained} parameters can't hold {samples} samples by heart; try smaller batches")


def gradient_health(check: Check, build: Build, plan: Plan) -> Outcome:
    """The norms of all gradients over the first steps."""
    with watch(every_gradient=True, budget=0.0) as watching:
        patient = build()
        fitted(patient, plan, max_steps=min(_FIRST_STEPS, plan.steps))
    told, opinions = [], []
    numbers: dict[str, Any] = {}
    rises = is_rising(_losses(watching.recording))
    several = len(watching.recording.optimizers) > 1
    frozen = {name for name, item in patient.module.named_parameters() if not item.requires_grad}
    for index, record in enumerate(watching.recording.optimizers):
        kind = f"{record.kind} {index}" if several else record.kind
        rows = [bucket.last for bucket in record.norms if not math.isnan(bucket.last[TOTAL])]
        if not rows:
            continue
        totals = [row[TOTAL] for row in rows]
        means = {
            name: _known_mean(rows, FIRST_PARAMETER + place)
            for place, name in enumerate(record.names)
            if name not in frozen
        }
        update = _median_update(record)
        told.append(_norms_told(kind, totals, means, update))
        silent = [name for name, mean in means.items() if mean == 0.0]
        opinions += judge_norms(kind, totals, silent, update, rises)
        middle = sorted(totals)[len(totals) // 2]
        numbers[f"optimizer {index}"] = {"norms": means, "total": middle, "largest": max(totals), "update": update}
    if not told:
        opinions.append(Opinion("not judged", "no optimizer took a step with a gradient"))
    findings = _located(watching.findings, build, plan)
    return _watched(concluded(check.name, check.purpose, "; ".join(told), findings, opinions, numbers), watching)


def numerical_check(check: Check, build: Build, plan: Plan) -> Outcome:
    """One step, operation by operation."""
    with Session.set_aside():  # nothing else looks meanwhile, whose operations would be traced too
        patient = build()
        tracing = TracedStep(patient.model)
        fitted(patient, plan, max_steps=1, callbacks=[tracing])
    finding = tracing.finding
    told = f"{tracing.ops:,} operations of one training step looked at, forward and backward"
    told += "; all finite" if finding is None else f"; {finding.summary}"
    opinions = [] if tracing.ops else [Opinion("not judged", "no operation was seen")]
    findings = () if finding is None else (finding,)
    return concluded(check.name, check.purpose, told, findings, opinions, {"operations": tracing.ops}, tracing.failures)


def real_run(check: Check, build: Build, plan: Plan) -> Outcome:
    """A short training, and a validation after it."""
    untrained = _untrained_losses(build, plan)
    with watch() as watching:
        patient = build()
        trainer = fitted(patient, plan, max_steps=plan.steps)
    losses, taken = _losses(watching.recording), int(trainer.global_step)
    optimizers = len(watching.recording.optimizers)
    course = course_of(untrained, losses)
    numbers: dict[str, Any] = {"steps": taken}
    told = [f"{taken} optimizer steps" if taken != 1 else "1 optimizer step"]
    if taken < plan.steps and trainer.should_stop:
        told[0] += f", then the {plan.max_seconds:g} s were over"
    if course is not None and optimizers == 1:
        numbers |= {"first": course.first, "last": course.last}
        told.append(f"loss {course.first:.4g} -> {course.last:.4g}")
    metrics: dict[str, float] = {}
    if patient.validates:
        metrics = validated(patient, plan, limit_val_batches=_VALIDATION_BATCHES)
        numbers |= metrics
        told += [f"{name} {value:.4g}" for name, value in metrics.items()] or ["validated, nothing logged"]
    else:
        told.append("no validation")
    opinions, findings = judge_course(course, optimizers), _located(watching.findings, build, plan)
    if course is not None and not _has_error(findings) and any(item.status == "failed" for item in opinions):
        findings = (*_lower_rate(build, plan, watching, untrained, course), *findings)
    opinions += judge_validation(metrics, course)
    return _watched(concluded(check.name, check.purpose, ", ".join(told), findings, opinions, numbers), watching)


CHECKS: tuple[Check, ...] = (
    Check("dry run", "does everything run, and do shapes fit?", dry_run),
    Check("overfit", "can the model learn a few batches by heart?", overfit_test),
    Check("gradients", "do gradients reach every layer, not vanishing or exploding?", gradient_health),
    Check("numbers", "is every operation of a training step finite?", numerical_check),
    Check("real run", "does it learn on the real data?", real_run),
)
"""In the order in which they are done."""


# -- what the checks share ---------------------------------------------------------------------------------------------


def _located(findings: Sequence[Finding], build: Build, plan: Plan) -> tuple[Finding, ...]:
    """With the operation that made a value non-finite: where it isn't known, it is trained to that step again."""
    found: list[Finding] = []
    for item in findings:
        step = item.where.step
        if not item.code.startswith("numerics.nonfinite") or item.where.op is not None or step is None:
            found.append(item)
            continue
        with Session.set_aside():
            patient = build()
            tracing = TracedStep(patient.model, step)
            fitted(patient, plan, max_steps=step + 1, callbacks=[tracing])
        found.append(item if tracing.finding is None else replace(tracing.finding, symptoms=item.symptoms))
    return tuple(found)


def _watched(outcome: Outcome, watching: Watch) -> Outcome:
    """The outcome; not judged if a part of the watching failed, so that it would not have seen what it asks for."""
    failed = tuple(phrase for phrase in watching.unchecked if " was switched off: " in phrase)
    if not failed:
        return outcome
    status: Status = "not judged" if outcome.status == "ok" else outcome.status
    names = ", ".join(phrase.partition(" was ")[0] for phrase in failed)
    why = f"{outcome.why}; " if outcome.why else ""
    return replace(outcome, status=status, why=f"{why}a part of the watching failed ({names})", unchecked=failed)


def _losses_at(build: Build, plan: Plan, other: OtherRate, steps: int) -> list[float]:
    """The losses of a training with a multiple of the program's rate."""
    with Session.set_aside(), watch(budget=0.0) as trial:
        fitted(build(), plan, max_steps=steps, callbacks=[other])
    return _losses(trial.recording)


def _untrained_losses(build: Build, plan: Plan) -> list[float]:
    """Of some batches, with a rate of 0, so that the model stays as it is built."""
    return _losses_at(build, plan, OtherRate(0.0), _UNTRAINED_BATCHES)


def _lower_rate(
    build: Build, plan: Plan, watching: Watch, untrained: Sequence[float], course: Course
) -> tuple[Finding, ...]:
    """Where the training has diverged: the finding that it learns at a lower rate, if it does."""
    for factor in _LOWER:
        other = OtherRate(factor)
        found = course_of(untrained, _losses_at(build, plan, other, plan.steps))
        if found is None or other.rate is None or not has_clearly_fallen(found):
            continue
        told = (
            f"at the learning rate {other.rate / factor:.3g} the loss goes from {course.first:.4g} to "
            f"{course.last:.4g} in {course.count} steps, at {other.rate:.3g} from {found.first:.4g} to {found.last:.4g}"
        )
        return (_rate_finding(watching, other.rate, factor, told),)
    return ()


def _rate_finding(watching: Watch, rate: float, factor: float, told: str) -> Finding:
    records = watching.recording.optimizers
    finding = Finding(
        code="optim.lr-too-high" if factor < 1 else "optim.lr-too-low",
        severity=Severity.ERROR,
        summary=told,
        where=Where(),
        evidence={"rate": rate / factor, "rate that learns": rate},
        remedy=f"{'lower' if factor < 1 else 'raise'} the learning rate to about {rate:.3g}",
        confirmed=True,
    )
    return _with_place(finding, records[0].made_at if records else ())


def _with_place(finding: Finding, chain: tuple[Frame, ...]) -> Finding:
    """A finding on the optimiser with the line that constructs it, where it has none."""
    if finding.where.file is not None or not finding.code.startswith("optim.") or not chain:
        return finding
    last = chain[-1]
    return replace(finding, where=replace(finding.where, file=last.file, line=last.line, chain=chain))


def _without_consequences(findings: Sequence[Finding]) -> list[Finding]:
    """Without values that turned infinite at no known operation, where a rate is proved to have driven them there."""
    if not any(item.code == "optim.lr-too-high" and item.confirmed for item in findings):
        return list(findings)
    return [item for item in findings if not (item.code.startswith("numerics.") and item.where.op is None)]


def _has_error(findings: Sequence[Finding]) -> bool:
    return any(item.severity is Severity.ERROR for item in findings)


def _losses(recording: Recording) -> list[float]:
    return [bucket.last[0] for bucket in recording.loss_series]


def _median_update(record: OptimizerRecord) -> float | None:
    """Median share of all weights by which a step has changed them."""
    values = sorted(value for bucket in record.updates if math.isfinite(value := bucket.last[0]))
    return values[len(values) // 2] if values else None


def _norms_told(kind: str, totals: Sequence[float], means: dict[str, float], update: float | None) -> str:
    ordered = sorted(totals)
    told = f"{kind}: norm {ordered[0]:.3g} to {ordered[-1]:.3g}, median {ordered[len(ordered) // 2]:.3g}"
    if len(means) > 1:
        low, high = min(means, key=lambda name: means[name]), max(means, key=lambda name: means[name])
        told += f"; smallest {low} {means[low]:.3g}, largest {high} {means[high]:.3g}"
    return told + ("" if update is None else f"; a step changes the weights by {100 * update:.2g} %")


def _known_mean(rows: Sequence[Sequence[float]], column: int) -> float:
    """Mean of a column over the rows in which it has a value; 0 where none has."""
    values = [row[column] for row in rows if not math.isnan(row[column])]
    return sum(values) / len(values) if values else 0.0
