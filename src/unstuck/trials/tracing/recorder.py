"""Records every operation of a step while it runs: what went in and came out, from which line, in which module."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unstuck.places import INTERCEPTORS, Frame, is_user_file, qualified_name
from unstuck.trials.tracing.lineage import Lineage
from unstuck.trials.tracing.memory import (
    EMPTY,
    Memory,
    Region,
    Scan,
    Write,
    as_argument,
    scan,
    strided,
)
from unstuck.trials.tracing.ops import Operation, operation, tensor_arguments

__all__ = ["INNER_FRAMES", "Input", "Output", "Record", "Recorder", "StandIn"]

# The last frame of Python before the autograd engine runs C++ nodes.
_ENGINE = ("_engine_run_backward", "graph.py")
# torch wraps a dispatch mode so that it isn't compiled.
INNER_FRAMES = ("eval_frame.py", "_compile.py")
# Up to this many indices are copied, so that a later write can't change what is known of a non-finite result.
_COPIED = 2**20
_POSITIONS = 4096
# What looking at an exotic tensor (a subclass without memory of its own) may raise; the user's step goes on.
_CANT_LOOK = (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError, AssertionError)

Source = tuple[str, int, torch.Tensor]
Observer = Callable[["Record", tuple[Any, ...], dict[str, Any], list[Source], "list[torch.Tensor | None]", Any], None]
"""Record, arguments, keyword arguments, tensor inputs, their shadows before the operation, result."""


@dataclass(frozen=True)
class StandIn:
    """In the place of a floating point tensor among the arguments that are kept: only its sizes."""

    shape: tuple[int, ...]


@dataclass(eq=False)
class Input:
    """One tensor that went into an operation."""

    name: str
    place: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    region: Region | None
    scan: Scan
    shadow: torch.Tensor | None = None
    held: torch.Tensor | None = None
    picked: torch.Tensor | None = None

    def counts(self, op: Operation) -> bool:
        """Whether this is a divisor of whole numbers (a count, mostly): it is finite, but the quotient may not be."""
        whole = not (self.dtype.is_floating_point or self.dtype.is_complex or self.dtype is torch.bool)
        return whole and op.name == "div" and self.name == "other"


@dataclass(eq=False)
class Output:
    """One tensor that an operation wrote: its ``index`` among the results, its ``slot`` in a list of them."""

    index: int
    slot: int
    shape: tuple[int, ...]
    region: Region | None
    scan: Scan
    shadow: torch.Tensor | None = None


@dataclass(eq=False)
class Record:
    """One operation.

    Attributes:
        time: its place in the order of execution.
        op: what its schema tells.
        func: the overload.
        lines: the user's code objects and lines, innermost first.
        engine: how many of ``lines`` lie inside the autograd engine; None if it didn't run. 0 with ``derivative``
            is a built-in derivative.
        derivative: whether the engine's own node called it, without Python in between.
        module: path of the innermost known module, None outside.
        node: name of the autograd node during whose execution it ran, and its thread and sequence number.
        numbers: its plain numbers.
        inputs: the tensors that went in.
        outputs: the tensors that it wrote.
        arguments: arguments and keyword arguments with stand-ins for floating point tensors, if a result is bad.
        places: flat positions of the first results that it may have turned bad itself, if elementwise.
        scalar: the number that it read out of a tensor, if that is all it did.
        grad_mode: whether gradients were recorded.
    """

    time: int
    op: Operation
    func: Any
    lines: tuple[tuple[CodeType, int], ...]
    engine: int | None
    derivative: bool
    module: str | None
    node: tuple[str, int, int] | None
    numbers: tuple[float, ...] = ()
    inputs: list[Input] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    places: torch.Tensor | None = None
    scalar: float | None = None
    grad_mode: bool = True

    @property
    def chain(self) -> tuple[Frame, ...]:
        """The user's lines, outermost first."""
        return tuple(
            Frame(os.path.abspath(code.co_filename), line, qualified_name(code)) for code, line in reversed(self.lines)
        )


class Recorder(TorchDispatchMode):
    """The dispatch mode.

    Args:
        memory: storages.
        lineage: shadows, None where no batch is known.
        module: tells the path of the innermost module that runs.
        keep_bytes: budget for held inputs.
        stop: frame at which call chains end.
        observer: called after every operation that could be looked at.
        quiet: tells that an operation is none of the program's, so that it isn't looked at.

    Attributes:
        inert: while True operations pass without being looked at.
        seconds: time spent looking.
    """

    def __init__(
        self,
        memory: Memory,
        lineage: Lineage | None,
        module: Callable[[], str | None],
        keep_bytes: int,
        stop: FrameType | None,
        observer: Observer | None = None,
        quiet: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = memory
        self.lineage = lineage
        self.records: list[Record] = []
        self.by_sequence: dict[tuple[int, int], list[Record]] = {}
        self.scalars: list[Record] = []
        self.failures: list[str] = []
        self._module = module
        self._budget = keep_bytes
        self._held: set[int] = set()
        self._stop = stop
        self._observer = observer
        self._quiet = quiet
        self.inert = False
        self.seconds = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self.inert or (self._quiet is not None and self._quiet()):
            return func(*args, **(kwargs or {}))
        begin = time.perf_counter()
        keywords = dict(kwargs) if kwargs else {}
        op = operation(func)
        record = self._begin(op, func)
        sources: list[Source] = []
        shadows: list[torch.Tensor | None] = []
        seen = False
        try:
            with torch.no_grad():
                sources = [
                    (name, place, view)
                    for name, place, tensor in tensor_arguments(op, args, keywords)
                    if (view := strided(tensor)) is not None
                ]
                if not op.view:
                    self._look_at_inputs(record, args, keywords, sources)
                shadows = self._shadows(op, sources)
            seen = True
        except _CANT_LOOK as error:
            self.failures.append(f"{op.name}: {error}")
        self.seconds += time.perf_counter() - begin
        result = func(*args, **keywords)
        if not seen:
            return result
        begin = time.perf_counter()
        try:
            with torch.no_grad():
                if op.view:
                    self._after_view(op, func, args, keywords, sources, shadows, result)
                else:
                    for entry, shadow in zip(record.inputs, shadows, strict=True):
                        entry.shadow = shadow
                    self._after(record, args, keywords, sources, shadows, result)
                if self._observer is not None:
                    self._observer(record, args, keywords, sources, shadows, result)
        except _CANT_LOOK as error:
            self.failures.append(f"{op.name}: {error}")
        self.seconds += time.perf_counter() - begin
        return result

    def _begin(self, op: Operation, func: Any) -> Record:
        lines, engine, derivative = self._lines()
        node = torch._C._current_autograd_node()
        where = None
        if node is not None:
            where = (node.name(), threading.get_ident(), node._sequence_nr())
        record = Record(
            time=len(self.records),
            op=op,
            func=func,
            lines=lines,
            engine=engine,
            derivative=derivative or (node is not None and engine is None and not lines),
            module=self._module(),
            node=where,
            grad_mode=torch.is_grad_enabled(),
        )
        self.records.append(record)
        if not record.derivative or record.grad_mode:
            key = (threading.get_ident(), torch._C._autograd._get_sequence_nr() - 1)
            self.by_sequence.setdefault(key, []).append(record)
        return record

    def _lines(self) -> tuple[tuple[tuple[CodeType, int], ...], int | None, bool]:
        """The user's lines, how many of them run inside the autograd engine, and whether it called the operation."""
        frame: FrameType | None = sys._getframe(3)
        found = []
        engine: int | None = None
        while frame is not None and frame.f_code.co_filename.endswith(INNER_FRAMES):
            frame = frame.f_back
        derivative = frame is not None and frame.f_code.co_name == _ENGINE[0]
        while frame is not None and frame is not self._stop:
            code = frame.f_code
            if is_user_file(code.co_filename) and code.co_name not in INTERCEPTORS:
                found.append((code, frame.f_lineno or code.co_firstlineno))
            elif engine is None and code.co_name == _ENGINE[0] and code.co_filename.endswith(_ENGINE[1]):
                engine = len(found)
            frame = frame.f_back
        return tuple(found), engine, derivative

    def _look_at_inputs(
        self,
        record: Record,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        sources: list[Source],
    ) -> None:
        op = record.op
        unread = _unread(op, args, kwargs)
        for name, place, tensor in sources:
            region = self.memory.region(tensor)
            seen = EMPTY
            if as_argument(tensor) and name not in unread:
                seen = self._scan(region, tensor)
            entry = Input(name, place, tuple(tensor.shape), tensor.dtype, region, seen)
            if op.singular and not record.derivative and as_argument(tensor) and name not in op.out_only:
                self._hold(entry, tensor)
            record.inputs.append(entry)
        if op.numbers:
            values = {**dict(zip(op.parameters, args, strict=False)), **kwargs}
            record.numbers = tuple(
                float(value)
                for name in op.numbers
                if isinstance(value := values.get(name), (int, float)) and not isinstance(value, bool)
            )

    def look(self, tensor: torch.Tensor) -> Scan:
        """What a strided tensor of floating point or complex numbers holds at present."""
        return self._scan(self.memory.region(tensor), tensor)

    def _hold(self, entry: Input, tensor: torch.Tensor) -> None:
        assert entry.region is not None
        storage = entry.region.storage
        if storage.key not in self._held:
            if storage.bytes > self._budget:
                return
            self._budget -= storage.bytes
            self._held.add(storage.key)
        entry.held = tensor.detach()

    def _scan(self, region: Region, tensor: torch.Tensor) -> Scan:
        key = (region.geometry, region.dtype)
        known = region.storage.scans.get(key)
        if known is None:
            known = region.storage.scans[key] = self._same_elements(region) or scan(tensor)
        return known

    def _same_elements(self, region: Region) -> Scan | None:
        """What is known of the same elements in another order (a transposed or reshaped view), if all are finite."""
        size, stride, _ = region.geometry
        total = math.prod(size)
        if 0 in stride or total * region.dtype.itemsize != region.storage.bytes:
            return None
        for (other, steps, _), dtype in region.storage.scans:
            if dtype == region.dtype and 0 not in steps and math.prod(other) == total:
                known = region.storage.scans[(other, steps, _), dtype]
                return known if not known.bad else None
        return None

    def _shadows(self, op: Operation, sources: list[Source]) -> list[torch.Tensor | None]:
        if self.lineage is None:
            return [None] * len(sources)
        return [None if name in op.out_only else self.lineage.of(tensor) for name, _, tensor in sources]

    def _after_view(
        self,
        op: Operation,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        sources: list[Source],
        shadows: list[torch.Tensor | None],
        result: Any,
    ) -> None:
        if self.lineage is None or all(shadow is None for shadow in shadows):
            return
        outputs = [
            (index, index, tensor, True)
            for index, tensor in enumerate(result if isinstance(result, (list, tuple)) else [result])
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
        ]
        self.lineage.follow(op, func, args, kwargs, sources, shadows, outputs)

    def _after(
        self,
        record: Record,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        sources: list[Source],
        shadows: list[torch.Tensor | None],
        result: Any,
    ) -> None:
        op = record.op
        if op.name == "local_scalar_dense":
            if isinstance(result, float) and not math.isfinite(result):
                record.scalar = result
                self.scalars.append(record)
            return
        outputs = _written(op, sources, result, {entry.region.storage.key for entry in record.inputs if entry.region})
        for index, slot, tensor, _ in outputs:
            region = self.memory.region(tensor)
            region.storage.scans.clear()
            seen = self._scan(region, tensor) if as_argument(tensor) else EMPTY
            region.storage.writes.append(
                Write(record.time, region.geometry, tensor.element_size(), record, len(record.outputs), seen.kinds)
            )
            record.outputs.append(Output(index, slot, tuple(tensor.shape), region, seen))
        if self.lineage is not None:
            found = self.lineage.follow(op, record.func, args, kwargs, sources, shadows, outputs)
            for output, shadow in zip(record.outputs, found, strict=True):
                output.shadow = shadow
        if any(output.scan.bad for output in record.outputs):
            record.arguments = (
                tuple(_kept(value) for value in args),
                {name: _kept(value) for name, value in kwargs.items()},
            )
            if op.elementwise and len(record.outputs) == 1:
                self._pick(record, sources, outputs[0][2])

    def _pick(self, record: Record, sources: list[Source], output: torch.Tensor) -> None:
        """Keep the numbers that went into the elements that this operation may have turned bad itself."""
        kinds = record.outputs[0].scan.kinds
        assert kinds is not None
        made = kinds != 0
        for entry in record.inputs:
            if entry.scan.kinds is not None:
                nan = (entry.scan.kinds == 1).expand(kinds.shape)
                bad = (entry.scan.kinds != 0).expand(kinds.shape)
                made = made & ~torch.where(kinds == 1, nan, bad)
        record.places = made.flatten().nonzero().flatten()[:_POSITIONS]
        if not record.places.numel():
            return
        for entry, (_, _, tensor) in zip(record.inputs, sources, strict=True):
            if entry.counts(record.op):
                entry.scan = scan(tensor)
            elif not as_argument(tensor) or entry.name in record.op.written or tensor.is_complex():
                continue
            at = torch.unravel_index(record.places, kinds.shape) if kinds.dim() else ()
            entry.picked = tensor.detach().expand(kinds.shape)[at].double().cpu().reshape(-1)


def _unread(op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> frozenset[str]:
    """Arguments that the result doesn't depend on: a batch norm that trains only writes its running statistics."""
    if "batch_norm" in op.name:
        values = {**dict(zip(op.parameters, args, strict=False)), **kwargs}
        if values.get("training", values.get("train", op.name == "batch_norm_with_update")):
            return op.out_only | {"running_mean", "running_var"}
    return op.out_only


def _kept(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if as_argument(value) or value.layout is not torch.strided:
            return StandIn(tuple(value.shape))
        if value.device.type != "cpu":
            return value.detach().cpu()
        return value.detach().clone() if value.numel() <= _COPIED else value.detach()
    if isinstance(value, (list, tuple)):
        return [_kept(item) for item in value]
    return value


def _written(
    op: Operation, sources: list[Source], result: Any, known: set[int]
) -> list[tuple[int, int, torch.Tensor, bool]]:
    """The tensors that an operation wrote: index, slot, tensor, and whether its memory existed before."""
    found: list[tuple[int, int, torch.Tensor, bool]] = []
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    taken: set[int] = set()
    index = 0
    for name, place, tensor in sources:
        if name in op.written:
            found.append((index, place, tensor, True))
            taken.add(tensor.untyped_storage()._cdata)
            index += 0 if op.foreach else 1
    for position, item in enumerate(results):
        parts = item if isinstance(item, (list, tuple)) else [item]
        for slot, part in enumerate(parts):
            values = strided(part) if isinstance(part, torch.Tensor) else None
            if values is None:
                continue
            key = values.untyped_storage()._cdata
            if key in taken or (key in known and not op.out_only):
                continue  # written in place and handed back, or a view
            found.append((position, position if op.foreach else slot, values, False))
    return found
