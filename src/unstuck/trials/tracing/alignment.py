"""Which dimensions of an operation's inputs belong to which dimensions of its result.

An alignment has one entry per dimension of an input: the dimension of the result that runs along with it, or ``ALL``
where an element of the result depends on the whole range. ``IGNORED`` in the place of an alignment: the result doesn't
depend on that input's values. ``UNKNOWN``: it may depend on any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unstuck.trials.tracing.ops import Operation

__all__ = ["ALL", "IGNORED", "UNKNOWN", "Alignment", "Operand", "align"]

ALL = -1
IGNORED = "ignored"
UNKNOWN = "unknown"

Alignment = tuple[int, ...] | str
# Name of the argument, place in its list, sizes.
Operand = tuple[str, int, tuple[int, ...]]
Rule = Callable[[dict[str, Any], Operand, tuple[int, ...], int], Alignment]


def align(
    op: Operation,
    arguments: dict[str, Any],
    operands: Sequence[Operand],
    result: tuple[int, ...],
    output: int,
    slot: int,
) -> list[Alignment]:
    """One alignment per operand.

    Args:
        op: the operation.
        arguments: its arguments by name; tensors may be stand-ins that have a shape.
        operands: its tensor arguments.
        result: sizes of the output in question.
        output: index of that output.
        slot: place of that output in its list, for operations on lists.
    """
    if op.foreach:
        return [
            _elementwise(operand[2], result) if operand[1] == slot or len(operand[2]) == 0 else IGNORED
            for operand in operands
        ]
    rule = _RULES.get(op.name)
    if rule is not None:
        return [rule(arguments, operand, result, output) for operand in operands]
    if op.elementwise:
        return [_elementwise(operand[2], result) for operand in operands]
    if "dim" in op.parameters and len(operands) == 1:
        return [_reduction(arguments, operands[0], result, output)]
    if "dim" not in op.parameters and len(operands) == 1 and not result and not op.moving:
        return [(ALL,) * len(operands[0][2])]
    return [UNKNOWN] * len(operands)


def _elementwise(shape: tuple[int, ...], result: tuple[int, ...]) -> Alignment:
    shift = len(result) - len(shape)
    if shift < 0:
        return (ALL,) * len(shape)
    return tuple(
        dim + shift if shape[dim] == result[dim + shift] or shape[dim] == 1 else ALL for dim in range(len(shape))
    )


def _dims(arguments: dict[str, Any], ndim: int, name: str = "dim") -> set[int]:
    dims = arguments.get(name)
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return set(range(ndim))
    if isinstance(dims, int):
        dims = [dims]
    return {int(dim) % max(ndim, 1) for dim in dims}


def _reduction(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    ndim = len(operand[2])
    dims = _dims(arguments, ndim)
    if len(result) == ndim:
        return tuple(ALL if dim in dims else dim for dim in range(ndim))
    if len(result) != ndim - len(dims):
        return UNKNOWN
    kept = [dim for dim in range(ndim) if dim not in dims]
    return tuple(ALL if dim in dims else kept.index(dim) for dim in range(ndim))


def _along(name: str) -> Rule:
    """All inputs have the result's sizes, and only the dimension in argument ``name`` is mixed."""

    def rule(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
        ndim = len(operand[2])
        if ndim != len(result):
            return _reduction(arguments, operand, result, output) if name == "dim" else UNKNOWN
        dims = _dims(arguments, ndim, name)
        return tuple(ALL if dim in dims else dim for dim in range(ndim))

    return rule


def _loss(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    if not result:
        return (ALL,) * len(operand[2])
    return _elementwise(operand[2], result)


def _nll(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    name, _, shape = operand
    if name == "weight" or not result:
        return (ALL,) * len(shape)
    if name == "self" and len(shape) > 1:  # class dimension second
        return (0, ALL, *range(1, len(shape) - 1))
    return tuple(range(len(shape)))


def _nll_backward(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    name, _, shape = operand
    if name == "self":
        return tuple(range(len(shape)))
    if name == "weight":
        return (min(1, len(result) - 1),)
    if len(shape) == len(result) - 1 and shape:  # per element: everything but the class dimension
        return (0, *range(2, len(result)))
    return (ALL,) * len(shape)


def _trailing(shape: tuple[int, ...], result: tuple[int, ...], kept: int) -> Alignment:
    """The first ``kept`` dimensions run along with the result's, the others are mixed."""
    return tuple(dim if dim < kept and dim < len(result) else ALL for dim in range(len(shape)))


def _layer_norm(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    name, _, shape = operand
    normalized = len(arguments["normalized_shape"])
    leading = len(arguments["input"].shape) - normalized
    if name in ("weight", "bias"):
        if output != 0 or len(result) < normalized:
            return IGNORED
        if "grad_out" in arguments or "grad_output" in arguments:
            return (ALL,) * len(shape)
        return tuple(range(len(result) - normalized, len(result)))
    if name in ("mean", "rstd"):
        return _trailing(shape, result, leading) if output == 0 else (ALL,) * len(shape)
    if output == 0 or (name == "input" and "grad_out" not in arguments):
        return _trailing(shape, result, leading)
    # Gradients of weight and bias: the other way round.
    return tuple(dim - leading if dim >= leading else ALL for dim in range(len(shape)))


def _first(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    """Keeps the leading dimension; parameters and what has no batch are mixed."""
    name, _, shape = operand
    if name in ("weight", "bias", "weights") or not result or not shape or shape[0] not in (1, result[0]):
        return (ALL,) * len(shape)
    return (0,) + (ALL,) * (len(shape) - 1)


def _two(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    """Keeps the two leading dimensions (batch and channel, or batch and head)."""
    shape = operand[2]
    if len(shape) < 3 or len(result) < 2:
        return _first(arguments, operand, result, output)
    return tuple(dim if dim < 2 and shape[dim] in (1, result[dim]) else ALL for dim in range(len(shape)))


def _norm_backward(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    if output == 0:
        return _first(arguments, operand, result, output)
    return (ALL,) * len(operand[2])


def _batch_norm(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    shape = operand[2]
    training = bool(arguments.get("training", arguments.get("train", True)))
    if len(shape) == 1:
        return (1 if len(result) > 1 else 0,)
    if len(result) == 1:
        return tuple(0 if dim == 1 else ALL for dim in range(len(shape)))
    if not training:
        return tuple(range(len(shape)))
    return tuple(1 if dim == 1 else ALL for dim in range(len(shape)))


def _matmul(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    name, _, shape = operand
    last = len(result) - 1
    if (name == "self" and "mat1" not in arguments and "batch1" not in arguments) or name in ("mat1", "batch1"):
        return (*range(len(shape) - 1), ALL)
    if name in ("mat2", "batch2"):
        return (*range(len(shape) - 2), ALL, last)
    return _elementwise(shape, result)


def _addbmm(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    if operand[0] == "batch1":
        return (ALL, 0, ALL)
    if operand[0] == "batch2":
        return (ALL, ALL, 1)
    return _elementwise(operand[2], result)


def _vector(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    name, _, shape = operand
    if name in ("vec", "tensor") or not result:
        return (ALL,) * len(shape)
    if len(shape) == 2:
        return (0, ALL)
    return _elementwise(shape, result)


def _outer(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    name, _, shape = operand
    if len(shape) == 1:
        return (1,) if name == "vec2" else (0,)
    return _elementwise(shape, result)


def _linear(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    name, _, shape = operand
    if name == "weight":
        return (len(result) - 1, ALL)[: len(shape)]
    if name == "bias":
        return (len(result) - 1,)
    return (*range(len(shape) - 1), ALL)


def _convolution(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    name, _, shape = operand
    channels = 0 if arguments.get("transposed") else 1
    if name == "weight":
        return (1 if channels else ALL,) + (ALL,) * (len(shape) - 1)
    if name == "bias":
        return (1,)
    return (0,) + (ALL,) * (len(shape) - 1)


def _convolution_backward(
    arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int
) -> Alignment:
    name, _, shape = operand
    if output == 0:
        return IGNORED if name == "input" else _first(arguments, operand, result, output)
    if name == "weight" or (name == "input" and output == 2):
        return IGNORED
    if name == "grad_output" and (output == 2 or not arguments.get("transposed")):
        return (ALL, 0) + (ALL,) * (len(shape) - 2)
    return (ALL,) * len(shape)


def _cdist(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    name, _, shape = operand
    last = len(result) - 1
    shift = len(result) - len(shape)
    batch = tuple(dim + shift for dim in range(len(shape) - 2))
    return (*batch, last - 1 if name == "x1" else last, ALL)


def _cdist_backward(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    name, _, shape = operand
    shift = len(result) - len(shape)
    batch = tuple(dim + shift for dim in range(len(shape) - 2))
    rows = len(result) - 2
    return {"x1": (*batch, rows, rows + 1), "x2": (*batch, ALL, rows + 1)}.get(name, (*batch, rows, ALL))


def _matrices(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    """Linear algebra on the last two dimensions."""
    shape = operand[2]
    kept = max(len(shape) - 2, 0)
    return tuple(dim if dim < kept and dim < len(result) else ALL for dim in range(len(shape)))


def _embedding(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    name, _, shape = operand
    return (ALL, len(result) - 1) if name == "weight" else tuple(range(len(shape)))


def _copy(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    return IGNORED if operand[0] == "self" else _elementwise(operand[2], result)


def _unread(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    return _elementwise(operand[2], result) if operand[0] == "value" else IGNORED


def _scattered(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    """Sums at places that an index names along one dimension."""
    name, _, shape = operand
    ndim = len(result)
    dim = int(arguments.get("dim") or 0) % max(ndim, 1)
    if name == "self" and len(shape) == ndim and tuple(shape) == tuple(result):
        return tuple(range(ndim))
    if len(shape) == ndim:
        return tuple(ALL if d == dim or shape[d] != result[d] else d for d in range(ndim))
    return (ALL,) * len(shape)


def _put(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    return _elementwise(operand[2], result) if operand[0] == "self" else (ALL,) * len(operand[2])


def _recurrent(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    """One layer over (time, batch, features); states are (batch, features) or (layers, batch, features)."""
    name, _, shape = operand
    if name.startswith("weight") or len(result) < 2 or len(shape) < 2:
        return (ALL,) * len(shape)
    batch, mine = len(result) - 2, len(shape) - 2
    if shape[mine] != result[batch]:
        return (ALL,) * len(shape)
    return tuple(batch if dim == mine else ALL for dim in range(len(shape)))


def _ctc(arguments: dict[str, Any], operand: Operand, result: tuple[int, ...], output: int) -> Alignment:
    """Log probabilities are (time, batch, class), the loss is (batch,) and its derivative like the probabilities."""
    name, _, shape = operand
    batch = 1 if len(result) == 3 and "grad" in arguments else 0
    if name == "log_probs":
        return (ALL, batch, ALL) if len(shape) == 3 else (ALL,) * len(shape)
    if not shape or len(arguments["log_probs"].shape) != 3:
        return (ALL,) * len(shape)
    if name == "targets" and len(shape) == 1:
        return (ALL,)
    return (batch,) + (ALL,) * (len(shape) - 1)


_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        [
            "softmax",
            "log_softmax",
            "softmax_backward_data",
            "log_softmax_backward_data",
            "cumsum",
            "cumprod",
            "logcumsumexp",
            "cummax",
            "cummin",
            "sort",
            "topk",
            "kthvalue",
            "mode",
            "median",
            "nanmedian",
            "glu",
            "glu_backward",
            "linalg_cross",
        ],
        _along("dim"),
    ),
    **dict.fromkeys(["fft_r2c", "fft_c2c", "fft_c2r"], _along("dim")),
    **dict.fromkeys(
        [
            "mse_loss",
            "binary_cross_entropy_with_logits",
            "smooth_l1_loss",
            "huber_loss",
            "binary_cross_entropy",
            "soft_margin_loss",
        ],
        _loss,
    ),
    **dict.fromkeys(
        ["nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss", "multilabel_margin_loss_forward"], _nll
    ),
    **dict.fromkeys(["nll_loss_backward", "nll_loss2d_backward"], _nll_backward),
    **dict.fromkeys(
        ["native_layer_norm", "native_layer_norm_backward", "fused_rms_norm", "fused_rms_norm_backward"], _layer_norm
    ),
    **dict.fromkeys(
        [
            "native_batch_norm",
            "native_batch_norm_legit",
            "native_batch_norm_legit_no_training",
            "batch_norm_with_update",
            "cudnn_batch_norm",
            "native_batch_norm_backward",
            "batch_norm_backward",
            "cudnn_batch_norm_backward",
        ],
        _batch_norm,
    ),
    **dict.fromkeys(["native_group_norm"], _first),
    **dict.fromkeys(["native_group_norm_backward"], _norm_backward),
    **dict.fromkeys(["mm", "bmm", "addmm", "baddbmm"], _matmul),
    "addbmm": _addbmm,
    **dict.fromkeys(["mv", "dot", "vdot", "addmv"], _vector),
    **dict.fromkeys(["addr", "ger", "outer"], _outer),
    "linear": _linear,
    "convolution": _convolution,
    "mkldnn_convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(
        [
            "scaled_dot_product_flash_attention",
            "scaled_dot_product_flash_attention_for_cpu",
            "scaled_dot_product_efficient_attention",
            "scaled_dot_product_cudnn_attention",
            "scaled_dot_product_attention_math",
            "scaled_dot_product_flash_attention_backward",
            "scaled_dot_product_flash_attention_for_cpu_backward",
            "scaled_dot_product_efficient_attention_backward",
            "max_pool2d_with_indices",
            "max_pool3d_with_indices",
            "avg_pool2d",
            "avg_pool3d",
            "adaptive_avg_pool2d",
            "adaptive_avg_pool3d",
            "adaptive_max_pool2d",
            "max_pool2d_with_indices_backward",
            "avg_pool2d_backward",
            "adaptive_avg_pool2d_backward",
            "adaptive_max_pool2d_backward",
            "upsample_nearest1d",
            "upsample_nearest2d",
            "upsample_nearest3d",
            "upsample_bilinear2d",
            "upsample_linear1d",
            "upsample_bicubic2d",
            "upsample_nearest1d_backward",
            "upsample_nearest2d_backward",
            "upsample_bilinear2d_backward",
            "upsample_linear1d_backward",
        ],
        _two,
    ),
    **dict.fromkeys(
        [
            "grid_sampler_2d",
            "grid_sampler_3d",
            "grid_sampler_2d_backward",
            "im2col",
            "col2im",
            "unfold_backward",
            "thnn_fused_lstm_cell",
            "thnn_fused_gru_cell",
            "affine_grid_generator",
            "bilinear",
        ],
        _first,
    ),
    **dict.fromkeys(["cdist_forward", "euclidean_dist"], _cdist),
    "cdist_backward": _cdist_backward,
    **dict.fromkeys(
        [
            "linalg_cholesky_ex",
            "cholesky",
            "linalg_inv_ex",
            "linalg_eigh",
            "linalg_eig",
            "linalg_svd",
            "linalg_qr",
            "linalg_solve_ex",
            "linalg_det",
            "linalg_slogdet",
            "linalg_lu_factor_ex",
            "linalg_lu",
            "linalg_ldl_factor_ex",
            "triangular_solve",
            "linalg_solve_triangular",
            "cholesky_solve",
            "cholesky_inverse",
            "linalg_matrix_exp",
            "linalg_eigvals",
            "linalg_lstsq",
            "linalg_householder_product",
            "linalg_lu_solve",
            "linalg_pinv",
        ],
        _matrices,
    ),
    "embedding": _embedding,
    "ctc_loss": _ctc,
    "ctc_loss_backward": _ctc,
    "copy": _copy,
    "fill": _unread,
    "zero": _unread,
    **dict.fromkeys(
        [
            "zeros_like",
            "ones_like",
            "full_like",
            "empty_like",
            "new_zeros",
            "new_ones",
            "new_full",
            "new_empty",
            "rand_like",
            "randn_like",
            "new_empty_strided",
            "bernoulli",
            "uniform",
            "normal",
            "random",
            "exponential",
            "randint_like",
        ],
        _unread,
    ),
    **dict.fromkeys(["scatter_add", "index_add", "scatter_reduce", "index_reduce", "scatter"], _scattered),
    **dict.fromkeys(["index_put", "unsafe_index_put"], _put),
    **dict.fromkeys(["mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "cudnn_rnn"], _recurrent),
}
