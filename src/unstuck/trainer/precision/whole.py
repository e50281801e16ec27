"""One format for parameters, batches and arithmetic: "64-true", "bf16-true", "16-true"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from unstuck.trainer.precision.base import Precision, Step
from unstuck.trainer.precision.containers import cast_floats

__all__ = ["DoublePrecision", "HalfPrecision"]


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """New floating-point tensors have ``dtype`` inside."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _WholePrecision(Precision):
    """Casts module and batches to one format, which is also the default format while the user's step runs."""

    converts_batches = True
    dtype: torch.dtype

    def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
        return module.to(self.dtype)

    def convert_batch(self, batch: Any) -> Any:
        return cast_floats(batch, self.dtype)

    def wrap_step(self, step: Step) -> Step:
        dtype = self.dtype

        def typed_step(*args: Any) -> Any:
            with _default_dtype(dtype):
                return step(*args)

        return typed_step

    def init_context(self) -> AbstractContextManager[Any]:
        return _default_dtype(self.dtype)


class DoublePrecision(_WholePrecision):
    """64-bit floats throughout ("64-true")."""

    precision = "64-true"
    dtype = torch.float64

    def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
        return module.double()


class HalfPrecision(_WholePrecision):
    """16-bit floats throughout: "bf16-true" or "16-true".

    Args:
        precision: "bf16-true" or "16-true".
    """

    def __init__(self, precision: str = "16-true") -> None:
        self.precision = precision
        self.dtype = torch.bfloat16 if precision == "bf16-true" else torch.float16
