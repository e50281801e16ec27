"""The tracer's face: run one step inside it, then ask where a non-finite value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from unstuck.record.origin import Origin, TensorSummary
from unstuck.trials.tracing.leaves import Leaves
from unstuck.trials.tracing.lineage import SAMPLE, Lineage
from unstuck.trials.tracing.memory import INF, NAN, Memory, Region, count, scan, strided
from unstuck.trials.tracing.modules import ModuleStack
from unstuck.trials.tracing.ops import user_name
from unstuck.trials.tracing.recorder import Input, Record, Recorder
from unstuck.trials.tracing.walk import Found, walk

__all__ = ["OpTrace"]

_LAST_NODE = 2**63
# Modules whose largest values are told, and what stands for the model itself and for what is outside of it.
_MODULES = 6
_WHOLE, _OUTSIDE = "(model)", "(outside)"
# How often a derivative may have been derived again.
_ORDERS = 4


class OpTrace:
    """Traces every ATen operation, forward and backward, that runs inside the ``with`` block.

    ::

        trace = OpTrace(models={"model": model}, batch=batch, batch_size=32)
        with trace:
            loss = step()
            loss.backward()
        origin = trace.origin_of(loss) or trace.origin_of_gradient(*model.parameters())

    Results, gradients and random states are those of a run without the trace. Compiled models must run eagerly
    inside (``torch.compiler.set_stance("force_eager")``). The questions may be asked inside the block or after it.

    Args:
        models: modules of the program by the variable that holds each; names modules, parameters and buffers. With
            several, names begin with the variable.
        batch: any nesting of containers with the tensors that the step reads as data; None if unknown.
        batch_size: size of their leading dimension; None takes that of the batch's first tensor.
        keep_bytes: budget for inputs that are kept so that a backward incident can tell the offending number.
        stop: frame at which call chains end; it and everything outside are left out.
    """

    def __init__(
        self,
        models: Mapping[str, torch.nn.Module] | None = None,
        batch: Any = None,
        batch_size: int | None = None,
        keep_bytes: int = 512 * 2**20,
        stop: FrameType | None = None,
    ) -> None:
        models = models or {}
        self._memory = Memory()
        self._leaves = Leaves(self._memory, models, batch)
        lineage = Lineage(self._memory) if self._leaves.batch else None
        if lineage is not None:
            self._leaves.seed(lineage, batch_size)
        self._lineage = lineage
        self._modules = ModuleStack(models)
        self._recorder = Recorder(self._memory, lineage, self._modules.innermost, keep_bytes, stop)

    def __enter__(self) -> OpTrace:
        self._modules.open()
        try:
            self._recorder.__enter__()  # type: ignore[no-untyped-call]
        except BaseException:
            self._modules.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._recorder.__exit__(*exc)  # type: ignore[no-untyped-call]
        finally:
            self._modules.close()

    @property
    def ops(self) -> int:
        """Number of operations traced so far."""
        return len(self._recorder.records)

    @property
    def half_formats(self) -> tuple[str, ...]:
        """Formats of half precision in which anything was computed."""
        formats = {entry.dtype for record in self._recorder.records for entry in record.inputs}
        return tuple(name for name in ("float16", "bfloat16") if getattr(torch, name) in formats)

    @property
    def largest(self) -> dict[str, float]:
        """Largest absolute value of the forward results of each module, for the modules with the largest ones."""
        found: dict[str, float] = {}
        for record in self._recorder.records:
            if record.derivative or record.engine is not None:
                continue
            name = _OUTSIDE if record.module is None else record.module or _WHOLE
            for output in record.outputs:
                low, high = output.scan.low, output.scan.high
                if low is not None and high is not None:
                    found[name] = max(found.get(name, 0.0), abs(low), abs(high))
        return dict(sorted(found.items(), key=lambda item: -item[1])[:_MODULES])

    @property
    def failures(self) -> tuple[str, ...]:
        """Operations that couldn't be looked at (on tensors without memory of their own), and why."""
        return tuple(self._recorder.failures)

    def origin_of(self, *tensors: torch.Tensor, phase: str = "forward") -> Origin | None:
        """Where the first NaN or infinity on the path to ``tensors`` came from; None if they hold none.

        Args:
            tensors: losses, outputs, parameters after an update: anything that the traced operations wrote.
            phase: what ``Origin.phase`` says, unless a derivative made the value, which is always ``backward``.
        """
        with torch.no_grad(), _Untraced():
            start: list[tuple[Region, torch.Tensor]] = []
            for tensor in tensors:
                values = strided(tensor)
                if values is None or not (values.is_floating_point() or values.is_complex()):
                    continue
                kinds = scan(values).kinds
                if kinds is not None:
                    start.append((self._memory.region(values), kinds))
            if not start:
                return None
            found = walk(start, self._recorder.scalars, self._leaves.intended).first()
            return None if found is None else self._origin(found, phase)

    def origin_of_gradient(self, *tensors: torch.Tensor) -> Origin | None:
        """Where the first NaN or infinity on the path to the tensors' ``.grad`` came from; None if they hold none."""
        gradients = [tensor.grad for tensor in tensors if tensor.grad is not None]
        return self.origin_of(*gradients, phase="backward")

    def _origin(self, found: Found, phase: str) -> Origin | None:
        if found.output is None:
            return self._leaf(found, phase)
        record = found.record
        assert record is not None
        output = record.outputs[found.output]
        kinds = output.scan.kinds
        assert kinds is not None
        value = _value(kinds[found.places])
        if not record.derivative:
            inner = record.engine is not None and record.engine == 0
            forward = self._forward(record) if inner else None
            shown = forward or record
            return Origin(
                phase="backward" if record.engine is not None else phase,
                op=user_name(record.op.name),
                value=value,
                chain=shown.chain,
                module=shown.module,
                sample=self._sample(found, record, forward),
                inputs=_summaries(record, found),
                scalars=record.numbers,
                backward_op=self._backward_op(found, record, phase),
                from_infinity=found.from_infinity,
            )
        forward = self._forward(record)
        shown = forward or record
        return Origin(
            phase="backward",
            op=user_name(shown.op.name),
            value=value,
            chain=shown.chain,
            module=shown.module,
            sample=self._sample(found, record, forward),
            inputs=_summaries(forward, found) if forward is not None else _summaries(record, found),
            scalars=shown.numbers,
            backward_op=user_name(record.op.name),
            from_infinity=found.from_infinity,
        )

    def _backward_op(self, found: Found, record: Record, phase: str) -> str | None:
        if record.engine is not None:
            return user_name(record.op.name)
        if phase == "backward" and found.at is not None:
            return user_name(found.at.op.name)
        return None

    def _leaf(self, found: Found, phase: str) -> Origin | None:
        assert found.region is not None
        kind, name = self._leaves.name(found.region)
        if kind == "constant" and self._recorder.failures:
            return None  # an operation that wasn't seen may have written it
        record = found.record
        reader = record
        if record is not None and record.derivative:
            reader = self._forward(record) or record
        sample = None
        if record is not None and self._lineage is not None:
            entry = next((entry for entry in record.inputs if entry.region is found.region), None)
            if entry is not None:
                sample = _smallest(_codes(entry.shadow, found.places))
        kinds = _kinds_of(record, found)
        return Origin(
            phase=phase,
            op=None,
            value=_value(kinds) if kinds is not None else ("inf" if found.infinite else "nan"),
            chain=reader.chain if reader is not None else (),
            module=reader.module if reader is not None else None,
            sample=sample,
            inputs=_summaries(record, found) if record is not None else (),
            leaf=kind,
            leaf_name=name,
        )

    def _forward(self, record: Record) -> Record | None:
        """The forward operation whose derivative ``record`` is a part of."""
        for _ in range(_ORDERS):
            if record.node is None or record.node[2] >= _LAST_NODE:
                return None
            name, thread, sequence = record.node
            if name.endswith("CopySlices"):
                sequence -= 1  # wraps the node of an operation in place on a view, made just before it
            candidates = [
                candidate
                for candidate in self._recorder.by_sequence.get((thread, sequence), [])
                if candidate.time < record.time
            ] or self._elsewhere(name, sequence)
            if not candidates:
                return None
            record = next((candidate for candidate in candidates if _is_node_of(name, candidate)), candidates[0])
            if name.endswith("CopySlices"):  # it may have copied what it was about to overwrite
                record = next((candidate for candidate in candidates if candidate.op.written), record)
            if not record.derivative:
                return record
        return None

    def _elsewhere(self, name: str, sequence: int) -> list[Record]:
        """A node that another thread runs: sequence numbers count per thread, so the name must agree too."""
        return [
            record
            for (_, other), records in self._recorder.by_sequence.items()
            if other == sequence
            for record in records
            if _is_node_of(name, record)
        ]

    def _sample(self, found: Found, record: Record, forward: Record | None) -> int | None:
        assert found.output is not None
        if self._lineage is None:
            return None
        output = record.outputs[found.output]
        codes = _codes(output.shadow, found.places)
        sample = _smallest(codes)
        if sample is not None and _all_samples(output.shadow, codes) and _shared_cause(forward or record):
            return None
        if sample is None and forward is not None:
            for shape, shadow in [
                *((entry.shape, entry.shadow) for entry in forward.outputs),
                *((entry.shape, entry.shadow) for entry in forward.inputs),
            ]:
                if shape == output.shape and shadow is not None:
                    codes = _codes(shadow, found.places)
                    sample = _smallest(codes)
                    if sample is not None:
                        return None if _all_samples(shadow, codes) and len(codes.unique()) > 1 else sample
        return sample


class _Untraced:
    """Analysis isn't part of the trace when it is asked for inside the block."""

    def __enter__(self) -> None:
        self._guard = torch._C._DisableTorchDispatch()

    def __exit__(self, *exc: object) -> None:
        del self._guard


def _is_node_of(node: str, record: Record) -> bool:
    """Whether an autograd node's name (``PowBackward0``) is that of a forward operation (``pow``)."""
    name: str = node.rsplit("::", 1)[-1].rsplit("Backward", 1)[0].lower()
    return bool(name == record.op.name.replace("_", "").lower())


def _value(kinds: torch.Tensor) -> str:
    if bool((kinds == NAN).any()):
        return "nan"
    return "inf" if bool((kinds == INF).any()) else "-inf"


def _kinds_of(record: Record | None, found: Found) -> torch.Tensor | None:
    if record is None:
        return None
    for entry in record.inputs:
        if entry.region is found.region and entry.scan.kinds is not None:
            return entry.scan.kinds[found.places]
    return None


def _codes(shadow: torch.Tensor | None, places: torch.Tensor) -> torch.Tensor:
    if shadow is None:
        return torch.zeros(int(places.sum()), dtype=torch.int32)
    return shadow.expand(places.shape)[places]


def _smallest(codes: torch.Tensor) -> int | None:
    """The smallest sample among the codes, None if one of them isn't certain."""
    if codes.numel() == 0 or bool((codes < SAMPLE).any()):
        return None
    return int(codes.min()) - SAMPLE


def _all_samples(shadow: torch.Tensor | None, codes: torch.Tensor) -> bool:
    """Whether every sample of the tensor went bad, of several."""
    if shadow is None:
        return False
    every = int(shadow[shadow >= SAMPLE].unique().numel())
    return every > 1 and int(codes.unique().numel()) == every


def _shared_cause(record: Record) -> bool:
    """Whether something that isn't a single sample's (a parameter, a statistic) went into the operation."""
    return any(
        entry.dtype.is_floating_point and (entry.shadow is None or bool((entry.shadow < SAMPLE).any()))
        for entry in record.inputs
        if entry.name not in record.op.out_only
    )


def _summaries(record: Record, found: Found) -> tuple[TensorSummary, ...]:
    return tuple(_summary(entry, record, found) for entry in _shown(record))


def _shown(record: Record) -> Iterator[Input]:
    for entry in record.inputs:
        numbers = entry.dtype.is_floating_point or entry.dtype.is_complex or entry.picked is not None
        if numbers and entry.name not in record.op.out_only:
            yield entry


def _summary(entry: Input, record: Record, found: Found) -> TensorSummary:
    nan, inf = count(entry.scan.kinds)
    return TensorSummary(
        shape=entry.shape,
        dtype=str(entry.dtype).removeprefix("torch."),
        low=entry.scan.low,
        high=entry.scan.high,
        nan=nan,
        inf=inf,
        offending=_offending(entry, record, found),
    )


def _offending(entry: Input, record: Record, found: Found) -> float | None:
    """The number at the first of the places that went bad."""
    if not record.op.elementwise or found.output is None:
        return None
    wanted = found.places.reshape(-1).nonzero().flatten()
    if not wanted.numel():
        return None
    if record is found.record:
        if entry.picked is None or record.places is None:
            return None
        at = (record.places == wanted[0]).nonzero().flatten()
        return float(entry.picked[at[0]]) if at.numel() else None
    return _held_number(entry, record, found.places, wanted)


def _held_number(entry: Input, record: Record, places: torch.Tensor, wanted: torch.Tensor) -> float | None:
    """The forward input's number at the place where the backward pass went bad, if it was kept unchanged."""
    held, shape = entry.held, tuple(places.shape)
    if held is None or entry.region is None or held.is_complex():
        return None
    if any(write.time >= record.time for write in entry.region.storage.writes):
        return None
    if not record.outputs or shape not in (record.outputs[0].shape, entry.shape):
        return None
    index: Sequence[torch.Tensor] = torch.unravel_index(wanted[0], shape) if shape else ()
    try:
        return float(held.expand(shape)[tuple(int(i) for i in index)])
    except RuntimeError:
        return None
