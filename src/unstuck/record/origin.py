"""Where a non-finite value came from, as plain data: what a trace of one step has shown."""

from __future__ import annotations

from dataclasses import dataclass, field

from unstuck.places import Frame

__all__ = ["Origin", "TensorSummary"]


@dataclass(frozen=True)
class TensorSummary:
    """Statistics of one tensor that went into an operation: no samples, only its range.

    Attributes:
        shape: its sizes.
        dtype: name such as ``float32``.
        low: smallest finite value, None if there is none.
        high: largest finite value, None if there is none.
        nan: number of NaN.
        inf: number of infinities of either sign.
        offending: the number at the position from which the non-finite result came, where the op is elementwise.
    """

    shape: tuple[int, ...]
    dtype: str
    low: float | None
    high: float | None
    nan: int = 0
    inf: int = 0
    offending: float | None = None


@dataclass(frozen=True)
class Origin:
    """The first operation on the path to an incident that made NaN or infinity.

    Attributes:
        phase: ``forward`` or ``backward``: when the value turned non-finite.
        op: ATen base name; for ``backward`` that of the forward operation whose derivative it was.
        value: what came out, ``nan``, ``inf`` or ``-inf``.
        chain: the user's lines down to the one that called the op, outermost first.
        module: dotted path of the innermost module whose forward called the op, "" for the root model, None outside.
        sample: index within the batch, None where it isn't certain.
        inputs: statistics of the op's tensor inputs (backward: of the forward op's, where they are known).
        scalars: the op's scalar arguments, in order.
        leaf: None when an op made the value; else the kind of the tensor that already held it before the step:
            ``batch``, ``parameter``, ``buffer`` or ``constant``.
        leaf_name: name of that parameter or buffer, or the batch's key path.
        backward_op: name of the op inside the derivative, for ``backward``.
        from_infinity: True when NaN came out of infinities (``inf - inf``, ``0 * inf``), not out of finite inputs.
    """

    phase: str
    op: str | None
    value: str
    chain: tuple[Frame, ...] = ()
    module: str | None = None
    sample: int | None = None
    inputs: tuple[TensorSummary, ...] = ()
    scalars: tuple[float, ...] = field(default=())
    leaf: str | None = None
    leaf_name: str | None = None
    backward_op: str | None = None
    from_infinity: bool = False
