"""The verdict at the end of ``Trainer(overfit_batches=...)``: were the batches learnt by heart, and if not, why."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from unstuck.callbacks.callback import Callback
from unstuck.messages import rank_zero_info
from unstuck.trainer.data.seed import isolate_rng
from unstuck.trainer.hooks import takes_argument

if TYPE_CHECKING:
    from unstuck.diagnosis.memorised import Memory
    from unstuck.findings import Finding
    from unstuck.session.watch import Watch
    from unstuck.trainer.module import LightningModule
    from unstuck.trainer.trainer import Trainer
    from unstuck.trials.overfit.bounds import Bounds
    from unstuck.trials.overfit.training import Passed

# The debugger is imported where it is used: a Trainer that doesn't need it is imported without.

__all__ = ["OverfitVerdict"]

_MOST_BATCHES = 16
"""Batches by whose data the verdict is decided."""

_MOST_SEEN = 6
"""Losses that are told where no verdict is possible."""


class OverfitVerdict(Callback):
    """Judges an overfit test by its data and loss, and tells the outcome when the fit ends.

    The Trainer adds one with ``overfit_batches``. Beside the losses it looks at the batches once more at the end, on a
    copy of the module: at what the best constant prediction and the best prediction at all would score, and, where the
    task is a classification, at how many samples are right. Meanwhile the run is watched for causes.

    Manual optimisation with one optimiser and one backward pass for each batch is judged by the course of its loss.
    Where several optimisers or losses take turns no single number tells, and only what was seen is told.

    Attributes:
        memory: the verdict with its numbers, None before the fit has ended, or where it can't be judged.
        unjudged: why it can't be judged, None where it was.
        findings: what the diagnosis found, the most important first.
    """

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self._forget()

    def _forget(self) -> None:
        self.memory: Memory | None = None
        self.unjudged: str | None = None
        self.findings: tuple[Finding, ...] = ()
        self._sums: torch.Tensor | None = None
        self._count = 0
        self._curve: list[float] = []
        self._batches: dict[int, tuple[Any, int]] = {}
        self._given: list[torch.Tensor] = []
        self._several = False
        self._seen_first: dict[str, torch.Tensor] = {}
        self._seen_last: dict[str, torch.Tensor] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Begin to watch, unless the process is watched already."""
        from unstuck.session.session import active_session
        from unstuck.session.watch import watch

        self._forget()
        if stage == "fit" and active_session() is None:
            self._watch = watch(pl_module, budget=0.0)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Keep the batches, which are the same in every epoch."""
        if batch_idx < _MOST_BATCHES and batch_idx not in self._batches:
            self._batches[batch_idx] = (batch, batch_idx)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        """Remember what each backward pass of the batch begins with."""
        self._given.append(loss.detach())

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add up the losses; nothing waits for a device."""
        given, self._given = self._given, []
        if not pl_module.automatic_optimization:
            self._see(trainer, given)
            if len(given) > 1 or len(trainer.optimizers) > 1:
                self._several = True
                return
        loss = _loss_before_the_step(trainer, pl_module, outputs, given)
        if loss is None:
            self._batches.pop(batch_idx, None)  # skipped
            return
        value = loss.detach().double().reshape(())
        self._sums = value if self._sums is None else self._sums + value
        self._count += 1

    def _see(self, trainer: Trainer, given: Sequence[torch.Tensor]) -> None:
        """Keep the losses that were logged, or else those of the backward passes, of the first and the latest batch."""
        seen = {name: value.detach() for name, value in trainer.callback_metrics.items() if "loss" in name.lower()}
        if not seen:
            scaler = trainer.precision_plugin.scaler
            scale = 1.0 if scaler is None else scaler.get_scale()
            seen = {f"loss of backward pass {index}": item / scale for index, item in enumerate(given, 1)}
        self._seen_first = self._seen_first or seen
        self._seen_last = seen

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """One number for each pass over the batches."""
        if self._sums is not None and self._count:
            self._curve.append(float(self._sums) / self._count)
        self._sums, self._count = None, 0

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Judge."""
        from unstuck.diagnosis.memorised import judge_memory
        from unstuck.session.session import active_session
        from unstuck.trials.overfit.evidence import accuracy_over, mean_loss, term_at_chance

        self.on_train_epoch_end(trainer, pl_module)
        if self._watch is not None:
            self._watch.close()
            self.findings = self._watch.findings
        session = active_session()
        known = self.findings if session is None else session.so_far().findings
        if self._several or not self._curve:
            self.unjudged = self._why_unjudged(trainer)
            rank_zero_info(f"Overfit test on {_batches(trainer)}: {self.unjudged}.")
            return
        bounds, captured = _looked_at(trainer, pl_module, list(self._batches.values()))
        accuracy, attainable = accuracy_over(captured)
        steps = max(1, trainer.global_step)
        self.memory = judge_memory(
            self._curve,
            steps,
            bounds.constant,
            bounds.floor,
            accuracy,
            attainable,
            mean_loss(captured),
            ascends=any(item.code == "loss.wrong-sign" for item in known),
            alike=bounds.alike,
            faulty=any(item.severity.value == "error" for item in known),
            at_chance=term_at_chance(captured),
        )
        rank_zero_info(self._told(trainer))

    def _why_unjudged(self, trainer: Trainer) -> str:
        if len(trainer.optimizers) > 1:
            why = f"{len(trainer.optimizers)} optimizers take turns, so no single loss says what was learnt"
        elif self._several:
            why = "each batch has several backward passes, so no single loss says what was learnt"
        else:
            why = "no loss was seen: none was returned by `training_step` or given to `manual_backward`"
        seen = [
            f"{name} {float(first):.4g} -> {float(self._seen_last[name]):.4g}"
            for name, first in self._seen_first.items()
            if name in self._seen_last and first.numel() == 1
        ]
        return f"not judged, as {why}" + (f"; {', '.join(seen[:_MOST_SEEN])}" if seen else "")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stop watching, and tell what a batch of one sample has made of a normalisation layer."""
        from unstuck.trials.overfit.norm_of_one import norm_of_one

        if self._watch is not None:
            self._watch.close()
        refused = norm_of_one(exception)
        if refused is not None:
            self.findings = (refused,)
            rank_zero_info(f"Overfit test: {_line_of(refused)} {refused.remedy}")

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Let the batches go."""
        self._batches.clear()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _told(self, trainer: Trainer) -> str:
        from unstuck.session.session import active_session

        memory = self.memory
        assert memory is not None
        lines = [f"Overfit test on {_batches(trainer)}: {memory.sentence}."]
        lines += [_line_of(item) for item in self.findings]
        open_end = memory.verdict == "not memorised" or (memory.verdict == "undecided" and memory.more_steps is None)
        if open_end and not self.findings and active_session() is None:
            lines.append(
                "No cause was found in what was watched: gradients, wiring, loss, data, numbers. Not tried: other "
                "learning rates, and the optimizer without its weight decay; `unstuck.overfit` tries them on a copy."
            )
        return "\n".join(lines)


def _batches(trainer: Trainer) -> str:
    count = trainer.num_training_batches
    return f"{count} batch" if count == 1 else f"{count} batches"


def _line_of(finding: Finding) -> str:
    place = f" ({finding.where.file}:{finding.where.line})" if finding.where.file else ""
    return f"{finding.severity.value} {finding.code}{place}: {finding.summary}"


def _loss_before_the_step(
    trainer: Trainer, module: LightningModule, outputs: Any, given: Sequence[torch.Tensor]
) -> torch.Tensor | None:
    """The loss of a batch as it was before the optimiser's step, whole; None where there is none.

    In automatic optimisation outputs and backward passes hold it divided by the batches that are accumulated; an
    optimiser that calls its closure several times (LBFGS) leaves the last one in the outputs.
    """
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
    if module.automatic_optimization:
        if len(given) > 1:
            loss = given[0]
        factor: float = trainer.accumulate_grad_batches
    else:
        factor = 1.0
        if not isinstance(loss, torch.Tensor) and given:
            scaler = trainer.precision_plugin.scaler
            loss, factor = given[0], 1.0 if scaler is None else 1.0 / scaler.get_scale()
    return loss * factor if isinstance(loss, torch.Tensor) and loss.numel() == 1 else None


def _looked_at(
    trainer: Trainer, module: LightningModule, batches: list[tuple[Any, int]]
) -> tuple[Bounds, list[Passed]]:
    """Bounds, and the pass of each batch in evaluation mode, on a copy of the module; none where that can't be seen."""
    from unstuck.session.session import Session
    from unstuck.trials.overfit.bounds import Bounds
    from unstuck.trials.overfit.capture import look
    from unstuck.trials.overfit.copies import deep_copied
    from unstuck.trials.overfit.evidence import bounds_over

    if not module.automatic_optimization:
        return Bounds(None, None), []  # the step would move the weights of the module itself
    try:
        clone = deep_copied(module, trainer).eval()
        clone._trainer = module._trainer  # a module is copied without it, and its step may ask for its logger
        clone.log = clone.log_dict = _ignore  # type: ignore[method-assign]
        step = trainer.precision_plugin.wrap_step(clone.training_step)
        takes_index = takes_argument(module.training_step, "batch_idx", min_positional=2)
        with isolate_rng(), Session.set_aside(), torch.no_grad():
            found = [
                look(partial(step, batch, index) if takes_index else partial(step, batch), clone, batch)
                for batch, index in batches
            ]
            return bounds_over(found), found
    except Exception:  # noqa: BLE001 - the user's code, called once more than it expects; then less is known
        return Bounds(None, None), []


def _ignore(*arguments: Any, **keywords: Any) -> None:
    return None
