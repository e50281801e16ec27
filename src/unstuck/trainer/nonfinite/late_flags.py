"""Watching on a device without ever making it wait: flags stay there, and are read some steps later.

From the last clean state on (a snapshot of weights, buffers and optimiser state) all batches and random states are
kept. When a flag that is read says that a step wasn't finite, the steps since the snapshot are run again, without a
trace in the program, up to that step, which is then explained as if it had just happened.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from unstuck.errors import NonFiniteError
from unstuck.measure import rng
from unstuck.measure.rng import RandomState
from unstuck.trials.replay.sandbox import sandbox

if TYPE_CHECKING:
    from unstuck.trainer.run import Run

__all__ = ["KeptBatch", "LateFlags"]

_SHORTEST, _LONGEST = 16, 128
"""Steps between two looks at the flags, and between two snapshots, at least and at most."""

_SHARE = 0.01
"""Share of the run's time that snapshots may take."""

_MEMORY_SHARE = 0.25
"""Share of the device's free memory that a snapshot may take."""


@dataclass
class KeptBatch:
    """A batch since the snapshot: the arguments of ``training_step``, its index, and the random state before it.

    ``flag``: on the device, whether loss or gradients weren't finite; ``stepped``: the optimiser acted after it.
    """

    arguments: tuple[Any, ...]
    index: int
    start: RandomState
    flag: Tensor | None = None
    stepped: bool = False


@dataclass(frozen=True)
class _Snapshot:
    tensors: list[tuple[Tensor, Tensor]]
    optimizer: dict[str, Any]


class LateFlags:
    """What is kept for the steps since the last snapshot.

    Args:
        run: the fit.
        every: steps between two looks; None lets the cost of a snapshot decide.

    Attributes:
        steps: optimiser steps before the snapshot.
        told: what the user should know, empty if nothing.
    """

    def __init__(self, run: Run, every: int | None = None) -> None:
        self._run = run
        self._fixed = every
        self._every = every or _SHORTEST
        self._batches: list[KeptBatch] = []
        self._snapshot: _Snapshot | None = None
        self._count = 0
        self._since = time.perf_counter()
        self.steps = 0
        self.told = ""

    def begin(self, arguments: tuple[Any, ...], batch_idx: int, start: RandomState) -> None:
        """A batch is about to be worked on."""
        if self._snapshot is None and not self.told and not self._batches:
            self._take_snapshot()
        self._batches.append(KeptBatch(arguments, batch_idx, start))

    def note(self, value: Tensor) -> None:
        """A loss or gradient of the present batch; looked at on its device."""
        bad = ~torch.isfinite(value.detach()).all()
        kept = self._batches[-1]
        kept.flag = bad if kept.flag is None else kept.flag | bad

    def end(self, stepped: bool) -> tuple[int, KeptBatch] | None:
        """The batch is done with.

        Returns:
            Where a flag was read that says so: how many optimiser steps were complete before the first batch that
            wasn't finite, and that batch.
        """
        self._batches[-1].stepped = stepped
        self._count += stepped
        if not stepped or self._count < self._every:
            return None
        return self.read()

    def read(self) -> tuple[int, KeptBatch] | None:
        """Wait for the device and look at the flags; the answer is that of :meth:`end`. A clean state is kept anew."""
        flags = [item.flag for item in self._batches if item.flag is not None]
        bad = torch.stack(flags).tolist() if flags else []
        seen = iter(bad)
        steps = self.steps
        for item in self._batches:
            if item.flag is not None and next(seen):
                return steps, item
            steps += item.stepped
        self.steps = steps
        seconds, now = 0.0, time.perf_counter()
        if not self.told:
            seconds = self._take_snapshot()
        if self._fixed is None and self._count:
            usual = (now - self._since) / self._count
            wanted = math.ceil(seconds / (_SHARE * usual)) if usual > 0.0 else _SHORTEST
            self._every = min(_LONGEST, max(_SHORTEST, wanted))
        self._batches, self._count, self._since = [], 0, time.perf_counter()
        return None

    def run_again(self, bad: KeptBatch, optimizer: Optimizer, explain: Callable[[float], None]) -> str | None:
        """Go from the snapshot to a batch, and ``explain`` it there; afterwards everything is as before.

        Args:
            bad: one of the batches since the snapshot.
            optimizer: of the run.
            explain: told of the loss of that batch when the state is that of before it.

        Returns:
            Why that couldn't be done, None if it was.
        """
        snapshot = self._snapshot
        if snapshot is None:
            return self.told or "no clean state was kept"
        try:
            self._go_back(snapshot, bad, optimizer, explain)
        except NonFiniteError:
            raise  # what was found ends the run
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything when it runs again
            return f"the steps before it couldn't be run again ({type(error).__name__}: {error})"
        return None

    def _go_back(
        self, snapshot: _Snapshot, bad: KeptBatch, optimizer: Optimizer, explain: Callable[[float], None]
    ) -> None:
        module = self._run.module
        step = self._run.precision.wrap_step(module.training_step)
        roots = (module, optimizer, [item.arguments for item in self._batches])
        with sandbox(roots, [], self._batches[0].start, torch.autograd.backward):
            module.__dict__["_current_fx_name"] = "training_step"
            with torch.no_grad():
                for tensor, kept in snapshot.tensors:
                    tensor.copy_(kept)
            optimizer.load_state_dict(copy.deepcopy(snapshot.optimizer))
            optimizer.zero_grad()
            for item in self._batches:
                rng.restore(item.start)
                if item is bad:
                    break
                self._repeat(step, item, optimizer)
            with torch.no_grad():
                found = step(*bad.arguments)
            rng.restore(bad.start)
            loss = found if isinstance(found, Tensor) else found["loss"]
            explain(float(loss.detach().item()))

    def _repeat(self, step: Callable[..., Any], item: KeptBatch, optimizer: Optimizer) -> None:
        """One batch as automatic optimisation runs it, without hooks."""
        settings = self._run.settings
        found = step(*item.arguments)
        loss = found["loss"] if isinstance(found, dict) else found
        if isinstance(loss, Tensor):
            (loss / settings.accumulate_grad_batches).backward()
        if item.stepped:
            self._run.precision.clip_gradients(optimizer, settings.gradient_clip_val, settings.gradient_clip_algorithm)
            optimizer.step()
            optimizer.zero_grad()

    def _take_snapshot(self) -> float:
        """Keep the present state; returns the seconds that it took."""
        begin = time.perf_counter()
        module, optimizer = self._run.module, self._run.strategy.optimizers[0]
        tensors = [*module.parameters(), *module.buffers()]
        states = [item for entry in optimizer.state.values() for item in entry.values() if isinstance(item, Tensor)]
        needed = sum(item.numel() * item.element_size() for item in (*tensors, *states))
        if not _has_room(tensors, needed):
            self._snapshot = None
            self.told = (
                f"there is no room for a snapshot of {needed / 2**20:.0f} MiB on the device, so a step that isn't "
                "finite is told late and without its operation"
            )
            return 0.0
        if self._snapshot is None:
            kept = [(item, item.detach().clone()) for item in tensors]
        else:
            kept = self._snapshot.tensors
            with torch.no_grad():
                for tensor, older in kept:
                    older.copy_(tensor)
        self._snapshot = _Snapshot(kept, copy.deepcopy(optimizer.state_dict()))
        return time.perf_counter() - begin


def _has_room(tensors: list[Tensor], needed: int) -> bool:
    device = next((item.device for item in tensors if item.device.type == "cuda"), None)
    if device is None:
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return needed <= _MEMORY_SHARE * free
