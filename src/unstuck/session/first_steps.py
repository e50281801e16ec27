"""The first steps of a program, and a few later ones, are traced live and kept as anatomies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any
from weakref import WeakSet

import torch
from torch.nn.parameter import is_lazy
from torch.utils.data import default_collate

from unstuck.instruments.constructions import Constructions
from unstuck.instruments.guard import Guard
from unstuck.instruments.inventory import find_models
from unstuck.program.fillings import fillings
from unstuck.record.anatomy import Anatomy
from unstuck.record.recording import Recording
from unstuck.signals import Rest
from unstuck.trials.anatomy import Anatomist

__all__ = ["FirstSteps"]

_STEPS_EACH = 2
"""Steps of every optimiser that the first anatomy takes in: the first pass may have begun before it was seen whole."""

_MOST_STEPS = 6
_CHECKUPS = (10, 50, 200, 1000, 5000, 20_000, 100_000)
"""Steps before which one more pass is traced."""

_OF_A_STEP = (
    "batch_drawn",
    "forward_begins",
    "backward_begins",
    "backward_ended",
    "gradients_zeroed",
    "step_begins",
    "step_ended",
)

_FILES, _FILLINGS = 32, 64
"""Files of the program, and lines of each that write into tensors by hand, that are kept beside the first anatomy."""


class FirstSteps:
    """The instrument.

    Args:
        recording: where the anatomies go.
        guard: counts the steps and knows the optimisers.
        constructions: knows the lines that made modules and filled parameters.
        compiles: tells whether the program uses ``torch.compile``, which a trace would change.
        quiet: tells whether what runs is none of the program's.
    """

    name = "first steps"

    def __init__(
        self,
        recording: Recording,
        guard: Guard,
        constructions: Constructions,
        compiles: Callable[[], bool],
        quiet: Callable[[], bool],
    ) -> None:
        self._recording = recording
        self._guard = guard
        self._constructions = constructions
        self._compiles = compiles
        self._quiet = quiet
        self._now: Anatomist | None = None
        self._open = False
        self._declared = False
        self._done = False
        self._checkup = 0
        self._began = 0
        self._counts: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._known: WeakSet[torch.optim.Optimizer] = WeakSet()
        self._given: WeakSet[torch.nn.Module] = WeakSet()
        self.seconds = 0.0
        self.rest = Rest(_OF_A_STEP)
        self.afterwards = _Afterwards(self)

    def take(self, models: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Know from the first pass on what was given to the watch, although no variable of the user's may hold it."""
        self._given.update(models)
        self._known.update(optimizers)

    @property
    def wants_calls(self) -> bool:
        """Whether the first module call of a pass is needed."""
        return self._open or not self._done

    # -- signals -----------------------------------------------------------------------------------------------------

    def optimizer_created(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._known.add(optimizer)

    def batch_drawn(self, iterator: Any, batch: Any, frame: FrameType) -> None:
        if self._begin(frame, None) is not None and self._now is not None:
            self._now.declare(batch)
            self._declared = True
            self._now.mark("batch", frame, name="stacked" if _stacks(iterator) else None)

    def forward_begins(self, module: torch.nn.Module, args: Any, kwargs: Any, frame: FrameType) -> None:
        fresh = not self._open
        now = self._begin(frame, module)
        if now is None:
            return
        if fresh or not now.knows_models:  # a trace may begin where no variable of the user's holds one
            now.learn(self._models(frame, module))
        if not self._declared:
            now.declare((args, dict(kwargs)))
            self._declared = True
        if fresh:
            now.enter(module, args)
        now.mark("call", frame, name=type(module).__name__)

    def backward_begins(self, tensors: Any, frame: FrameType) -> None:
        if self._open and self._now is not None:
            for tensor in tensors:
                if isinstance(tensor, torch.Tensor):
                    self._now.mark("backward", frame, tensor)
            self._now.pause()

    def backward_ended(self, tensors: Any) -> None:
        if self._open and self._now is not None:
            self._now.resume()
            self._now.mark("backward_ended")

    def gradients_zeroed(self, owner: Any) -> None:
        if self._open and self._now is not None:
            self._now.mark("zero_grad")

    def step_begins(self, optimizer: torch.optim.Optimizer, closure: Any, frame: FrameType) -> None:
        self._known.add(optimizer)
        if self._open and self._now is not None:
            number = self._numbers.setdefault(id(optimizer), len(self._numbers))
            self._now.mark("step", frame, optimizer=number, name=type(optimizer).__name__)
            if closure is None:
                self._now.pause()

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._counts[id(optimizer)] = self._counts.get(id(optimizer), 0) + 1
        if self._open:
            self._declared = False
            if self._complete():
                self._end()

    def go_on(self, frame: FrameType) -> None:
        """The other instruments are done with a step, of which nothing is to be traced."""
        if self._open:
            if self._now is not None:
                self._now.resume()
        elif self._checkup < len(_CHECKUPS) and self._guard.steps >= _CHECKUPS[self._checkup]:
            self._checkup += 1
            self._begin(frame, None, checkup=True)
        if not self._open and self._done:
            # the step before the next checkup is the next that matters
            left = [step - self._guard.steps - 1 for step in _CHECKUPS[self._checkup :]]
            self.rest.begin(left[0] if left else None)

    def compile_begins(self) -> None:
        self.leave()
        self._alone()

    def run_ends(self) -> None:
        self.leave()

    def suspend(self) -> None:
        """What comes next is none of the program's: an open trace is dropped, and begun again later."""
        now, self._now = self._now, None
        if self._open and now is not None:
            if now.can_close():
                now.close()
            else:
                now.abandon()
        self._open = False

    def switched_off(self) -> None:
        """Nothing more is asked of it."""
        self.leave()

    def leave(self) -> None:
        """An open trace is ended, or at least made blind."""
        now, self._now = self._now, None
        if self._open and now is not None:
            self._keep(now.close() if now.can_close() else now.abandon())
        self._open, self._done = False, True

    def _alone(self) -> None:
        """Trace nothing more: compiled code would be compiled otherwise."""
        if self._checkup < len(_CHECKUPS):
            self._checkup = len(_CHECKUPS)
            self._recording.add_unchecked(
                "what single steps compute: not traced, since the program compiles and a trace would change that"
            )

    # -- one anatomy -------------------------------------------------------------------------------------------------

    def _begin(self, frame: FrameType, inside: torch.nn.Module | None, checkup: bool = False) -> Anatomist | None:
        """The open anatomy; a new one where one is due."""
        if self._open:
            return self._now
        if (self._done and not checkup) or not self._known:
            return None
        if self._compiles():
            self._done = True
            self._alone()
            return None
        models = self._models(frame, inside)
        if any(is_lazy(item) for model in models.values() for item in model.parameters()):
            return None  # this pass gives parameters their shapes; the next one is traced
        now = Anatomist(
            self._guard.steps,
            models,
            self._quiet,
            self._constructions,
            lineage=not checkup,
        )
        if not now.open(inside):
            return None
        self._now, self._open, self._declared = now, True, False
        self._began = self._guard.steps
        self._counts = {}
        return now

    def _models(self, frame: FrameType, module: torch.nn.Module | None) -> dict[str, torch.nn.Module]:
        return find_models(frame, list(self._known), [module, *self._given])

    def _complete(self) -> bool:
        each = _STEPS_EACH if not self._done else 1
        taken = sum(self._counts.values())
        if self._now is not None and self._now.spent:
            return True
        if taken >= (_MOST_STEPS if not self._done else 2):
            return True
        return all(self._counts.get(id(item), 0) >= each for item in self._known)

    def _end(self) -> None:
        now = self._now
        if not self._open or now is None:
            return
        now.pause()
        if not now.can_close():
            return  # a later signal finds the program outside of what it has entered
        self._open, self._now, self._done = False, None, True
        self.seconds += now.seconds
        self._keep(now.close())

    def _keep(self, anatomy: Anatomy) -> None:
        first = not self._recording.all(Anatomy)
        self._recording.keep(anatomy, whole=True)
        if first and not anatomy.whole and not anatomy.losses():
            self._recording.add_unchecked(
                "what the loss gets, and how inputs go through the model: the first pass is too long to be traced"
            )
        if first:
            files = dict.fromkeys(frame.file for chain in anatomy.chains for frame in chain)
            for file in list(files)[:_FILES]:
                for filling in fillings(file)[:_FILLINGS]:
                    self._recording.keep(filling, whole=True)


class _Afterwards:
    """Has a trace go on when all other instruments are done with a step; the last that listens.

    Args:
        first_steps: whose trace.
    """

    name = "first steps"

    def __init__(self, first_steps: FirstSteps) -> None:
        self._first_steps = first_steps
        self.rest = first_steps.rest

    def step_ended(self, optimizer: torch.optim.Optimizer, frame: FrameType) -> None:
        self._first_steps.go_on(frame)


def _stacks(iterator: Any) -> bool:
    """Whether a loader's iterator stacks samples in torch's own way, so that they lie apart along dimension 0."""
    return (
        getattr(iterator, "_collate_fn", None) is default_collate
        and getattr(getattr(iterator, "_index_sampler", None), "batch_size", None) is not None
    )
