"""How much a program gets done per second, and which part of what its device could."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from unstuck.messages import rank_zero_debug

__all__ = ["Throughput", "get_available_flops", "measure_flops"]


class Throughput:
    """Computes rates over the last updates.

    Args:
        available_flops: floating-point operations per second that one device is able to do; None if unknown.
        world_size: number of processes.
        window_size: updates that a rate is computed over, at least 2.
        separator: stands between ``device`` and a rate's name.

    Raises:
        ValueError: a number out of its range.
    """

    def __init__(
        self, available_flops: float | None = None, world_size: int = 1, window_size: int = 100, separator: str = "/"
    ) -> None:
        if world_size < 1 or window_size < 2:
            raise ValueError(
                f"`world_size={world_size}` should be at least 1, and `window_size={window_size}` at least 2."
            )
        self.available_flops = available_flops
        self.world_size = world_size
        self.separator = separator
        self._time: deque[float] = deque(maxlen=window_size)
        self._batches: deque[int] = deque(maxlen=window_size)
        self._samples: deque[int] = deque(maxlen=window_size)
        self._lengths: deque[int] = deque(maxlen=window_size)
        self._flops: deque[float] = deque(maxlen=window_size)

    def update(
        self, *, time: float, batches: int, samples: int, lengths: int | None = None, flops: float | None = None
    ) -> None:
        """Take in the state after some work.

        Args:
            time: seconds since the start.
            batches: batches since the start.
            samples: samples since the start.
            lengths: items (tokens, pixels) since the start; given at every update or at none.
            flops: floating-point operations of this process since the last update.

        Raises:
            ValueError: a number is smaller than at the last update, fewer samples than batches, or fewer items than
                samples.
        """
        if samples < batches or (lengths is not None and lengths < samples):
            raise ValueError(
                f"There can't be fewer samples ({samples}) than batches ({batches}), or items ({lengths}) than samples."
            )
        _append("time", self._time, time, strictly=True)
        _append("batches", self._batches, batches)
        _append("samples", self._samples, samples)
        if lengths is not None:
            _append("lengths", self._lengths, lengths)
            if len(self._lengths) != len(self._samples):
                raise ValueError("`lengths` is to be given at every update, or at none.")
        if flops is not None:
            self._flops.append(flops * self.world_size)

    def compute(self) -> dict[str, float]:
        """Return the totals, and the rates once the window is full.

        Returns:
            ``time``, ``batches``, ``samples``, ``lengths``; of each process ``device/batches_per_sec``,
            ``device/samples_per_sec``, ``device/items_per_sec``, ``device/flops_per_sec`` and ``device/mfu`` (the part
            of ``available_flops`` in use); with several processes also the rates of all together.
        """
        found: dict[str, float] = {
            "time": self._time[-1],
            "batches": self._batches[-1],
            "samples": self._samples[-1],
        }
        if self._lengths:
            found["lengths"] = self._lengths[-1]
        if len(self._time) < self._time_window:
            return found
        elapsed = self._time[-1] - self._time[0]
        rates = {
            "batches_per_sec": (self._batches[-1] - self._batches[0]) / elapsed,
            "samples_per_sec": (self._samples[-1] - self._samples[0]) / elapsed,
        }
        if self._lengths:
            rates["items_per_sec"] = (self._lengths[-1] - self._lengths[0]) / elapsed
        if len(self._flops) == self._time_window:
            rates["flops_per_sec"] = (sum(self._flops) - self._flops[0]) / elapsed / self.world_size
        for name, rate in rates.items():
            found[f"device{self.separator}{name}"] = rate
            if self.world_size > 1:
                found[name] = rate * self.world_size
        if "flops_per_sec" in rates and self.available_flops:
            found[f"device{self.separator}mfu"] = rates["flops_per_sec"] / self.available_flops
        return found

    @property
    def _time_window(self) -> int:
        size = self._time.maxlen
        assert size is not None
        return size

    def reset(self) -> None:
        """Forget everything."""
        for values in (self._time, self._batches, self._samples, self._lengths, self._flops):
            values.clear()


def measure_flops(
    model: nn.Module, forward_fn: Callable[[], Tensor], loss_fn: Callable[[Tensor], Tensor] | None = None
) -> int:
    """Count the floating-point operations of a pass. On the device ``"meta"`` nothing is computed for it.

    Args:
        model: the model.
        forward_fn: calls it and returns its output.
        loss_fn: makes a loss of the output; with it the backward pass is counted too.
    """
    counter = FlopCounterMode(display=False)
    with counter:
        output = forward_fn()
        if loss_fn is not None:
            loss_fn(output).backward()
    return counter.get_total_flops()


# Dense tensor-core peaks by the vendors' data sheets, in 1e12 operations per second. The first name that is part of the
# device's own counts, so longer ones come first.
_PEAKS: dict[str, dict[Any, float]] = {
    "h200": {torch.float64: 67, torch.float32: 67, "tf32": 494.7, torch.bfloat16: 989.4, torch.float16: 989.4},
    "h100 pcie": {torch.float64: 51, torch.float32: 51, "tf32": 378, torch.bfloat16: 756, torch.float16: 756},
    "h100": {torch.float64: 67, torch.float32: 67, "tf32": 494.7, torch.bfloat16: 989.4, torch.float16: 989.4},
    "a100": {torch.float64: 19.5, torch.float32: 19.5, "tf32": 156, torch.bfloat16: 312, torch.float16: 312},
    "a10g": {torch.float32: 31.2, "tf32": 35, torch.bfloat16: 70, torch.float16: 70},
    "a40": {torch.float32: 37.4, "tf32": 74.8, torch.bfloat16: 149.7, torch.float16: 149.7},
    "l40s": {torch.float32: 91.6, "tf32": 183, torch.bfloat16: 362, torch.float16: 362},
    "l4": {torch.float32: 30.3, "tf32": 60, torch.bfloat16: 121, torch.float16: 121},
    "v100": {torch.float64: 7.8, torch.float32: 15.7, torch.float16: 125},
    "t4": {torch.float32: 8.1, torch.float16: 65},
}


def get_available_flops(device: torch.device, dtype: torch.dtype) -> int | None:
    """Return the floating-point operations per second that a device can do at most, None if that isn't known.

    Args:
        device: the device.
        dtype: in which the work is done.
    """
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device).lower()
    peaks = next((peaks for chip, peaks in _PEAKS.items() if all(part in name for part in chip.split())), {})
    key: Any = dtype
    if dtype is torch.float32 and torch.get_float32_matmul_precision() != "highest" and "tf32" in peaks:
        key = "tf32"
    if key not in peaks:
        rank_zero_debug(f"How many operations in {dtype} {name!r} can do per second isn't known.")
        return None
    return int(peaks[key] * 1e12)


def _append(name: str, values: deque[Any], value: float, strictly: bool = False) -> None:
    if values and (value < values[-1] or (strictly and value == values[-1])):
        raise ValueError(f"`{name}` should grow from update to update, but {value} comes after {values[-1]}.")
    values.append(value)
