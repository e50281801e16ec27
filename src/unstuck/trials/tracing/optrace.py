"""The tracer's face: run one step inside it, then ask where a non-finite value came from."""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch

from unstuck.record.origin import Origin

__all__ = ["OpTrace"]


class OpTrace:
    """Traces every ATen operation, forward and backward, that runs inside the ``with`` block.

    ::

        trace = OpTrace(models={"model": model}, batch=batch, batch_size=32)
        with trace:
            loss = step()
            loss.backward()
        origin = trace.origin_of(loss)

    Results, gradients and random states are those of a run without the trace. Compiled models must run eagerly
    inside (``torch.compiler.set_stance("force_eager")``).

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
        raise NotImplementedError

    def __enter__(self) -> OpTrace:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError

    @property
    def ops(self) -> int:
        """Number of operations traced so far."""
        raise NotImplementedError

    def origin_of(self, tensor: torch.Tensor, phase: str = "forward") -> Origin | None:
        """Where the NaN or infinity in ``tensor`` came from; None if it holds none."""
        raise NotImplementedError

    def origin_of_gradient(self, *tensors: torch.Tensor) -> Origin | None:
        """Where the first NaN or infinity on the path to the ``.grad`` of ``tensors`` came from; None if there is none."""
        raise NotImplementedError
