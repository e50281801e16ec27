"""The verdict at the end of ``Trainer(overfit_batches=...)``: were the batches learnt by heart, and if not, why."""

from __future__ import annotations

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
    from unstuck.trials.overfit.training import Passed

# The debugger is imported where it is used: a Trainer that doesn't need it is imported without.

__all__ = ["OverfitVerdict"]

_MOST_BATCHES = 16
"""Batches by whose data the verdict is decided."""


class OverfitVerdict(Callback):
    """Judges an overfit test by its data and loss, and tells the outcome when the fit ends.

    The Trainer adds one with ``overfit_batches``. Beside the losses it looks at the batches once more at the end, on a
    copy of the module: at what the best constant prediction and the best prediction at all would score, and, where the
    task is a classification, at how many samples are right. Meanwhile the run is watched for causes.

    Attributes:
        memory: the verdict with its numbers, None before the fit has ended.
        findings: what the diagnosis found, the most important first.
    """

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self._forget()

    def _forget(self) -> None:
        self.memory: Memory | None = None
        self.findings: tuple[Finding, ...] = ()
        self._sums: torch.Tensor | None = None
        self._count = 0
        self._curve: list[float] = []
        self._batches: dict[int, tuple[Any, int]] = {}

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

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add up the losses; nothing waits for a device."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            return
        value = loss.detach().double().reshape(())
        self._sums = value if self._sums is None else self._sums + value
        self._count += 1

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """One number for each pass over the batches."""
        if self._sums is not None and self._count:
            self._curve.append(float(self._sums) / self._count)
        self._sums, self._count = None, 0

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Judge."""
        from unstuck.diagnosis.memorised import judge_memory
        from unstuck.trials.overfit.evidence import accuracy_over, bounds_over, mean_loss

        self.on_train_epoch_end(trainer, pl_module)
        if self._watch is not None:
            self._watch.close()
            self.findings = self._watch.findings
        if not self._curve:
            return
        captured = _captured(trainer, pl_module, list(self._batches.values()))
        bounds = bounds_over(captured)
        accuracy, attainable = accuracy_over(captured)
        steps = max(1, trainer.global_step)
        self.memory = judge_memory(
            self._curve, steps, bounds.constant, bounds.floor, accuracy, attainable, mean_loss(captured)
        )
        rank_zero_info(self._told(trainer))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.close()

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
        lines = [f"Overfit test on {trainer.num_training_batches} batches: {memory.sentence}."]
        lines += [f"{item.severity.value} {item.code}: {item.summary}" for item in self.findings]
        if memory.verdict != "memorised" and not self.findings and active_session() is None:
            lines.append("No cause was found in what was watched: gradients, wiring, loss, data, numbers.")
        return "\n".join(lines)


def _captured(trainer: Trainer, module: LightningModule, batches: list[tuple[Any, int]]) -> list[Passed]:
    """The loss of each batch in evaluation mode, as a copy of the module computes it; none where that can't be seen."""
    from unstuck.session.session import Session
    from unstuck.trials.overfit.capture import LossCapture, inputs_beside
    from unstuck.trials.overfit.copies import deep_copied
    from unstuck.trials.overfit.training import Passed

    found: list[Passed] = []
    try:
        clone = deep_copied(module, trainer).eval()
        clone.log = clone.log_dict = _ignore  # type: ignore[method-assign]
        step = trainer.precision_plugin.wrap_step(clone.training_step)
        takes_index = takes_argument(module.training_step, "batch_idx", min_positional=2)
        with isolate_rng(), Session.set_aside(), torch.no_grad():
            for batch, index in batches:
                with LossCapture() as capture:
                    output = step(batch, index) if takes_index else step(batch)
                loss = output.get("loss") if isinstance(output, dict) else output
                call = capture.only(loss) if isinstance(loss, torch.Tensor) else None
                if call is None:
                    return []
                inputs = inputs_beside(call.target, batch)
                found.append(Passed(call.value, call.output, call.target, inputs, call.loss_fn))
    except Exception:  # noqa: BLE001 - the user's code, called once more than it expects; then less is known
        return []
    return found


def _ignore(*arguments: Any, **keywords: Any) -> None:
    return None
