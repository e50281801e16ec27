"""Traces a stretch of a live run and writes down what it does; the run's numbers are those without the trace."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any
from weakref import ref

import torch

from unstuck.instruments.constructions import Constructions
from unstuck.places import Frame, is_user_file, user_chain
from unstuck.record.anatomy import Anatomy, Mark, ModelPart, Op, Units, Value
from unstuck.trials.anatomy.layers import measured_of, spreads_of
from unstuck.trials.anatomy.measures import measured
from unstuck.trials.anatomy.pairs import paired
from unstuck.trials.anatomy.recurrent import inputs_of, is_recurrent, outputs_of, settings_of, shadows_of
from unstuck.trials.anatomy.units import CHANNELS_FIRST, units_of, units_of_states
from unstuck.trials.anatomy.values import Maker, Makers, described, integer_range, moments, over_of, samples_of
from unstuck.trials.tracing.leaves import Leaves
from unstuck.trials.tracing.lineage import Lineage, Shadow
from unstuck.trials.tracing.memory import Memory, strided
from unstuck.trials.tracing.modules import ModuleStack, prefixed, roots
from unstuck.trials.tracing.ops import bound_arguments, user_name
from unstuck.trials.tracing.recorder import INNER_FRAMES, Record, Recorder

__all__ = ["Anatomist"]

MOST_OPS = 4000
"""Operations of one anatomy: a few megabytes."""

LONGEST = 1.5
"""Seconds of looking after which an anatomy ends."""

PATIENCE = 3
"""How many times as much it may take until the first loss, without which it tells little."""

_SAID = 64
"""Shadows of which it is remembered what they say."""

_NO_OPERATIONS = frozenset(("record_function_enter", "record_function_enter_new", "record_function_exit"))

Span = tuple[float | None, float | None]
_NOTHING: Span = (None, None)
_NOT_PLAIN = object()


class Anatomist:
    """One trace, from :meth:`open` to :meth:`close`.

    Args:
        step: optimiser steps that are complete.
        models: the program's modules by the variable that holds each.
        quiet: tells that an operation is none of the program's.
        constructions: knows the lines that made modules and filled parameters.
        lineage: follow which sample of the batch each element belongs to.
    """

    def __init__(
        self,
        step: int,
        models: Mapping[str, torch.nn.Module],
        quiet: Callable[[], bool],
        constructions: Constructions,
        lineage: bool = True,
    ) -> None:
        self._step = step
        self._chains: dict[tuple[Any, ...], int] = {}
        self._chain_list: list[tuple[Frame, ...]] = []
        self._memory = Memory()
        self._leaves = Leaves(self._memory, models, None)
        self._lineage = Lineage(self._memory) if lineage else None
        self._makers = Makers(self._memory, self._leaves)
        self._modules = ModuleStack(models, self.enter, self._leave)
        self._layer: torch.nn.Module | None = None
        self._taken: tuple[Value, ...] = ()
        self._place: tuple[int, int] | None = None
        self._recorder = Recorder(
            self._memory, self._lineage, self._modules.innermost, 0, None, observer=self._observe, quiet=quiet
        )
        self._constructions = constructions
        self._parts = self._parts_of(models)
        self._batch_size: int | None = None
        self._ops: list[Op] = []
        self._marks: list[Mark] = []
        self._process = os.getpid()
        self._spent = False
        self._said: dict[int, tuple[ref[Shadow], str, tuple[int, ...]]] = {}
        self._left_by: int | None = None  # the thread that has taken the recorder off its stack for a pause

    # -- the trace ---------------------------------------------------------------------------------------------------

    def open(self, inside: torch.nn.Module | None = None) -> bool:
        """Begin; False where another dispatch mode is active, below which ours could not be taken away again.

        Args:
            inside: a module whose forward is about to run.
        """
        if torch._C._len_torch_dispatch_stack():
            return False
        self._modules.open(inside)
        self._recorder.__enter__()  # type: ignore[no-untyped-call]
        return True

    def can_close(self) -> bool:
        """Whether nothing that the program has entered meanwhile lies above."""
        if self._left_by is not None:
            return True
        depth = torch._C._len_torch_dispatch_stack()
        return depth > 0 and torch._C._get_dispatch_stack_at(depth - 1) is self._recorder

    def close(self) -> Anatomy:
        """End; call it only where :meth:`can_close` says so."""
        if self._left_by is None:
            self._recorder.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        return self.abandon()

    def abandon(self) -> Anatomy:
        """Look at nothing more, where the trace can't be ended."""
        self._recorder.inert = True
        self._modules.close()
        anatomy = Anatomy(
            step=self._step,
            batch_size=self._batch_size,
            whole=not self._spent,
            chains=tuple(self._chain_list),
            ops=tuple(self._ops),
            marks=tuple(self._marks),
            parts=self._parts,
            failures=tuple(dict.fromkeys(self._recorder.failures)),
        )
        self._recorder.records.clear()
        self._recorder.by_sequence.clear()
        self._said.clear()
        self._leaves.forget()
        self._memory.release()
        return anatomy

    @property
    def seconds(self) -> float:
        """Time spent looking."""
        return self._recorder.seconds

    @property
    def spent(self) -> bool:
        """Whether the budget is used up, so that nothing more is looked at."""
        return self._spent

    def pause(self) -> None:
        """Look at nothing until :meth:`resume`: the update, the derivatives."""
        self._recorder.inert = True
        if self._left_by is None and self.can_close():
            # even without a look, to pass an operation through Python takes longer than many operations
            self._recorder.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._left_by = threading.get_ident()

    def resume(self) -> None:
        """Look again, unless the budget is used up, the process is a fork or another thread has gone on."""
        blind = self._spent or os.getpid() != self._process
        if self._left_by is not None and not blind:
            blind = self._left_by != threading.get_ident() or bool(torch._C._len_torch_dispatch_stack())
            if not blind:
                self._left_by = None
                self._recorder.__enter__()  # type: ignore[no-untyped-call]
        self._recorder.inert = blind

    # -- what the signals tell ---------------------------------------------------------------------------------------

    @property
    def knows_models(self) -> bool:
        """Whether any model was there when it began, or has been learnt since."""
        return bool(self._parts)

    def learn(self, models: Mapping[str, torch.nn.Module]) -> None:
        """Know these models from now on."""
        self._leaves.know(models)
        self._modules.rename(models)
        self._parts = self._parts_of(models)

    def declare(self, batch: Any) -> None:
        """The step works on this batch."""
        size = self._leaves.declare(batch, self._lineage)
        if self._batch_size is None:
            self._batch_size = size

    def mark(
        self,
        kind: str,
        frame: FrameType | None = None,
        tensor: torch.Tensor | None = None,
        optimizer: int | None = None,
        name: str | None = None,
    ) -> None:
        """Something happened here; see :class:`unstuck.record.anatomy.Mark`."""
        if self._spent:
            return
        value = None
        if tensor is not None and (seen := strided(tensor)) is not None:
            with torch.no_grad():
                value = self._value("loss", tensor, seen, None)
        self._marks.append(Mark(kind, len(self._ops), self._chain_of(frame), value, optimizer, name))

    def _chain_of(self, frame: FrameType | None) -> int:
        if frame is None:
            return -1
        lines = []
        at: FrameType | None = frame
        while at is not None:
            if is_user_file(at.f_code.co_filename):
                lines.append((at.f_code, at.f_lineno))
            at = at.f_back
        key = tuple(lines)
        if key not in self._chains:
            self._chains[key] = len(self._chain_list)
            self._chain_list.append(user_chain(frame))
        return self._chains[key]

    def _index(self, chain: tuple[Frame, ...]) -> int:
        if not chain:
            return -1
        if chain not in self._chains:
            self._chains[chain] = len(self._chain_list)
            self._chain_list.append(chain)
        return self._chains[chain]

    def _parts_of(self, models: Mapping[str, torch.nn.Module]) -> tuple[ModelPart, ...]:
        made, filled = self._constructions.of_module, self._constructions.of_parameter
        return tuple(
            ModelPart(
                path=path,
                kind=type(module).__name__,
                training=module.training,
                parameters={key: tuple(item.shape) for key, item in own.items()},
                frozen=tuple(key for key, item in own.items() if not item.requires_grad),
                settings={
                    key: value
                    for key, value in vars(module).items()
                    if not key.startswith("_") and key != "training" and isinstance(value, (bool, int, float, str))
                },
                library=type(module).__module__.startswith("torch."),
                made_at=self._index(made(module)),
                filled_at={key: at for key, item in own.items() if (at := self._index(filled(item))) >= 0},
                spread={key: ratio for key, item in own.items() if (ratio := spreads_of(item, _gates(module, item)))},
            )
            for path, module in _modules_of(models)
            for own in (dict(module.named_parameters(recurse=False)),)
        )

    # -- operations --------------------------------------------------------------------------------------------------

    def _observe(
        self,
        record: Record,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        sources: Sequence[tuple[str, int, torch.Tensor]],
        shadows: Sequence[torch.Tensor | None],
        result: Any,
    ) -> None:
        op = record.op
        if op.name in _NO_OPERATIONS:
            return
        place, self._place = self._place, _place(sys._getframe(2))
        if op.name == "detach" and place == self._place:
            return  # autograd keeps the result of the operation before
        begin = time.perf_counter()
        index = len(self._ops)
        inputs = tuple(
            self._value(name, tensor, tensor, shadow)
            for (name, _, tensor), shadow in zip(sources, shadows, strict=True)
        )
        settings = {
            name: plain
            for name, value in bound_arguments(op, args, kwargs).items()
            if (plain := _plain(value)) is not _NOT_PLAIN
        }
        written = [tensor for name, _, tensor in sources if name in op.written]
        outputs = [
            tensor
            for item in (result if isinstance(result, (list, tuple)) else [result])
            if isinstance(item, torch.Tensor) and (tensor := strided(item)) is not None
        ]
        for tensor in written:
            self._makers.wrote(tensor, index, 0, op.view)
        for slot, tensor in enumerate(outputs):
            self._makers.wrote(tensor, index, slot, op.view)
        known = not (op.view and inputs and inputs[0].leaf in ("parameter", "buffer"))
        shown = self._shown(inputs[0], outputs[0]) if op.view and inputs and len(outputs) == 1 else None
        results = tuple(
            self._result(index, slot, tensor, known, shown) for slot, tensor in enumerate(outputs or written)
        )
        name = user_name(op.name)
        units: Units | None = None
        backward = record.engine is not None or record.derivative
        if not backward and outputs and sources:
            maker = inputs[0].op
            first = maker is not None and self._ops[maker].name in CHANNELS_FIRST
            units = units_of(name, settings, sources[0][2], outputs[0], first)
        self._ops.append(
            Op(
                name=name,
                chain=self._lines(record),
                module=record.module,
                running=self._modules.running,
                backward=backward,
                grad_mode=record.grad_mode,
                settings=settings,
                inputs=inputs,
                outputs=results,
                in_place=bool(written),
                units=units,
                measured={}
                if backward
                else {
                    **measured(name, settings, sources),
                    **measured_of(name, settings, sources, outputs),
                    **paired(name, sources, shadows),
                },
            )
        )
        self._keep_within_budget(begin)

    def _keep_within_budget(self, begin: float) -> None:
        more = 1 if any(mark.kind == "backward" for mark in self._marks) else PATIENCE
        seconds = self._recorder.seconds + time.perf_counter() - begin
        if len(self._ops) >= MOST_OPS * more or seconds > LONGEST * more:
            self._spent = True
            self._recorder.inert = True

    # -- recurrent layers --------------------------------------------------------------------------------------------

    def enter(self, module: torch.nn.Module, args: Any) -> None:
        """A module's forward is about to run; told by a hook, but for one that began before the trace."""
        if self._layer is not None or self._recorder.inert or not is_recurrent(module):
            return
        self._recorder.inert = True
        self._layer = module
        with torch.no_grad():
            self._taken = tuple(
                self._value(argument, tensor, seen, self._lineage.of(seen) if self._lineage is not None else None)
                for argument, tensor in inputs_of(module, args)
                if (seen := strided(tensor)) is not None
            )

    def _leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        if module is not self._layer:
            return
        self._layer = None
        self.resume()
        if result is None or self._recorder.inert:
            return
        begin = time.perf_counter()
        self._recorder.inert = True
        grad_mode = torch.is_grad_enabled()
        with torch.no_grad():
            self._ops.append(self._recurrent(module, args, result, grad_mode))
        self._recorder.inert = False
        self._keep_within_budget(begin)

    def _recurrent(self, module: torch.nn.Module, args: Any, result: Any, grad_mode: bool) -> Op:
        index, outputs = len(self._ops), outputs_of(result)
        if self._lineage is not None and self._taken:
            source = strided(inputs_of(module, args)[0][1])
            shadow = self._lineage.of(source) if source is not None else None
            for tensor, told in zip(outputs, shadows_of(module, args, result, shadow), strict=True):
                self._lineage.tell(tensor, told)
        for slot, tensor in enumerate(outputs):
            self._makers.wrote(tensor, index, slot, view=False)
        return Op(
            name=type(module).__name__.lower(),
            chain=self._index(user_chain(sys._getframe(2))),
            module=self._modules.innermost(),
            running=type(module).__name__,
            backward=False,
            grad_mode=grad_mode,
            settings=settings_of(module, args),
            inputs=self._taken,
            outputs=tuple(self._result(index, slot, tensor, True) for slot, tensor in enumerate(outputs)),
            units=units_of_states(module, outputs[0]),
        )

    def _lines(self, record: Record) -> int:
        if not record.lines:
            return -1
        known = self._chains.get(record.lines)
        if known is None:
            known = self._chains[record.lines] = len(self._chain_list)
            self._chain_list.append(record.chain)
        return known

    def _value(self, argument: str, tensor: torch.Tensor, seen: torch.Tensor, shadow: torch.Tensor | None) -> Value:
        samples, over = self._samples(shadow)
        maker = self._makers.of(seen)
        span, middle = self._numbers(seen) if maker.op is None else (_NOTHING, _NOTHING)
        return described(argument, seen, maker, tensor.requires_grad, span, middle, samples, over)

    def _result(
        self, index: int, slot: int, tensor: torch.Tensor, looked_at: bool, shown: tuple[Span, Span] | None = None
    ) -> Value:
        shadow = None if self._lineage is None else self._lineage.of(tensor)
        samples, over = self._samples(shadow)
        span, middle = (shown or self._numbers(tensor)) if looked_at else (_NOTHING, _NOTHING)
        return described("out", tensor, Maker(index, slot), None, span, middle, samples, over)

    def _shown(self, source: Value, view: torch.Tensor) -> tuple[Span, Span] | None:
        """The numbers of a view of all elements: those of what it is a view of; None where they aren't known."""
        whole = source
        if source.op is not None:
            made = self._ops[source.op].outputs
            if len(made) != 1:
                return None
            whole = made[0]
        if whole.low is None or whole.dtype != source.dtype or math.prod(whole.shape) != view.numel():
            return None
        return (whole.low, whole.high), (whole.mean, whole.std)

    def _samples(self, shadow: Shadow | None) -> tuple[str | None, tuple[int, ...]]:
        """What a shadow says, once for the many operations that read the same tensor; see :class:`Value`."""
        if self._lineage is None:
            return None, ()
        if shadow is None:
            return samples_of(None), ()
        known = self._said.get(id(shadow))
        if known is None or known[0]() is not shadow:
            if len(self._said) >= _SAID:
                self._said.clear()
            samples = samples_of(shadow)
            known = self._said[id(shadow)] = ref(shadow), samples, over_of(shadow, samples)
        return known[1:]

    def _numbers(self, tensor: torch.Tensor) -> tuple[Span, Span]:
        if tensor.is_floating_point():
            seen = self._recorder.look(tensor)
            return (seen.low, seen.high), moments(tensor)
        return integer_range(tensor), _NOTHING


def _place(frame: FrameType | None) -> tuple[int, int] | None:
    """Frame and instruction that called an operation."""
    while frame is not None and frame.f_code.co_filename.endswith(INNER_FRAMES):
        frame = frame.f_back
    return None if frame is None else (id(frame), frame.f_lasti)


def _plain(value: Any) -> Any:
    """A setting as plain data, ``_NOT_PLAIN`` for tensors and objects."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value[:16]]
        return _NOT_PLAIN if _NOT_PLAIN in items else items
    return _NOT_PLAIN


def _gates(module: torch.nn.Module, weight: torch.Tensor) -> int:
    """Gates whose weights are stacked in one matrix."""
    if not isinstance(module, (torch.nn.RNNBase, torch.nn.RNNCellBase)) or weight.dim() < 2:
        return 1
    hidden = int(module.hidden_size)
    return weight.shape[0] // hidden if hidden and weight.shape[0] % hidden == 0 else 1


def _modules_of(models: Mapping[str, torch.nn.Module]) -> Iterator[tuple[str, torch.nn.Module]]:
    """(path, module) of every module of the models."""
    top = roots(models)
    for name, model in top.items():
        for path, module in model.named_modules():
            yield prefixed(name, path, len(top) > 1), module
