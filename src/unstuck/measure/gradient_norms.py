"""The norm of each gradient, and of all together, in one fused pass that never waits for the device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["grad_norm", "norms_of", "parse_norm_type", "total_of"]

# Formats in which squares overflow or vanish early; their norms are computed and kept in float32.
_NARROW = (torch.float16, torch.bfloat16)
# Formats in which higher powers do so too, and what those are summed in.
_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
# What needs no sorting out.
_PLAIN = ({(torch.strided, torch.float32)}, {(torch.strided, torch.float64)})


def grad_norm(module: nn.Module, norm_type: float | int | str, group_separator: str = "/") -> dict[str, Tensor]:
    """The p-norms of a module's gradients.

    Call it in ``on_before_optimizer_step``, where gradients are complete and unscaled, and log what it returns::

        def on_before_optimizer_step(self, optimizer):
            self.log_dict(grad_norm(self, norm_type=2))

    Args:
        module: whose parameters; a shared one counts once, one without gradient not at all.
        norm_type: p, a number above 0 or infinity, also as text ("inf").
        group_separator: stands between the kind of norm and the parameter's name.

    Returns:
        ``grad_{p}_norm{group_separator}{name}`` for each parameter with a gradient, and ``grad_{p}_norm_total``, the
        norm of all gradients as one vector; scalar tensors on the gradients' devices. Empty if there is no gradient.

    Raises:
        ValueError: p isn't above 0.
    """
    p = parse_norm_type(norm_type)
    prefix = f"grad_{p}_norm{group_separator}"
    found: dict[str, Tensor] = {}
    if type(module).named_parameters is nn.Module.named_parameters:
        _collect(module, prefix, set(), found)
    else:
        found = {prefix + name: grad for name, own in module.named_parameters() if (grad := own.grad) is not None}
    if not found:
        return {}
    norms = norms_of(list(found.values()), p)
    named = dict(zip(found, norms, strict=True))
    named[f"grad_{p}_norm_total"] = total_of(norms, p)
    return named


def _collect(module: nn.Module, prefix: str, seen: set[int], found: dict[str, Tensor]) -> None:
    """Puts the gradients of a module into ``found``, in the order and under the names of ``named_parameters``.

    That method's nested generators would take as long as the norms themselves.
    """
    seen.add(id(module))
    for name, parameter in module._parameters.items():
        if parameter is not None and id(parameter) not in seen:
            seen.add(id(parameter))
            grad = parameter.grad
            if grad is not None:
                found[prefix + name] = grad
    for name, child in module._modules.items():
        if child is not None and id(child) not in seen:
            _collect(child, f"{prefix}{name}.", seen, found)


def parse_norm_type(norm_type: float | int | str) -> float:
    """p as a float.

    Raises:
        ValueError: it is no number, or isn't above 0.
    """
    try:
        p = float(norm_type)
    except (TypeError, ValueError):
        p = math.nan
    if not p > 0:
        raise ValueError(f"`norm_type` must be a number above 0 or 'inf', got {norm_type!r}.")
    return p


@torch.no_grad()
def norms_of(gradients: list[Tensor], p: float) -> list[Tensor]:
    """The p-norm of each tensor.

    Args:
        gradients: dense or sparse, of any devices and dtypes.
        p: above 0, maybe infinite.

    Returns:
        Scalars in the order of ``gradients``, each on its tensor's device; float32 for 16-bit formats.
    """
    kinds = {(gradient.layout, gradient.dtype) for gradient in gradients}
    if kinds in _PLAIN and p <= 2.0:
        return list(torch._foreach_norm(gradients, p))
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    values = [gradient if gradient.layout is torch.strided else _stored(gradient) for gradient in gradients]
    norms: list[Tensor] = [torch.empty(0)] * len(values)
    for index, value in enumerate(values):
        if value.numel() == 0:
            # Of nothing there is no largest element.
            norms[index] = value.new_zeros((), dtype=_kept(value.abs().dtype))
        else:
            groups.setdefault((value.device, value.dtype), []).append(index)
    for (device, dtype), indices in groups.items():
        group = [values[index] for index in indices]
        summed_in = _WIDER.get(dtype) if _is_high(p, device) else torch.float32 if dtype in _NARROW else None
        of_group = torch._foreach_norm(group, p, dtype=summed_in)
        for index, norm in zip(indices, of_group, strict=True):
            norms[index] = norm.float() if dtype in _WIDER else norm
    return norms


@torch.no_grad()
def total_of(norms: Sequence[Tensor], p: float) -> Tensor:
    """The p-norm of all tensors as one vector, from the p-norms of each.

    Args:
        norms: scalars, at least one.
        p: above 0, maybe infinite.

    Returns:
        A scalar on the first one's device.
    """
    device = norms[0].device
    if len({norm.device for norm in norms}) > 1:
        norms = [norm.to(device, non_blocking=True) for norm in norms]
    gathered = torch.stack(list(norms))
    if math.isinf(p):
        return gathered.max()
    summed_in = torch.float64 if _is_high(p, device) else None
    total: Tensor = torch.linalg.vector_norm(gathered, p, dtype=summed_in)
    return total.to(gathered.dtype)


def _is_high(p: float, device: torch.device) -> bool:
    """Whether p-th powers of common gradients leave the range of float32, on a device that has a wider format."""
    return 2.0 < p < math.inf and device.type != "mps"


def _stored(gradient: Tensor) -> Tensor:
    """The values that a sparse gradient stores; the rest are zeros, which no norm sees."""
    return gradient.coalesce().values() if gradient.layout is torch.sparse_coo else gradient.values()


def _kept(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in _NARROW else dtype
