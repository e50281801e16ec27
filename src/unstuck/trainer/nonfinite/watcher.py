"""The Trainer's guard: losses, gradients, weights and optimiser state of automatic optimisation.

Every loss is looked at, and before every step the gradient that is computed last, which nearly every NaN of a backward
pass reaches; all gradients, weights and states at the first steps and then as often as a share of the step's time
allows. Batch and random state of the present step are remembered, so that it can be run again: nothing is copied.

Told once per fit, when a step is about to take the value: a loss whose gradients a hook cleans, or a loss scaler drops,
is none.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from unstuck.instruments.guard import Backward, Incident
from unstuck.instruments.moments import Draw, Moments
from unstuck.instruments.pace import Pace
from unstuck.instruments.underflow import LOOKS, ZEROS, computed_in_float16, share_of_zeros
from unstuck.measure import rng
from unstuck.measure.bad_samples import nonfinite_in
from unstuck.measure.finiteness import Sweep, all_finite, first_nonfinite
from unstuck.measure.rng import RandomState
from unstuck.messages import rank_zero_info
from unstuck.places import user_chain
from unstuck.record.gradients import ScalerRecord
from unstuck.trainer.nonfinite.dropped_steps import DroppedSteps
from unstuck.trainer.nonfinite.late_flags import KeptBatch, LateFlags
from unstuck.trainer.nonfinite.repeating import call_moment, rebuild_of
from unstuck.trials.dropping import WAITS, DroppedBatch, decides_on_device

if TYPE_CHECKING:
    from unstuck.session.incident_desk import IncidentDesk
    from unstuck.trainer.run import Run
    from unstuck.trials.dropping import StepDropper

__all__ = ["NonfiniteWatcher"]

_EVERY_STEP = 2
"""First steps in which everything is looked at."""

_GRADIENT_PART, _STATE_PART = 0.25, 0.1
"""Parts of the usual share of a step for the looks at all gradients, and at weights and optimiser state."""

_STUCK = (8, 32)
"""Steps that a loss scaler skips in a row before it is asked why, and asked again and told that it is stuck."""


_RANDOM_INTERVAL = 64
"""Steps between two looks at random states that don't move."""


@dataclass(slots=True)
class _Batch:
    """One call of ``training_step``: with what, from which random state, and what came of it."""

    arguments: tuple[Any, ...]
    index: int
    start: RandomState
    loss: float | None = None
    spoilt: bool | None = None
    """Whether a loss that isn't finite left such gradients; None while that isn't known, or for a finite loss."""


class NonfiniteWatcher:
    """A :class:`unstuck.trainer.watching.StepWatcher`.

    Args:
        run: the fit.
        desk: where incidents are explained.
    """

    lag: int | None = None
    """Steps after which flags are read; None reads them where they are made, on the CPU, and lets the cost decide on
    other devices."""

    decide_on_device = False
    """Whether a fused optimiser decides by itself which step it drops also where a look makes nothing wait."""

    def __init__(self, run: Run, desk: IncidentDesk) -> None:
        self._run = run
        self._desk = desk
        optimizer = run.strategy.optimizers[0]
        self._sweep = Sweep(_parameters_of(optimizer))
        parameters = self._sweep.parameters
        born_finite = all_finite(parameters)
        self._born = set() if born_finite else {id(item) for item in parameters if not all_finite([item])}
        self._probe = _computed_last(run.module)
        self._over = False
        self._steps = 0
        self._calls = 0
        self._batch: _Batch | None = None
        self._arguments: tuple[Any, ...] = ()
        self._index = 0
        self._start: RandomState | None = None
        self._loss = 0.0
        self._suspect: _Batch | None = None
        self.suspects = False
        self._gradient_pace = Pace(_EVERY_STEP, _GRADIENT_PART)
        self._state_pace = Pace(_EVERY_STEP, _STATE_PART)
        # counted down here: in short steps a call costs as much as a look
        self._moves = True
        self._until_gradients = self._until_state = self._until_random = 0
        self._since = (0, time.perf_counter())
        self._step_seconds = 0.0
        self._swept_at = -1
        self._skipped_in_row = 0
        self._zeros_at = LOOKS[0]
        self._in_float16 = False
        self._failed = False
        self._repeats = isinstance(optimizer, torch.optim.LBFGS)
        self._dropping = DroppedSteps(run, optimizer) if run.settings.on_nonfinite == "skip-step" else None
        device = parameters[0].device.type if parameters else "cpu"
        self._waits = device != "cpu" or self.lag is not None
        looks = self._dropping is not None and run.precision.scaler is None and not decides_on_device(optimizer)
        if looks and self._waits:
            rank_zero_info(f"Trainer(on_nonfinite='skip-step'): {WAITS}.")
        late = self._waits and not self._repeats and self._dropping is None
        self._late = LateFlags(run, self.lag) if late else None
        self._scales = run.precision.scaler is not None
        self._accumulates = run.settings.accumulate_grad_batches > 1
        self._capture: Callable[[], RandomState] = rng.capture

    # -- what a batch tells ------------------------------------------------------------------------------------------

    def begin(self, arguments: tuple[Any, ...], batch_idx: int) -> None:
        self._arguments, self._index = arguments, batch_idx
        if self._dropping is not None and self._calls == 0:
            self._dropping.begin()
        self._until_random -= 1
        if self._until_random < 0:
            self._note_random_state()
        elif self._moves:
            self._start = self._capture()
        if self._late is not None and not self._over:
            assert self._start is not None
            self._late.begin(arguments, batch_idx, self._start)

    def see_loss(self, loss: Tensor) -> None:
        self._calls += 1
        if loss.numel() != 1:
            return
        if self._late is not None:
            if not self._over:
                self._late.note(loss)
            return
        if self._dropping is not None and self._waits:
            return  # the gradients decide, on the device
        if self._steps == self._zeros_at:
            self._in_float16 = computed_in_float16(loss)
        value = self._loss = loss.item()
        if value - value != 0.0 and self._suspect is None:
            self._suspect, self.suspects = self._present(), True

    def after_backward(self) -> None:
        suspect = self._suspect
        if suspect is not None:
            if suspect.spoilt is None and suspect.loss is not None and suspect.loss - suspect.loss != 0.0:
                suspect.spoilt = not self._sweep.gradients_finite()
        elif self._accumulates and self._probe_is_bad():
            self._suspect = self._present()

    def backward_failed(self) -> None:
        if torch.is_anomaly_enabled() and not self._over:
            # torch's anomaly mode names the derivative; what made it is told beside
            self._failed = True
            batch = self._suspect or self._present()
            bad_loss = batch.loss is not None and batch.loss - batch.loss != 0.0
            self._declare("loss" if bad_loss else "gradient", self._run.strategy.optimizers[0], batch, self._steps, 0)

    def before_step(self, optimizer: Optimizer) -> None:
        if self._dropping is not None:
            self._keep_or_drop(optimizer, self._dropping)
            return
        if self._scales:
            return  # a loss scaler drops what isn't finite
        if self._late is not None:
            gradient = None if self._probe is None else self._probe.grad
            if gradient is not None and not self._over:
                self._late.note(gradient)
            return
        if self._steps == self._zeros_at:
            self._look_for_zeros(optimizer)
        self._until_gradients -= 1
        if self._suspect is not None or self._until_gradients < 0 or self._probe_is_bad():
            self._examine(optimizer)
        if self._repeats:
            self._start = self._capture()  # the closure may be called again

    def end(self, optimizer: Optimizer, stepped: bool, scaler_skipped: bool) -> None:
        if stepped:
            if self._dropping is not None and self._dropping.end():
                pass
            elif scaler_skipped:
                self._skip(optimizer)
            else:
                self._skipped_in_row = 0
                self._steps += 1
                self._until_state -= 1
                if self._until_state < 0 and self._late is None:
                    self._examine_state(optimizer)
            self._suspect = None
            self.suspects = False
            self._calls = 0
        if self._late is not None and not self._over:
            found = self._late.end(stepped)
            if found is not None:
                self._explain_late(self._late, *found, optimizer)
        self._arguments = ()

    def finish(self) -> None:
        """The fit is over: flags that nobody has read are read now."""
        if self._dropping is not None:
            self._dropping.read_flags()
        if self._late is not None and not self._over:
            found = self._late.read()
            if found is not None:
                self._explain_late(self._late, *found, self._run.strategy.optimizers[0])

    def _explain_late(self, late: LateFlags, step: int, bad: KeptBatch, optimizer: Optimizer) -> None:
        """A step some time ago wasn't finite: go back to it, where that is possible."""

        def explain(loss: float) -> None:
            batch = _Batch(bad.arguments, bad.index, bad.start, loss)
            kind = "loss" if loss - loss != 0.0 else "gradient"
            self._declare(kind, optimizer, batch, step, 0, seen=False)

        if late.run_again(bad, optimizer, explain) is not None:
            self._declare("gradient", optimizer, None, step, max(1, self._steps - step))

    # -- dropping ----------------------------------------------------------------------------------------------------

    @property
    def dropper(self) -> StepDropper | None:
        """What drops steps; None without that policy."""
        return None if self._dropping is None else self._dropping.dropper

    def _keep_or_drop(self, optimizer: Optimizer, dropping: DroppedSteps) -> None:
        suspect = self._suspect
        if self._scales:
            if suspect is None:
                return  # what the scale alone has made infinite is the scaler's to drop
            dropping.keep_scale()
        elif suspect is None and self._decides(optimizer):
            dropping.decide_on_device(optimizer, self._dropped_batch(None))
            return
        elif self._sweep.gradients_finite() and (suspect is None or suspect.spoilt is not False):
            return
        if self._weights_are_bad():
            self._examine(optimizer)
            return
        if not dropping.dropper.dropped:
            batch = suspect or self._present()
            bad_loss = batch.loss is not None and batch.loss - batch.loss != 0.0
            self._declare("loss" if bad_loss else "gradient", optimizer, batch, self._steps, 0)
            self._over = False  # it spoils nothing that comes after it
        dropping.drop(optimizer, self._dropped_batch(suspect or self._present()))

    def _dropped_batch(self, looked_at: _Batch | None) -> DroppedBatch:
        """The batch of the present step; only one that is ``looked_at`` tells which sample is bad itself."""
        index = self._index if looked_at is None else looked_at.index
        drawn = self._run.train.combined.drawn
        indices = None if drawn is None else drawn.of(index)
        sample = None if looked_at is None else nonfinite_in(looked_at.arguments[0])[0]
        return DroppedBatch(index, indices, sample, self._run.progress.current_epoch)

    def _decides(self, optimizer: Optimizer) -> bool:
        on_device = self._probe is not None and self._probe.device.type != "cpu"
        return (on_device or self.decide_on_device) and decides_on_device(optimizer)

    # -- looks -------------------------------------------------------------------------------------------------------

    def _present(self) -> _Batch:
        assert self._start is not None
        return _Batch(self._arguments, self._index, self._start, self._loss)

    def _note_random_state(self) -> None:
        """Remember where the present step's random numbers begin.

        Where they don't move from step to step it is enough to look now and then: the state is that of long ago.
        """
        before, self._start = self._start, self._capture()
        if before is not None:
            self._moves = not _same_random(before, self._start)
            self._until_random = min(_RANDOM_INTERVAL, self._steps)

    def _probe_is_bad(self) -> bool:
        probe = self._probe
        gradient = None if probe is None else probe.grad
        if gradient is None or self._over:
            return False
        if gradient.ndim == 1:
            value = gradient.dot(gradient).item()
        elif gradient.layout is torch.strided:
            value = gradient.sum().item()
        else:
            return False
        # squares and sums may overflow
        return bool(value - value != 0.0) and not all_finite([gradient])

    def _measure_steps(self) -> None:
        """How long a step takes."""
        now = time.perf_counter()
        steps, since = self._since
        if self._steps > steps:
            usual = (now - since) / (self._steps - steps)
            # a slow step (a validation, a checkpoint) says nothing about the usual one
            self._step_seconds = min(usual, 1.25 * self._step_seconds) if self._step_seconds else usual
            self._since = (self._steps, now)

    def _examine(self, optimizer: Optimizer) -> None:
        """All gradients that the step is about to take."""
        if self._over:
            return
        self._measure_steps()
        begin = time.perf_counter()
        finite = self._sweep.gradients_finite()
        self._gradient_pace.spent(time.perf_counter() - begin, self._step_seconds)
        self._until_gradients = self._gradient_pace.ahead
        unseen = 0 if self._swept_at < 0 else max(0, self._steps - self._swept_at - 1)
        self._swept_at = self._steps
        suspect = self._suspect
        harmful = suspect is not None and suspect.spoilt is False
        if finite and not harmful:
            return
        if self._weights_are_bad():
            # an update did it, or gradients that nobody has looked at
            kind = "gradient" if unseen else "parameter"
            self._declare(kind, optimizer, None, self._steps - 1, max(1, unseen) if unseen else 0)
            return
        batch = suspect or self._present()
        bad_loss = batch.loss is not None and batch.loss - batch.loss != 0.0
        self._declare("loss" if bad_loss else "gradient", optimizer, batch, self._steps, 0)

    def _look_for_zeros(self, optimizer: Optimizer) -> None:
        """Whether half precision without a loss scaler has left no gradients to learn from."""
        self._zeros_at = next((step for step in LOOKS if step > self._steps), -1)
        if self._over or self._repeats or self._accumulates or not self._in_float16:
            return
        if share_of_zeros(optimizer) < ZEROS:
            return
        moments = Moments()
        batch = self._present()
        moments.draws.append(self._draw(batch))
        incident = self._incident("none", optimizer, batch, self._steps, 0, moments)
        frame = sys._getframe(1)
        if self._desk.examine_zeros(incident, moments, [optimizer], frame, torch.autograd.backward, self._run.module):
            self._zeros_at = -1

    def _examine_state(self, optimizer: Optimizer) -> None:
        """Weights and optimiser state after a step whose gradients were finite, as far as they were looked at."""
        if self._over:
            return
        begin = time.perf_counter()
        weights = self._sweep.values_finite() or not self._weights_are_bad()
        state = all_finite(_state_of(optimizer))
        self._state_pace.spent(time.perf_counter() - begin, self._step_seconds)
        self._until_state = self._state_pace.ahead
        if weights and state:
            return
        seen = self._swept_at == self._steps - 1
        kind = ("state" if weights else "parameter") if seen else "gradient"
        late = 0 if seen else max(1, self._steps - 1 - self._swept_at)
        self._declare(kind, optimizer, None, self._steps - 1, late)

    def _weights_are_bad(self) -> bool:
        return first_nonfinite([item for item in self._sweep.parameters if id(item) not in self._born]) is not None

    # -- incidents ---------------------------------------------------------------------------------------------------

    def _declare(
        self, kind: str, optimizer: Optimizer, batch: _Batch | None, step: int, late: int, seen: bool = True
    ) -> None:
        self._over = True  # what a step made non-finite spoils everything after it
        batch_of = batch or (None if late else self._present())
        moments = Moments()
        if batch_of is not None:
            moments.draws.append(self._draw(batch_of))
        # gradients that were seen must come again; after a way back from a snapshot there are none yet
        self._failed = self._failed or not seen
        incident = self._incident(kind, optimizer, batch, step, late, moments)
        self._desk.declare(
            incident,
            moments,
            [optimizer],
            sys._getframe(1),
            torch.autograd.backward,
            rebuild_of(self._run, "training_step", None if batch_of is None else batch_of.arguments),
            self._run.module,
            self._steps - step,
        )

    def _incident(
        self, kind: str, optimizer: Optimizer, batch: _Batch | None, step: int, late: int, moments: Moments
    ) -> Incident:
        outside = sys._getframe(1)
        backward = None
        if batch is not None:
            values = None if batch.loss is None else (batch.loss,)
            finite = batch.loss is None or batch.loss - batch.loss == 0.0
            moment = call_moment(self._run, "training_step", batch.arguments, batch.start)
            backward = Backward(values, finite, (), ((moment, 1),), spoilt=batch.spoilt)
        draws = tuple((draw.position, draw.batch) for draw in moments.draws)
        # hooks and clipping may have spread what is non-finite
        return Incident(
            kind,
            step,
            late,
            optimizer,
            backward,
            max(1, self._calls),
            True,
            user_chain(outside),
            draws,
            partial=self._failed,
        )

    def _draw(self, batch: _Batch) -> Draw:
        drawn = self._run.train.combined.drawn
        indices = None if drawn is None else drawn.of(batch.index)
        return Draw(batch.index, batch.arguments[0], batch.arguments[0], indices)

    def _skip(self, optimizer: Optimizer) -> None:
        """The loss scaler has dropped the step."""
        self._skipped_in_row += 1
        if self._skipped_in_row not in _STUCK or self._over:
            return
        moments = Moments()
        batch = self._suspect or self._present()
        moments.draws.append(self._draw(batch))
        incident = self._incident("gradient", optimizer, batch, self._steps, 0, moments)
        scaler = self._run.precision.scaler
        frame = sys._getframe(1)
        found = self._desk.examine_skip(
            incident, scaler, moments, [optimizer], frame, torch.autograd.backward, self._run.module
        )
        if found is not None:
            self._over = True
            self._desk.tell_of_skips(found, since=1)
        elif self._skipped_in_row == _STUCK[-1]:
            self._over = True
            scale = float(scaler.get_scale())
            count = self._skipped_in_row
            first = scale / scaler.get_backoff_factor() ** count
            self._desk.tell_of_scaler(
                ScalerRecord(
                    step_at=user_chain(frame),
                    attempts=count,
                    skipped=count,
                    longest=count,
                    longest_step=self._steps,
                    longest_scale=scale,
                    first_scale=first,
                    scale=scale,
                )
            )


def _same_random(state: RandomState, other: RandomState) -> bool:
    return (
        torch.equal(state.torch_cpu, other.torch_cpu)
        and len(state.torch_cuda) == len(other.torch_cuda)
        and all(map(torch.equal, state.torch_cuda, other.torch_cuda))
        and state[2:5] == other[2:5]
    )


def _parameters_of(optimizer: Optimizer) -> list[Tensor]:
    return [item for group in optimizer.param_groups for item in group["params"]]


def _computed_last(module: torch.nn.Module) -> Tensor | None:
    """Of the first parameters of a module, whose gradients come last, a small one."""
    trained = [item for item in module.parameters() if item.requires_grad]
    return min(trained[:2], key=lambda item: math.inf if is_lazy(item) else item.numel(), default=None)


def _state_of(optimizer: Optimizer) -> list[Tensor]:
    return [
        value
        for entry in optimizer.state.values()
        if isinstance(entry, dict)
        for value in entry.values()
        if isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1
    ]
