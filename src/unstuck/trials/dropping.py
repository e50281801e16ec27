"""Dropping an optimiser step that isn't finite, so that weights, buffers, optimiser state and scaler stay as they were.

A step is dropped by taking the gradients out of the optimiser's sight while it acts: an optimiser leaves alone what has
no gradient, its state and step count included. Where fused optimisers allow it, the decision is made on the device
(``found_inf``, as a loss scaler does), so that nothing waits for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

__all__ = ["LIMIT", "WAITS", "DroppedBatch", "DroppedTooOftenError", "StepDropper", "decides_on_device", "listed"]

LIMIT = 10
"""Steps in a row after which dropping them helps no more."""

WAITS = (
    "skip-step looks at every gradient before every step, which makes the device wait; fused optimisers decide on it "
    "themselves (fused=True)"
)
"""What has to be said where the decision isn't made on the device."""

_READ_INTERVAL = 16
"""Steps between two looks at what was decided on the device."""


_LISTED, _INDICES = 20, 8
"""Batches of dropped steps that are kept for a list of them, and indices of each that it shows."""


@dataclass(frozen=True)
class DroppedBatch:
    """The last batch of a dropped step.

    Attributes:
        batch: its index within the epoch, None where it is not known.
        indices: the dataset's indices of its samples, None where they are not known.
        sample: of the batch, the first one that holds NaN or infinity itself; None if there is none.
        epoch: None where it is not known.
    """

    batch: int | None
    indices: Sequence[int] | None = None
    sample: int | None = None
    epoch: int | None = None

    def __str__(self) -> str:
        place = [] if self.epoch is None else [f"epoch {self.epoch}"]
        place.append("an unknown batch" if self.batch is None else f"batch {self.batch}")
        if self.indices and self.sample is not None and self.sample < len(self.indices):
            place.append(f"(dataset index {self.indices[self.sample]})")
        elif self.indices:
            more = ", ..." if len(self.indices) > _INDICES else ""
            place.append(f"(dataset indices {', '.join(map(str, self.indices[:_INDICES]))}{more})")
        elif self.sample is not None:
            place.append(f"(sample {self.sample})")
        return " ".join(place)


def listed(dropper: StepDropper) -> str:
    """The batches of the steps that were dropped, as far as they were kept; empty if none is known."""
    if all(item.batch is None for item in dropper.batches):
        return ""
    more = dropper.dropped - len(dropper.batches)
    return ", ".join(map(str, dropper.batches)) + (f" and {more} more" if more > 0 else "")


class DroppedTooOftenError(Exception):
    """So many steps in a row were dropped that the run gets nowhere."""


@dataclass
class StepDropper:
    """Drops steps and counts them.

    Attributes:
        limit: steps in a row after which :class:`DroppedTooOftenError` is raised.
        dropped: steps that were dropped so far; those decided on the device as far as they were read.
        in_row: of these, the last ones without a step between.
        batches: of the first dropped steps.
    """

    limit: int = LIMIT
    dropped: int = 0
    in_row: int = 0
    batches: list[DroppedBatch] = field(default_factory=list)
    _buffers: list[torch.Tensor] = field(default_factory=list)
    _copies: list[torch.Tensor] = field(default_factory=list)
    _hidden: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    _optimizer: torch.optim.Optimizer | None = None
    _flag: torch.Tensor | None = None
    _flags: list[tuple[torch.Tensor, DroppedBatch | None]] = field(default_factory=list)
    _batch: DroppedBatch | None = None

    @property
    def dropping(self) -> torch.optim.Optimizer | None:
        """The optimiser whose present step is being dropped."""
        return self._optimizer

    def remember(self, modules: Iterable[torch.nn.Module]) -> None:
        """Buffers (such as running statistics) as they are before the first batch of a step."""
        buffers = list({id(item): item for module in modules for item in module.buffers()}.values())
        if [id(item) for item in buffers] != [id(item) for item in self._buffers]:
            self._buffers, self._copies = buffers, [item.detach().clone() for item in buffers]
        else:
            self.remember_again()

    def remember_again(self) -> None:
        """The same buffers as they are now."""
        with torch.no_grad():
            for copy, buffer in zip(self._copies, self._buffers, strict=True):
                copy.copy_(buffer)

    def drop(self, optimizer: torch.optim.Optimizer, batch: DroppedBatch | None = None) -> None:
        """Make the step that ``optimizer`` is about to take do nothing; :meth:`finish` has to follow it.

        Args:
            optimizer: whose step.
            batch: that made it.

        Raises:
            DroppedTooOftenError: it is one too many; then nothing is changed.
        """
        self.dropped += 1
        self.in_row += 1
        self._keep(batch)
        if self.in_row > self.limit:
            raise DroppedTooOftenError(f"{self.limit} steps in a row weren't finite and were dropped")
        self._optimizer = optimizer
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._hidden.append((parameter, parameter.grad))
                    parameter.grad = None
        with torch.no_grad():
            for buffer, copy in zip(self._buffers, self._copies, strict=True):
                buffer.copy_(copy)

    def finish(self) -> bool:
        """The step is over; gradients are back. Returns whether it was dropped."""
        dropped, self._optimizer = self._optimizer is not None, None
        for parameter, gradient in self._hidden:
            if parameter.grad is None:
                parameter.grad = gradient
        self._hidden.clear()
        if not dropped:
            self.in_row = 0
        return dropped

    def _keep(self, batch: DroppedBatch | None) -> None:
        if batch is not None and len(self.batches) < _LISTED:
            self.batches.append(batch)

    # -- decided on the device ---------------------------------------------------------------------------------------

    def decide_on_device(self, optimizer: torch.optim.Optimizer, batch: DroppedBatch | None = None) -> None:
        """Let a fused optimiser drop its step by itself if a gradient isn't finite; :meth:`finish_on_device` follows.

        Nothing waits for the device: what was decided is read some steps later.

        Args:
            optimizer: whose step.
            batch: that makes it.
        """
        gradients = [item.grad for group in optimizer.param_groups for item in group["params"] if item.grad is not None]
        if not gradients:
            return
        largest = torch.stack([norm.float() for norm in torch._foreach_norm(gradients, float("inf"))]).max()
        self._flag = (~torch.isfinite(largest)).to(torch.float32)
        self._optimizer, self._batch = optimizer, batch
        optimizer.found_inf = self._flag  # type: ignore[attr-defined]
        optimizer.grad_scale = None  # type: ignore[attr-defined]

    def finish_on_device(self) -> None:
        """The step is over.

        Raises:
            DroppedTooOftenError: too many of the last steps were dropped.
        """
        optimizer, flag = self._optimizer, self._flag
        if optimizer is None or flag is None:
            return  # the decision was made here
        self._optimizer = self._flag = None
        del optimizer.found_inf, optimizer.grad_scale  # type: ignore[attr-defined]
        with torch.no_grad():
            bad = flag.bool()
            for buffer, copy in zip(self._buffers, self._copies, strict=True):
                buffer.copy_(torch.where(bad.to(buffer.device), copy, buffer))
        self._flags.append((flag, self._batch))
        if len(self._flags) >= _READ_INTERVAL:
            self.read_flags()

    def read_flags(self) -> list[int]:
        """Wait for the device and count what was decided there since; returns which of these steps were dropped.

        Raises:
            DroppedTooOftenError: too many of them in a row.
        """
        flags, self._flags = self._flags, []
        if not flags:
            return []
        decided = torch.stack([flag for flag, _ in flags]).tolist()
        for bad, (_, batch) in zip(decided, flags, strict=True):
            self.in_row = self.in_row + 1 if bad else 0
            self.dropped += bool(bad)
            self._keep(batch if bad else None)
            if self.in_row > self.limit:
                raise DroppedTooOftenError(f"{self.limit} steps in a row weren't finite and were dropped")
        return [index for index, bad in enumerate(decided) if bad]


def decides_on_device(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimiser can drop its own step: its kernels take ``found_inf``."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False)) and (
        "grad_scaler" not in inspect.signature(type(optimizer).step).parameters
    )
