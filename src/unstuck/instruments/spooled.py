"""Copies of tensors that may be wanted much later: in memory where they are few, else in a file that nobody sees."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Sequence
from typing import IO

import torch

__all__ = ["SpooledTensors"]

_IN_MEMORY = 8 * 2**20
"""Bytes that are kept in memory: less than one part in twenty of what any PyTorch program takes."""


class SpooledTensors:
    """Copies of tensors as they are now.

    The file has no name, so that it is gone with the process, however that ends.

    Args:
        tensors: what to copy; their values, without gradients.

    Raises:
        OSError: there is no room for the file.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._copies: tuple[torch.Tensor, ...] | None = None
        self._file: IO[bytes] | None = None
        if sum(item.numel() * item.element_size() for item in tensors) <= _IN_MEMORY:
            self._copies = tuple(item.detach().clone() for item in tensors)
            return
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the copies
        weakref.finalize(self, self._file.close)
        torch.save([_alone(item) for item in tensors], self._file)

    def take(self) -> tuple[torch.Tensor, ...]:
        """The copies; nothing is kept here afterwards."""
        copies, self._copies = self._copies, None
        file, self._file = self._file, None
        if file is None:
            return copies or ()
        with file:
            file.seek(0)
            return tuple(torch.load(file, weights_only=True))

    def close(self) -> None:
        """Let go of the copies."""
        self._copies = None
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """The values, without those that lie beside them in the same memory, which would be written as well."""
    values = tensor.detach()
    whole = values.untyped_storage().nbytes() == values.numel() * values.element_size()
    return values if whole else values.clone()
