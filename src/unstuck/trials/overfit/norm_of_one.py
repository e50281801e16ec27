"""Tells which normalisation layer refused a batch for having a single value per channel, and where that was."""

from __future__ import annotations

import traceback

import torch

from unstuck.findings import Finding, Severity, Where
from unstuck.places import Frame, is_user_code, qualified_name

__all__ = ["norm_of_one"]

_REFUSALS = ("Expected more than 1 value per channel when training", "Expected more than 1 spatial element")


def norm_of_one(error: BaseException) -> Finding | None:
    """What a failed pass says, where torch refused to normalise over a single value; else None.

    Args:
        error: as it was raised, with its traceback.
    """
    if not isinstance(error, ValueError) or not str(error).startswith(_REFUSALS):
        return None
    modules: list[torch.nn.Module] = []
    shape: list[int] = []
    chain = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        owner, given = frame.f_locals.get("self"), frame.f_locals.get("input")
        if isinstance(owner, torch.nn.Module):
            modules.append(owner)
        if isinstance(given, torch.Tensor):
            shape = list(given.shape)
        if is_user_code(frame.f_code):
            chain.append(Frame(frame.f_code.co_filename, line, qualified_name(frame.f_code)))
    path = _path(modules)
    name = "a normalisation layer" if not modules else f"{path or 'the model'} ({type(modules[-1]).__name__})"
    what = "a batch of one sample without a spatial extent" if shape[:1] == [1] else f"an input of shape {shape}"
    last = chain[-1] if chain else None
    return Finding(
        "model.norm-misuse",
        Severity.ERROR,
        f"{name} gets {what}: with a single value per channel there is nothing to normalise over in training",
        Where(
            file=last.file if last else None, line=last.line if last else None, module=path or None, chain=tuple(chain)
        ),
        {"shape": shape},
        "give batches of two samples or more (DataLoader(drop_last=True) leaves a last one of one sample out), or use "
        "a normalisation that looks at one sample alone (GroupNorm, LayerNorm)",
        confirmed=True,
    )


def _path(modules: list[torch.nn.Module]) -> str:
    """The path of the innermost module below the outermost one that holds it."""
    for root in modules:
        found = [str(path) for path, module in root.named_modules() if module is modules[-1]]
        if found:
            return found[0]
    return ""
