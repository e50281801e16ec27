"""Statements of a user's file that say something about how a training is wired, found in its syntax tree."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

__all__ = ["blocks_without_gradients", "freezing_lines", "uncalled_lines"]

_CALLED_FOR_EFFECT = frozenset({"step", "backward", "zero_grad", "train", "eval"})


def freezing_lines(file: str) -> list[int]:
    """Lines that turn gradients off: ``p.requires_grad = False`` (or a computed value), ``p.requires_grad_(False)``."""
    found = []
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Assign):
            named = any(isinstance(item, ast.Attribute) and item.attr == "requires_grad" for item in node.targets)
            if named and not _is_true(node.value):
                found.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
            if node.args and not _is_true(node.args[0]):
                found.append(node.lineno)
    return sorted(set(found))


def uncalled_lines(file: str) -> list[int]:
    """Statements that name a method of training and don't call it: ``optimizer.step``."""
    return sorted(
        node.lineno
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in _CALLED_FOR_EFFECT
    )


def blocks_without_gradients(file: str) -> list[tuple[int, int]]:
    """(line of the ``with`` or the decorator, last line) of what runs under ``torch.no_grad()`` and its like."""
    found = []
    for node in ast.walk(_tree(file)):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            if any(_turns_off(item.context_expr) for item in node.items):
                found.append((node.lineno, node.end_lineno or node.lineno))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for item in node.decorator_list:
                if _turns_off(item):
                    found.append((item.lineno, node.end_lineno or node.lineno))
    return sorted(found)


def _turns_off(node: ast.expr) -> bool:
    call = node if isinstance(node, ast.Call) else None
    arguments = [] if call is None else call.args
    node = node if call is None else call.func
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    if name == "set_grad_enabled":
        return bool(arguments) and not _is_true(arguments[0])
    return name in ("no_grad", "inference_mode")


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


@lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module:
    """The syntax tree, an empty one for what can't be read."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])
