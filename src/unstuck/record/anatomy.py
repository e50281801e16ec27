"""What a few steps of a program do, operation by operation: plain data, no torch.

An anatomy lists every ATen operation of a traced stretch of the run in the order of execution, forward and backward,
with where its inputs came from, what its settings were, and what the numbers looked like. Rules read from it what a
loss is called with, over which dimension something is normalised, where a graph is cut, how samples mix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from unstuck.places import Frame

__all__ = ["Anatomy", "Mark", "ModelPart", "Op", "Units", "Value"]


@dataclass(frozen=True)
class Units:
    """Single units of an activation's result: channels along dimension 1, or the last one's for two dimensions or a
    sequence.

    Attributes:
        kind: ``rectifier`` or ``sigmoid``/``tanh`` (two flat ends).
        count: units.
        off: units that are off for every sample and place: 0 for a rectifier; at a flat end for two flat ends.
        share: share of single values that are off, or at a flat end.
        samples: values that each unit was judged by.
        mask: which units ``off`` counts: a hexadecimal number, the first unit in its lowest bit; empty where there are
            thousands of units.
    """

    kind: str
    count: int
    off: int
    share: float
    samples: int
    mask: str = ""


@dataclass(frozen=True)
class Value:
    """A tensor as an operation took it or made it.

    Attributes:
        argument: name in the operation's schema (``self``, ``target``); ``out`` for results.
        shape: sizes.
        dtype: ``float32``.
        op: index of the operation that made it, None where it was there before.
        leaf: what was there before: ``parameter``, ``buffer``, ``batch`` or ``constant``; None where ``op`` is known.
        name: of a parameter or buffer its dotted path, of a batch's tensor its key path.
        grad: whether gradients flow through it (``requires_grad``) as it was taken; None for results.
        low: smallest finite element; None for integers that weren't looked at and for what is empty.
        high: largest finite element.
        mean: of the finite elements, None for results of the backward pass.
        std: their standard deviation, None as for ``mean``.
        samples: along the lineage from the batch: ``none`` (no data of the batch), ``apart`` (each element belongs to
            one sample), ``statistic`` (a reduction over samples), ``mixed`` (samples meet in single elements, or
            it isn't known), None where no lineage was kept.
        over: dimensions along which the sample changes, where each element belongs to one.
        slot: of the results of ``op`` the one that it is.
    """

    argument: str
    shape: tuple[int, ...]
    dtype: str
    op: int | None = None
    leaf: str | None = None
    name: str | None = None
    grad: bool | None = None
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    std: float | None = None
    samples: str | None = None
    over: tuple[int, ...] = ()
    slot: int = 0


@dataclass(frozen=True)
class Op:
    """One operation.

    Attributes:
        name: ATen's base name as users know it (``softmax``, ``add``: no overload, no underscores). A recurrent
            layer of torch is one operation (``lstm``, ``gru``, ``rnn``) with its weights among the inputs.
        chain: index into :attr:`Anatomy.chains`: the user's lines down to it; -1 for none (a derivative).
        module: dotted path of the innermost module of the models that was running.
        running: class name of the innermost running module, whether of the models or not (``CrossEntropyLoss``).
        backward: whether it ran inside the autograd engine.
        grad_mode: whether gradients were recorded.
        settings: its arguments that are no tensors, by name, defaults included (``dim``, ``reduction``, ``training``).
        inputs: tensors that it took.
        outputs: tensors that it made or wrote; views too.
        in_place: whether it wrote into a tensor that was there.
        units: single units, for the results of activation functions.
        measured: numbers that only some operations have. ``logsumexp``: of the class scores that a negative
            log-likelihood takes, mean over the samples (0 for log-probabilities). ``target 5%``, ``20%``, ``80%``,
            ``95%``: quantiles of what an output is compared with; ``target sum``: over the last dimension, mean over
            the others. ``other samples``: of the numbers that are compared the share that belongs to different samples
            of the batch. Of a layer's result ``apart``: standard deviation over the first dimension, root mean square
            over the rest. Of a normalisation ``values per statistic``, ``passed`` (what is left of unit variance: below
            1 as far as eps outweighs the variance) and, with running statistics, ``evaluation shift`` and ``evaluation
            scale``: how far its result in evaluation lies from the one in training, in standard deviations and as a
            factor.
    """

    name: str
    chain: int
    module: str | None
    running: str | None
    backward: bool
    grad_mode: bool
    settings: dict[str, Any]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    in_place: bool = False
    units: Units | None = None
    measured: dict[str, float] = field(default_factory=dict)

    def taken(self, argument: str) -> Value | None:
        """The input under this name."""
        return next((value for value in self.inputs if value.argument == argument), None)


@dataclass(frozen=True)
class Mark:
    """Something that happened between two operations.

    Attributes:
        kind: ``batch`` (a loader gave one), ``call`` (the first module of a pass was called), ``backward`` (gradients
            of ``value`` are computed), ``backward_ended``, ``zero_grad``, ``step`` (an optimiser step begins).
        at: number of operations before it.
        chain: index into :attr:`Anatomy.chains`, -1 for none.
        value: of a ``backward`` the loss.
        optimizer: of a ``step`` the optimiser's number, in the order of their first steps.
        name: of a ``batch`` ``stacked`` where the loader has stacked samples along its first dimension, of a ``call``
            the class of the module, of a ``step`` the optimiser's class.
    """

    kind: str
    at: int
    chain: int = -1
    value: Value | None = None
    optimizer: int | None = None
    name: str | None = None


@dataclass(frozen=True)
class ModelPart:
    """One module of the models.

    Attributes:
        path: dotted path.
        kind: class name.
        training: its mode when the trace began.
        parameters: names of its own parameters with their sizes.
        frozen: of these, names that don't require gradients.
        settings: plain numbers and strings among its attributes (``p``, ``momentum``, ``num_features``).
        library: whether its class is torch's own.
        made_at: index into :attr:`Anatomy.chains`: the user's line that made it; -1 where it isn't known (made before
            the session, a copy).
        filled_at: the same by name for its own parameters: the line that filled each last, by its construction or by
            ``torch.nn.init``; without those that aren't known.
        spread: of its own parameters of two and more dimensions, how much their slices along the first and along the
            second dimension differ when the trace began: deviation from their mean over the root mean square, 0 for
            equal ones. The gates of a recurrent layer are compared each within itself.
    """

    path: str
    kind: str
    training: bool
    parameters: dict[str, tuple[int, ...]]
    frozen: tuple[str, ...]
    settings: dict[str, Any]
    library: bool
    made_at: int = -1
    filled_at: dict[str, int] = field(default_factory=dict)
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Anatomy:
    """A traced stretch of the run.

    Attributes:
        step: optimiser steps that were complete when it began.
        batch_size: leading dimension of the batch; None if unknown.
        whole: whether it was traced to its end; False where a budget ended it early.
        chains: the user's lines, outermost first, that operations refer to.
        ops: in the order of execution.
        marks: in the same order.
        parts: modules of the models.
        failures: operations that couldn't be looked at.
    """

    step: int
    batch_size: int | None
    whole: bool
    chains: tuple[tuple[Frame, ...], ...]
    ops: tuple[Op, ...]
    marks: tuple[Mark, ...]
    parts: tuple[ModelPart, ...] = ()
    failures: tuple[str, ...] = field(default=())

    def chain(self, index: int) -> tuple[Frame, ...]:
        """The user's lines of an operation or mark, empty for none."""
        return self.chains[index] if index >= 0 else ()

    def forward(self) -> Iterator[tuple[int, Op]]:
        """(index, operation) of those outside the autograd engine."""
        for index, op in enumerate(self.ops):
            if not op.backward:
                yield index, op

    def losses(self) -> list[tuple[Mark, int | None]]:
        """Each ``backward`` mark with the index of the operation that made its loss."""
        return [(mark, mark.value.op if mark.value else None) for mark in self.marks if mark.kind == "backward"]

    def behind(self, index: int, through: bool = True) -> list[int]:
        """Operations whose results went into one, itself first, nearest first.

        Args:
            index: where to start.
            through: only along values that gradients flow through.
        """
        found: list[int] = []
        waiting = [index]
        seen = {index}
        while waiting:
            here = waiting.pop(0)
            found.append(here)
            for value in self.ops[here].inputs:
                if value.op is not None and value.op not in seen and (value.grad or not through):
                    seen.add(value.op)
                    waiting.append(value.op)
        return found
