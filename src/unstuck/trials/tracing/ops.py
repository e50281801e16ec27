"""What is known of an ATen operation: name, what it writes, whether it is elementwise or moves values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

__all__ = ["Operation", "base_name", "bound_arguments", "operation", "tensor_arguments"]

# What users call the operation, where ATen's own name is that of a kernel.
_USER_NAMES = {
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "native_batch_norm": "batch_norm",
    "native_batch_norm_legit": "batch_norm",
    "native_batch_norm_legit_no_training": "batch_norm",
    "batch_norm_with_update": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "miopen_batch_norm": "batch_norm",
    "fused_rms_norm": "rms_norm",
    "native_dropout": "dropout",
    "nll_loss_forward": "nll_loss",
    "nll_loss2d_forward": "nll_loss2d",
    "log_sigmoid_forward": "log_sigmoid",
    "cdist_forward": "cdist",
    "ctc_loss": "ctc_loss",
    "scaled_dot_product_flash_attention": "scaled_dot_product_attention",
    "scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "scaled_dot_product_efficient_attention": "scaled_dot_product_attention",
    "scaled_dot_product_cudnn_attention": "scaled_dot_product_attention",
    "scaled_dot_product_attention_math": "scaled_dot_product_attention",
    "scaled_dot_product_fused_attention_overrideable": "scaled_dot_product_attention",
    "mkldnn_rnn_layer": "lstm",
    "cudnn_rnn": "lstm",
    "thnn_fused_lstm_cell": "lstm_cell",
    "thnn_fused_gru_cell": "gru_cell",
    "embedding_bag_forward_only": "embedding_bag",
    "mkldnn_convolution": "convolution",
    "cudnn_convolution": "convolution",
    "slow_conv2d_forward": "convolution",
    "weight_norm_interface": "weight_norm",
    "prelu_kernel": "prelu",
    "linalg_eigh": "linalg_eigh",
    "unsafe_view": "view",
}

# Elementwise operations that torch doesn't tag so.
_ELEMENTWISE = frozenset(
    [
        "to_copy",
        "native_dropout",
        "fused_dropout",
        "elu_backward",
        "hardtanh_backward",
        "softplus_backward",
        "log_sigmoid_forward",
        "log_sigmoid_backward",
        "leaky_relu_backward",
        "prelu",
        "prelu_kernel",
        "prelu_kernel_backward",
        "polar",
        "complex",
        "mish_backward",
        "hardsigmoid_backward",
        "hardswish_backward",
        "rsub",
        "hardswish",
        "masked_fill",
        "log_sigmoid",
        "rrelu_with_noise",
        "rrelu_with_noise_backward",
        "masked_scale",
        "clamp_backward",
        "hardshrink_backward",
        "softshrink_backward",
        "conj_physical",
        "view_as_real_copy",
        "ger",
        "mse_loss_backward",
        "smooth_l1_loss_backward",
        "huber_loss_backward",
        "binary_cross_entropy_backward",
        "soft_margin_loss_backward",
    ]
)

# Every element of the result is one element of an input, or a constant.
_MOVING = frozenset(
    [
        "cat",
        "stack",
        "index",
        "index_select",
        "gather",
        "take",
        "embedding",
        "where",
        "masked_fill",
        "masked_select",
        "masked_scatter",
        "index_put",
        "scatter",
        "index_copy",
        "index_fill",
        "select_scatter",
        "slice_scatter",
        "diagonal_scatter",
        "as_strided_scatter",
        "flip",
        "roll",
        "repeat",
        "constant_pad_nd",
        "triu",
        "tril",
        "select_backward",
        "slice_backward",
        "diagonal_backward",
        "expand_copy",
        "view_copy",
        "permute_copy",
        "split_copy",
        "split_with_sizes_copy",
        "unbind_copy",
        "pixel_shuffle",
        "pixel_unshuffle",
        "channel_shuffle",
        "rot90",
        "narrow_copy",
        "reflection_pad1d",
        "reflection_pad2d",
        "reflection_pad3d",
        "replication_pad1d",
        "replication_pad2d",
        "replication_pad3d",
        "unsafe_index",
        "unsafe_index_put",
        "index_put_impl",
        "put",
        "transpose_copy",
        "squeeze_copy",
        "unsqueeze_copy",
        "select_copy",
        "slice_copy",
        "t_copy",
        "diagonal_copy",
        "block_diag",
        "unsafe_split",
        "unsafe_split_with_sizes",
        "reshape_copy",
        "diag_embed",
        "masked_fill_",
        "chunk_cat",
        "unsafe_chunk",
        "unsafe_masked_index",
    ]
)

# Writes a tensor without reading it.
_OVERWRITING = frozenset(
    [
        "copy",
        "fill",
        "zero",
        "normal",
        "uniform",
        "random",
        "bernoulli",
        "exponential",
        "geometric",
        "cauchy",
        "log_normal",
        "set",
        "resize",
    ]
)

# Constants, made without reading a tensor's values.
_FACTORIES = frozenset(
    [
        "full",
        "new_full",
        "full_like",
        "fill",
        "scalar_tensor",
        "zeros",
        "ones",
        "zeros_like",
        "ones_like",
        "new_zeros",
        "new_ones",
        "empty",
        "empty_like",
        "new_empty",
        "empty_strided",
        "new_empty_strided",
        "empty_permuted",
        "arange",
        "linspace",
        "eye",
        "zero",
        "lift_fresh",
    ]
)

# Their derivative turns non-finite at values where they themselves are finite.
_SINGULAR = frozenset(
    [
        "sqrt",
        "pow",
        "rsqrt",
        "reciprocal",
        "log",
        "log2",
        "log10",
        "log1p",
        "acos",
        "asin",
        "acosh",
        "atanh",
        "asinh",
        "atan2",
        "div",
        "norm",
        "linalg_vector_norm",
        "float_power",
        "xlogy",
        "special_xlog1py",
        "special_xlogy",
        "cdist_forward",
        "cdist",
        "std",
        "var",
        "std_mean",
        "var_mean",
        "where",
        "cumprod",
        "prod",
        "logsumexp",
        "logcumsumexp",
        "exp",
        "sinh",
        "cosh",
        "tan",
        "digamma",
        "lgamma",
        "logit",
        "special_entr",
        "hypot",
        "copysign",
        "nan_to_num",
        "linalg_eigh",
        "linalg_svd",
        "mul",
        "abs",
        "renorm",
        "dist",
        "erfinv",
        "special_ndtri",
        "special_log_ndtr",
        "exp2",
        "expm1",
        "addcdiv",
        "binary_cross_entropy",
        "special_erfcx",
        "softmax",
        "log_softmax",
        "true_divide",
        "fmod",
        "remainder",
    ]
)


# Types of arguments that may hold a plain number; a number multiplied with a tensor comes in a tensor's place.
_NUMERIC = frozenset(("number", "Optional[number]", "float", "Optional[float]", "Tensor", "Optional[Tensor]"))


@dataclass(frozen=True, eq=False)
class Operation:
    """One overload of an ATen operation.

    Attributes:
        name: base name without overload, foreach prefix and outer underscores.
        parameters: names of the arguments, in order.
        defaults: their default values, by name.
        written: names of the arguments that are written.
        out_only: names of the written arguments that aren't read.
        numbers: names of the arguments that are plain numbers with a meaning for the values (not sizes, not dims).
        view: whether the result shares its input's memory.
        foreach: whether it works on lists of tensors, the k-th result from the k-th inputs.
        elementwise: whether each element of the result depends on one element of each (broadcast) input.
        moving: whether each element of the result is an element of an input or a constant.
        factory: whether it makes constants without reading a tensor's values.
        singular: whether its derivative has poles where it is finite itself.
    """

    name: str
    parameters: tuple[str, ...]
    defaults: dict[str, Any]
    written: tuple[str, ...]
    out_only: frozenset[str]
    numbers: tuple[str, ...]
    view: bool
    foreach: bool
    elementwise: bool
    moving: bool
    factory: bool
    singular: bool


def base_name(func: Any) -> str:
    """``aten::_foreach_sqrt_.default`` is ``sqrt``."""
    name: str = func._schema.name.rsplit("::", 1)[-1]
    return name.removeprefix("_foreach_").strip("_")


def user_name(name: str) -> str:
    """The operation's name as its user would know it: ``native_layer_norm`` is ``layer_norm``."""
    return _USER_NAMES.get(name, name)


@cache
def operation(func: Any) -> Operation:
    """What the schema of an overload tells."""
    schema = func._schema
    name = base_name(func)
    written, out_only, numbers = [], set(), []
    for argument in schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.append(argument.name)
            if argument.kwarg_only or name in _OVERWRITING:
                out_only.add(argument.name)
        if str(argument.type) in _NUMERIC:
            numbers.append(argument.name)
    if name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"):
        written += ["running_mean", "running_var"]  # not in their schema
    aliases = any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)
    return Operation(
        name=name,
        parameters=tuple(argument.name for argument in schema.arguments),
        defaults={
            argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()
        },
        written=tuple(written),
        out_only=frozenset(out_only),
        numbers=tuple(numbers),
        view=(aliases and not written) or name == "unsafe_view",  # a view that its schema doesn't tell
        foreach="::_foreach_" in schema.name
        or "::_fused_ada" in schema.name
        or "::_fused_sgd" in schema.name
        or "::_amp_foreach" in schema.name,
        elementwise=torch.Tag.pointwise in func.tags or name in _ELEMENTWISE,
        moving=name in _MOVING,
        factory=name in _FACTORIES,
        singular=name in _SINGULAR,
    )


def bound_arguments(op: Operation, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, defaults included."""
    return {**op.defaults, **dict(zip(op.parameters, args, strict=False)), **kwargs}


def tensor_arguments(
    op: Operation, args: Sequence[Any], kwargs: dict[str, Any]
) -> Iterator[tuple[str, int, torch.Tensor]]:
    """Every tensor among the arguments: name of the argument, place in its list (0 if it's none), the tensor."""
    for name, value in zip(op.parameters, args, strict=False):
        if isinstance(value, torch.Tensor):
            yield name, 0, value
        elif isinstance(value, (list, tuple)):
            for place, item in enumerate(value):
                if isinstance(item, torch.Tensor):
                    yield name, place, item
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor):
            yield name, 0, value
        elif isinstance(value, (list, tuple)):
            for place, item in enumerate(value):
                if isinstance(item, torch.Tensor):
                    yield name, place, item
