"""What to say of a non-finite value's origin: its cause in one sentence, with the numbers, and one remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from unstuck.diagnosis.origins import (
    Condition,
    below_zero,
    clamped_to_one,
    divides_by_zero,
    divisor,
    dtype_of,
    end_of_format,
    exponent_of,
    has,
    is_empty,
    is_half,
    is_zero,
    largest,
    met,
    number,
    overflowed,
    range_of,
    range_of_first,
    shape_of,
    spread,
    subject,
    zero_by_zero,
)
from unstuck.record.origin import Origin

__all__ = ["Advice", "advise"]


@dataclass(frozen=True)
class Advice:
    """The ``summary`` says what happened, the ``remedy`` what to change."""

    summary: str
    remedy: str


Words = str | Callable[[Origin], str]


@dataclass(frozen=True)
class Row:
    """One row of the table: for which operations, in which pass (None: both), under which condition, and the words."""

    ops: frozenset[str]
    phase: str | None
    when: Condition
    summary: Words
    remedy: Words


def advise(origin: Origin) -> Advice:
    """The words for an origin: those of the first row of the table that fits."""
    if origin.leaf is not None:
        return _leaf(origin)
    for row in _TABLE:
        if row.ops and origin.op not in row.ops:
            continue
        if row.phase in (None, origin.phase) and row.when(origin):
            return Advice(_say(row.summary, origin), _say(row.remedy, origin))
    return Advice(_generic(origin), "look at the inputs of this line at this step; keep them in the operation's domain")


def _say(words: Words, origin: Origin) -> str:
    return words if isinstance(words, str) else words(origin)


def _always(origin: Origin) -> bool:
    return True


def _generic(origin: Origin) -> str:
    ranges = "; ".join(range_of(item) for item in origin.inputs[:3])
    seen = f" (inputs: {ranges})" if ranges else ""
    if origin.phase == "backward":
        return f"the derivative of {origin.op} gives {origin.value}{seen}"
    return f"{origin.op} gives {origin.value}{seen}"


def _leaf(origin: Origin) -> Advice:
    name = f" {origin.leaf_name}" if origin.leaf_name else ""
    if origin.leaf == "batch":
        return Advice(
            f"the batch{name} already holds {origin.value}",
            "clean the data set: drop the sample, or fill the missing value and mask it out of the loss",
        )
    if origin.leaf == "parameter":
        return Advice(
            f"the parameter{name} held {origin.value} before this step",
            "look at the step before: its gradient or update made the weight non-finite (or the checkpoint holds it)",
        )
    if origin.leaf in ("buffer", "constant") and origin.value != "nan":
        return Advice(
            f"{origin.value} in {'the buffer' + name if origin.leaf == 'buffer' else 'a constant'} reaches the loss: "
            "what it masks is also chosen",
            "make sure that a target (an action, a label) is never masked, or mask with a large finite number",
        )
    if origin.leaf == "buffer":
        return Advice(
            f"the buffer{name} held {origin.value} before this step",
            "find where the buffer is updated; running statistics of a non-finite batch stay non-finite",
        )
    return Advice(
        f"a tensor that this step didn't compute holds {origin.value}",
        "look at where it is made: a constant, or a state carried over from an earlier step",
    )


def _ops(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _derivative(at: str) -> Callable[[Origin], str]:
    return lambda origin: f"{origin.op} met {met(origin)}, where its derivative isn't finite{at}"


_LOGS = _ops("log log2 log10")
_EPS = "add a small eps inside (for example {0}(x + 1e-8)), or clamp the argument from below"

_TABLE: tuple[Row, ...] = (
    # NaN out of infinities.
    Row(
        _ops("softmax log_softmax scaled_dot_product_attention"),
        None,
        lambda origin: origin.from_infinity or has(origin, "inf"),
        lambda origin: f"{origin.op} over a row that is all -inf: every entry is masked, so it divides 0 by 0",
        "leave at least one entry of each row unmasked, mask with a large negative finite number "
        "(torch.finfo(x.dtype).min), or set fully masked rows to 0 before they are used",
    ),
    Row(
        _ops("logsumexp logcumsumexp logaddexp"),
        None,
        lambda origin: origin.from_infinity or has(origin, "inf"),
        lambda origin: (
            f"{origin.op} over only -inf: the value is -inf, its derivative is exp(-inf - -inf) = NaN"
            if origin.phase == "backward"
            else f"{origin.op} over infinities gives {origin.value}"
        ),
        "use a very low finite score (-1e4, or torch.finfo(x.dtype).min / 2) instead of -inf for what is forbidden",
    ),
    Row(
        _ops("sub add rsub"),
        None,
        lambda origin: origin.from_infinity,
        "inf - inf is NaN: both sides are infinite at the same place",
        "mask with a large finite number instead of infinity, or take masked places out before the difference",
    ),
    Row(
        _ops("mul addcmul lerp mm bmm addmm matmul dot mv baddbmm"),
        None,
        lambda origin: origin.from_infinity,
        "0 * inf is NaN: a zero weight or mask doesn't remove an infinite value, it turns it into NaN",
        "select with torch.where(mask, x, 0) instead of multiplying with a 0/1 mask, or keep x finite",
    ),
    Row(
        _ops("sum mean nansum cumsum"),
        None,
        lambda origin: origin.from_infinity,
        lambda origin: f"{origin.op} over both inf and -inf is NaN",
        "take infinite places out before reducing (torch.where or a finite mask value)",
    ),
    Row(
        _ops("div"),
        None,
        lambda origin: origin.from_infinity,
        "inf / inf is NaN: numerator and divisor are both infinite",
        "keep both finite: subtract the maximum before exp, or work with logarithms",
    ),
    # Logarithms.
    Row(
        _LOGS,
        "forward",
        clamped_to_one,
        lambda origin: f"{origin.op} of 0 is -inf (its argument {spread(origin.inputs[0])})",
        lambda origin: (
            "clamp the argument away from 0 by an eps that the format can hold next to 1 "
            f"({'1e-2 in bfloat16' if is_half(origin) else '1e-6 in float32'}), or use "
            "the stable form: log_softmax/logsumexp, binary_cross_entropy_with_logits, logsigmoid"
        ),
    ),
    Row(
        _LOGS | {"log1p", "xlogy", "special_xlog1py", "special_entr"},
        "forward",
        lambda origin: below_zero(origin) and origin.value == "nan",
        lambda origin: f"{origin.op} of a negative number ({met(origin)}) is NaN",
        "keep the argument positive: softplus or exp for what must be positive, or clamp(min=eps)",
    ),
    Row(
        _LOGS,
        "forward",
        _always,
        lambda origin: f"{origin.op} of {met(origin)} is {origin.value}",
        "clamp the argument (x.clamp(min=1e-6)), or work with logarithms from the start: log_softmax, logsumexp, "
        "logsigmoid",
    ),
    Row(
        _LOGS | {"log1p", "xlogy", "special_xlog1py", "special_entr"},
        "backward",
        _always,
        lambda origin: (
            f"{origin.op} met {met(origin)}: its derivative 1/x isn't finite there, and a mask after it "
            "(where, masked_fill, * 0) doesn't remove that from the gradient"
        ),
        "make the argument safe before the logarithm: torch.log(torch.where(mask, x, 1.0)), then mask the result",
    ),
    Row(
        _ops("log1p"),
        "forward",
        _always,
        lambda origin: f"log1p of {met(origin)} is {origin.value}: it needs more than -1",
        "clamp the argument above -1 (x.clamp(min=-1 + 1e-6))",
    ),
    Row(
        _ops("xlogy special_xlog1py special_entr"),
        "forward",
        _always,
        lambda origin: f"{origin.op} takes the logarithm of {met(origin, divisor(origin))}",
        "clamp the probability inside the logarithm from below (1e-8)",
    ),
    Row(
        _ops("logit"),
        None,
        _always,
        lambda origin: f"logit of {met(origin)} isn't finite: it needs a number between 0 and 1, borders excluded",
        "pass eps (torch.logit(p, eps=1e-6)), or keep the logits and never go through probabilities",
    ),
    Row(
        _ops("binary_cross_entropy"),
        None,
        _always,
        lambda origin: f"binary_cross_entropy gives {origin.value} on probabilities of {met(origin)}",
        "use binary_cross_entropy_with_logits on the raw scores",
    ),
    # Roots and powers.
    Row(
        _ops("sqrt"),
        "forward",
        _always,
        lambda origin: f"sqrt of a negative number ({met(origin)}) is NaN",
        "clamp to 0 before the root (x.clamp(min=0)); a difference such as E[x^2] - E[x]^2 can round below 0",
    ),
    Row(
        _ops("sqrt rsqrt"),
        "backward",
        below_zero,
        lambda origin: (
            f"{origin.op} of a negative number ({met(origin)}) is NaN, and a mask after it doesn't remove that from "
            "the gradient"
        ),
        "make the argument safe before the root: torch.sqrt(torch.where(mask, x, 1.0)), then mask the result",
    ),
    Row(
        _ops("sqrt"),
        "backward",
        _always,
        _derivative(" (1 / (2 * sqrt(x)))"),
        _EPS.format("torch.sqrt"),
    ),
    Row(
        _ops("rsqrt"),
        None,
        _always,
        lambda origin: f"rsqrt of {met(origin)} isn't finite",
        _EPS.format("torch.rsqrt"),
    ),
    Row(
        _ops("pow float_power"),
        "forward",
        lambda origin: overflowed(origin) and not is_zero(0)(origin) and largest(origin) > 1,
        lambda origin: f"pow overflows at {met(origin)}{exponent_of(origin)}",
        "bound the base first (clamp, normalise), or compute in float32 or with logarithms",
    ),
    Row(
        _ops("pow float_power"),
        "forward",
        below_zero,
        lambda origin: f"a negative number ({met(origin)}){exponent_of(origin)} is NaN: the power isn't an integer",
        "take the power of x.abs() or x.clamp(min=0), with the sign put back if it matters",
    ),
    Row(
        _ops("pow float_power"),
        "forward",
        _always,
        lambda origin: f"{met(origin)}{exponent_of(origin)} is {origin.value}",
        "clamp the base away from 0 (x.clamp(min=1e-6)) before a negative power",
    ),
    Row(
        _ops("pow float_power"),
        "backward",
        _always,
        lambda origin: (
            f"pow met {met(origin)}{exponent_of(origin)}: its derivative is infinite at 0 for a power below 1"
        ),
        "clamp the base away from 0 before the power (x.clamp(min=1e-6)), or use a power of at least 1",
    ),
    Row(
        _ops("norm linalg_vector_norm"),
        "backward",
        _always,
        lambda origin: f"the norm of a zero vector has no derivative (values {range_of_first(origin)})",
        "take the root with an eps inside: (x.pow(2).sum(dim) + 1e-12).sqrt()",
    ),
    Row(
        _ops("norm linalg_vector_norm linalg_matrix_norm"),
        "forward",
        _always,
        lambda origin: f"the norm overflows: squares of up to {number(largest(origin))} ({end_of_format(origin)})",
        "scale the vector down before the norm (divide by its largest entry), or take it in float32",
    ),
    # Divisions.
    Row(
        _ops("div"),
        "forward",
        lambda origin: zero_by_zero(origin) and bool(origin.inputs) and not origin.inputs[-1].shape,
        "0 / 0: the mean over nothing (the count that it divides by is 0)",
        "guard the count (total / count.clamp(min=1)), or skip batches in which nothing is counted",
    ),
    Row(
        _ops("div"),
        "forward",
        zero_by_zero,
        lambda origin: (
            "0 / 0: normalising a zero vector, or a ratio of nothing"
            + (" (the eps added to the divisor vanishes in half precision)" if is_half(origin) else "")
        ),
        lambda origin: (
            "add an eps to the divisor that its format can hold "
            f"({'1e-3, or divide in float32' if is_half(origin) else '1e-8'}): x / (norm + eps), F.normalize"
        ),
    ),
    Row(
        _ops("div addcdiv"),
        "forward",
        divides_by_zero,
        lambda origin: f"division by 0 gives {origin.value}",
        "add a small eps to the divisor, or clamp it away from 0 (d.clamp(min=1e-8))",
    ),
    Row(
        _ops("div"),
        "forward",
        _always,
        lambda origin: f"the quotient overflows: it divides by numbers as small as {met(origin, divisor(origin))}",
        "clamp the divisor away from 0 (d.clamp(min=1e-6))",
    ),
    Row(
        _ops("div addcdiv"),
        "backward",
        _always,
        lambda origin: (
            f"the derivative of a division by {met(origin, divisor(origin))} isn't finite"
            + ("; in half precision an eps of 1e-8 is 0" if is_half(origin) else "")
        ),
        lambda origin: (
            "make the divisor safe before the division (torch.where(d == 0, 1.0, d)); masking the result afterwards "
            "doesn't help the gradient" + ("; divide in float32" if is_half(origin) else "")
        ),
    ),
    Row(
        _ops("reciprocal"),
        None,
        _always,
        lambda origin: f"1 / x at {met(origin)} isn't finite",
        "add a small eps to the divisor, or make it safe first: 1 / torch.where(d == 0, 1.0, d)",
    ),
    Row(
        _ops("remainder fmod"),
        None,
        _always,
        lambda origin: f"{origin.op} by 0 is NaN",
        "keep the divisor away from 0",
    ),
    # Exponentials.
    Row(
        _ops("exp exp2 expm1 sinh cosh"),
        "forward",
        _always,
        lambda origin: f"{origin.op}({met(origin)}) overflows ({end_of_format(origin)})",
        "bound the argument (clamp(max=30 or less in half precision)), subtract the row's maximum before exp, or use "
        "softplus, log_softmax or logsumexp",
    ),
    Row(
        _ops("exp exp2 expm1 sinh cosh"),
        "backward",
        _always,
        lambda origin: (
            f"{origin.op}({met(origin)}) overflows, and where its result is masked out the gradient is 0 * inf = NaN"
        ),
        "bound the argument before the exponential: torch.exp(torch.where(mask, x, 0)) or x.clamp(max=...)",
    ),
    # Inverse functions at their borders.
    Row(
        _ops("acos asin"),
        "forward",
        _always,
        lambda origin: f"{origin.op} of {met(origin)}: outside -1..1, by rounding or by scale",
        "clamp inside (x.clamp(-1 + 1e-6, 1 - 1e-6)), or use atan2 of cross and dot product for an angle",
    ),
    Row(
        _ops("acos asin"),
        "backward",
        _always,
        _derivative(" (1 / sqrt(1 - x^2) at the border)"),
        "clamp strictly inside (x.clamp(-1 + 1e-6, 1 - 1e-6)), or use atan2 of cross and dot product for an angle",
    ),
    Row(
        _ops("atanh acosh"),
        None,
        _always,
        lambda origin: f"{origin.op} of {met(origin)}: at or beyond the border of its domain",
        lambda origin: (
            "clamp strictly inside (x.clamp(-1 + 1e-6, 1 - 1e-6))"
            if origin.op == "atanh"
            else "clamp strictly above 1 (x.clamp(min=1 + 1e-6))"
        ),
    ),
    Row(
        _ops("erfinv special_ndtri"),
        None,
        _always,
        lambda origin: f"{origin.op} of {met(origin)}: at or beyond the border of its domain",
        "clamp strictly inside the domain by an eps that the format can hold next to 1",
    ),
    Row(
        _ops("atan2"),
        None,
        _always,
        "atan2(0, 0): its derivative divides by x^2 + y^2 = 0",
        "keep one argument away from 0: torch.atan2(y, torch.where((x == 0) & (y == 0), 1e-6, x))",
    ),
    Row(
        _ops("tan"),
        None,
        _always,
        lambda origin: f"tan of {met(origin)} isn't finite",
        "keep the angle away from odd multiples of pi/2, or use sin and cos",
    ),
    Row(
        _ops("lgamma digamma polygamma mvlgamma"),
        None,
        _always,
        lambda origin: f"{origin.op} has a pole at 0 and at negative integers; it met {met(origin)}",
        "keep the argument positive: softplus(x) + 1e-4 for a concentration or a count",
    ),
    # Statistics.
    Row(
        _ops("std var std_mean var_mean"),
        "forward",
        lambda origin: origin.value == "nan" and not has(origin, "inf"),
        lambda origin: (
            f"{origin.op} of a single element (shape {shape_of(origin)}) is 0 / 0 with the unbiased divisor n - 1"
        ),
        "skip groups of one element, or use correction=0; drop_last=True keeps a last batch of one away",
    ),
    Row(
        _ops("std var std_mean var_mean"),
        "forward",
        _always,
        lambda origin: f"{origin.op} overflows on values of up to {number(largest(origin))} ({end_of_format(origin)})",
        "compute it in float32, or scale the values down first",
    ),
    Row(
        _ops("std std_mean"),
        "backward",
        _always,
        lambda origin: f"std of values that are all the same (range {range_of_first(origin)}) has no derivative at 0",
        "take the root of the variance with an eps inside: (x.var(dim) + 1e-8).sqrt()",
    ),
    Row(
        _ops("mean nanmean median"),
        "forward",
        is_empty,
        lambda origin: f"{origin.op} of an empty tensor is NaN: the selection before it picked nothing",
        "skip the term when nothing is selected, or sum and divide by count.clamp(min=1)",
    ),
    Row(
        _ops("nll_loss nll_loss2d cross_entropy"),
        "forward",
        lambda origin: origin.value == "nan",
        "the mean over no target: every target is ignore_index, or all class weights met are 0",
        "skip such batches, or use reduction='sum' and divide by the number of targets, at least 1",
    ),
    Row(
        _ops("nll_loss nll_loss2d"),
        None,
        _always,
        "a target's class has log probability -inf: it was masked out or underflowed",
        "mask only classes that can't be targets, and take log_softmax instead of softmax().log()",
    ),
    Row(
        _ops("ctc_loss"),
        None,
        _always,
        "the CTC loss is infinite: a target needs more steps than its input has (repeated labels need one more each)",
        "drop such pairs, or pass zero_infinity=True; check input_lengths after strided layers",
    ),
    Row(
        _ops("layer_norm group_norm batch_norm rms_norm instance_norm"),
        None,
        _always,
        lambda origin: (
            f"{origin.op} of constant values divides by a standard deviation of 0: its eps is 0 or vanishes"
            if not is_half(origin)
            else f"{origin.op} leaves the range of {dtype_of(origin)} (values {range_of_first(origin)})"
        ),
        "use an eps of at least 1e-5, and compute the normalisation in float32",
    ),
    Row(
        _ops("cdist pairwise_distance"),
        "backward",
        _always,
        "the distance between equal points has no derivative",
        "leave the diagonal out, or take the root yourself with an eps: ((a - b).pow(2).sum(-1) + 1e-12).sqrt()",
    ),
    Row(
        _ops("cosine_similarity"),
        None,
        _always,
        "the cosine of a zero vector divides by a norm of 0",
        "keep zero vectors out, or raise eps to what the format can hold",
    ),
    Row(
        _ops("cumprod prod"),
        "backward",
        _always,
        lambda origin: (
            f"the derivative of {origin.op} divides by its factors, and one of them is 0 or its product overflows"
        ),
        "add logarithms instead of multiplying: x.log().cumsum(dim).exp() on clamped factors",
    ),
    Row(
        _ops("cumprod prod"),
        "forward",
        _always,
        lambda origin: f"{origin.op} overflows on factors of up to {number(largest(origin))}",
        "add logarithms instead of multiplying: x.log().sum(dim)",
    ),
    # Linear algebra.
    Row(
        _ops("linalg_svd linalg_eigh linalg_eig svd symeig"),
        "backward",
        _always,
        lambda origin: f"{origin.op} has no derivative where two singular values or eigenvalues are equal",
        "add a small random diagonal so that they differ, or build the loss from values alone (svdvals, eigvalsh)",
    ),
    Row(
        _ops("linalg_inv_ex linalg_inv linalg_solve_ex linalg_solve inverse linalg_det linalg_slogdet linalg_pinv"),
        None,
        _always,
        lambda origin: f"{origin.op} met a matrix that is singular, or nearly",
        "add a small multiple of the identity (A + 1e-6 * I), or use torch.linalg.lstsq",
    ),
    Row(
        _ops("linalg_cholesky_ex linalg_cholesky cholesky"),
        None,
        _always,
        "the matrix isn't positive definite, or nearly so",
        "add a small multiple of the identity (A + 1e-6 * I) before the Cholesky factor",
    ),
    Row(
        _ops("linalg_qr linalg_lstsq"),
        None,
        _always,
        lambda origin: f"{origin.op} met a matrix without full rank",
        "add a small multiple of the identity, or drop dependent columns",
    ),
    Row(
        _ops("masked_fill full fill new_full full_like scalar_tensor where index_fill scatter add sub mul"),
        "forward",
        lambda origin: any(math.isinf(scalar) for scalar in origin.scalars),
        lambda origin: (
            f"{origin.value} that was put in on purpose ({origin.op}) reaches the loss: what is masked is also chosen"
        ),
        "make sure that a target (an action, a label) is never masked, or mask with a large finite number",
    ),
    # Overflow of what is otherwise harmless.
    Row(
        _ops("to_copy to"),
        None,
        overflowed,
        lambda origin: f"a cast overflows: values of {met(origin)} don't fit the narrower format",
        "scale the values down before the cast, or use bfloat16 instead of float16",
    ),
    Row(
        _ops("add"),
        "backward",
        lambda origin: origin.backward_op == "add" and overflowed(origin),
        lambda origin: f"gradients from several uses of one value add up beyond {end_of_format(origin)}",
        "scale the loss down, or clip gradients",
    ),
    Row(
        frozenset(),
        None,
        lambda origin: overflowed(origin) and is_half(origin),
        lambda origin: (
            f"{subject(origin)} overflows in {dtype_of(origin)} on numbers of up to {number(largest(origin))} "
            f"({end_of_format(origin)})"
        ),
        "compute this operation in float32 (or bfloat16), or scale its inputs down",
    ),
    Row(
        frozenset(),
        None,
        overflowed,
        lambda origin: f"{subject(origin)} overflows on numbers of up to {number(largest(origin))}",
        "find what makes the numbers grow: a learning rate that is too high, a missing normalisation, an unbounded exp;"
        " clip gradients or bound the values",
    ),
)
