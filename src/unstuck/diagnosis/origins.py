"""What an origin's numbers say: conditions on them, and how they are told in a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable

from unstuck.record.origin import Origin, TensorSummary

__all__ = [
    "Condition",
    "below_zero",
    "clamped_to_one",
    "divides_by_zero",
    "divisor",
    "dtype_of",
    "end_of_format",
    "exponent_of",
    "has",
    "is_empty",
    "is_half",
    "is_zero",
    "largest",
    "met",
    "number",
    "overflowed",
    "range_of",
    "range_of_first",
    "shape_of",
    "spread",
    "subject",
    "zero_by_zero",
]

Condition = Callable[[Origin], bool]

_LARGEST = {"float16": 65504.0, "bfloat16": 3.39e38, "float32": 3.4e38, "float64": 1.8e308}


def number(value: float) -> str:
    """A number as it is told."""
    return f"{value:.4g}"


def _offending(origin: Origin, place: int = 0) -> float | None:
    return origin.inputs[place].offending if place < len(origin.inputs) else None


def _scalar(origin: Origin) -> float | None:
    return origin.scalars[0] if origin.scalars else None


def range_of(item: TensorSummary) -> str:
    """``0 to 1``, or the one number that a tensor holds."""
    if item.low is None or item.high is None:
        return "no finite number"
    if item.low == item.high:
        return number(item.low)
    return f"{number(item.low)} to {number(item.high)}"


def spread(item: TensorSummary) -> str:
    """The same as the end of a sentence that begins with the tensor."""
    if item.low is None or item.high is None:
        return "holds no finite number"
    if item.low == item.high:
        return f"is {number(item.low)} everywhere" if math.prod(item.shape) > 1 else f"is {number(item.low)}"
    return f"goes from {range_of(item)}"


def met(origin: Origin, place: int = 0) -> str:
    """``0``, or the range where the number itself isn't known."""
    value = _offending(origin, place)
    if value is not None:
        return number(value)
    if place < len(origin.inputs):
        item = origin.inputs[place]
        return range_of(item) if item.low is None or item.low == item.high else f"numbers from {range_of(item)}"
    return "its input"


def _lowest(origin: Origin, place: int = 0) -> float:
    value = _offending(origin, place)
    if value is not None:
        return value
    low = origin.inputs[place].low if place < len(origin.inputs) else None
    return math.inf if low is None else low


def largest(origin: Origin) -> float:
    """The largest finite magnitude among the inputs, 0 without any."""
    sizes = [
        max(abs(item.low), abs(item.high)) for item in origin.inputs if item.low is not None and item.high is not None
    ]
    return max(sizes, default=0.0)


def dtype_of(origin: Origin) -> str:
    """The number format of the first input."""
    return origin.inputs[0].dtype if origin.inputs else "float32"


def is_half(origin: Origin) -> bool:
    """Whether an input has 16 bits."""
    return any(item.dtype in ("float16", "bfloat16") for item in origin.inputs)


def is_zero(place: int) -> Condition:
    """The condition that the input at a place held 0, or may have, where the value was made."""

    def condition(origin: Origin) -> bool:
        value = _offending(origin, place)
        if value is not None:
            return value == 0
        if place >= len(origin.inputs):
            return False
        item = origin.inputs[place]
        return item.low is not None and item.high is not None and item.low <= 0 <= item.high

    return condition


def divisor(origin: Origin) -> int:
    """The place of the input that is divided by."""
    return len(origin.inputs) - 1


def divides_by_zero(origin: Origin) -> bool:
    """Whether what is divided by is, or may be, 0."""
    if len(origin.inputs) < 2:
        return bool(origin.scalars) and origin.scalars[-1] == 0
    return is_zero(divisor(origin))(origin)


def zero_by_zero(origin: Origin) -> bool:
    """Whether 0 was divided by 0."""
    return divides_by_zero(origin) and origin.value == "nan" and not origin.from_infinity


def has(origin: Origin, what: str) -> bool:
    """Whether an input holds ``nan`` or ``inf``."""
    return any(getattr(item, what) > 0 for item in origin.inputs)


def below_zero(origin: Origin) -> bool:
    """Whether the first input is, or may be, negative where the value was made."""
    return _lowest(origin) < 0


def is_empty(origin: Origin) -> bool:
    """Whether the first input has no element."""
    return bool(origin.inputs) and 0 in origin.inputs[0].shape


def overflowed(origin: Origin) -> bool:
    """Whether infinity came out of finite inputs."""
    return origin.value in ("inf", "-inf") and not has(origin, "inf")


def clamped_to_one(origin: Origin) -> bool:
    """1 - p is 0 although p was probably clamped: an eps below the resolution of the number format."""
    return _offending(origin) == 0 and bool(origin.inputs) and origin.inputs[0].low == 0


def end_of_format(origin: Origin) -> str:
    """Where the number format of the first input ends."""
    limit = _LARGEST.get(dtype_of(origin), 3.4e38)
    return f"{dtype_of(origin)} ends at {number(limit)}"


def subject(origin: Origin) -> str:
    """The operation, or its derivative, as the subject of a sentence."""
    return f"the derivative of {origin.op}" if origin.phase == "backward" else str(origin.op)


def exponent_of(origin: Origin) -> str:
    """The power, to follow its base."""
    exponent = _scalar(origin)
    if exponent is None:
        exponent = _offending(origin, 1)
    return " to a power" if exponent is None else f" to the power {number(exponent)}"


def range_of_first(origin: Origin) -> str:
    """The range of the first input."""
    return range_of(origin.inputs[0]) if origin.inputs else "unknown"


def shape_of(origin: Origin) -> str:
    """The sizes of the first input."""
    return "x".join(map(str, origin.inputs[0].shape)) if origin.inputs and origin.inputs[0].shape else "1"
