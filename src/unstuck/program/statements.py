"""Statements of a user's file that say something about how a training is wired, found in its syntax tree."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

__all__ = [
    "blocks_without_gradients",
    "constant_dropout_lines",
    "freezing_lines",
    "optimizer_step_lines",
    "rate_lines",
    "syntax_tree",
    "uncalled_lines",
]

_CALLED_FOR_EFFECT = frozenset({"step", "backward", "zero_grad", "train", "eval"})


def freezing_lines(file: str) -> list[int]:
    """Lines that turn gradients off: ``p.requires_grad = False`` (or a computed value), ``p.requires_grad_(False)``."""
    found = []
    for node in ast.walk(syntax_tree(file)):
        if isinstance(node, ast.Assign):
            named = any(isinstance(item, ast.Attribute) and item.attr == "requires_grad" for item in node.targets)
            if named and not _is_true(node.value):
                found.append(node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            off = bool(node.args) and not _is_true(node.args[0])
            if node.func.attr == "requires_grad_" and off:
                found.append(node.lineno)
    return sorted(set(found))


def uncalled_lines(file: str) -> list[int]:
    """Statements that name a method of training and don't call it: ``optimizer.step``."""
    return sorted(
        node.lineno
        for node in ast.walk(syntax_tree(file))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in _CALLED_FOR_EFFECT
    )


def optimizer_step_lines(file: str) -> list[int]:
    """Lines that call ``step`` of something that is called an optimiser."""
    return sorted(
        node.lineno
        for node in ast.walk(syntax_tree(file))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "step"
        and "opt" in ast.unparse(node.func.value).lower()
    )


def rate_lines(file: str) -> list[int]:
    """Lines that set a learning rate by hand: ``group["lr"] = ...``."""
    found = []
    for node in ast.walk(syntax_tree(file)):
        if not isinstance(node, (ast.Assign, ast.AugAssign)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(item, ast.Subscript) and _is_word(item.slice, "lr") for item in targets):
            found.append(node.lineno)
    return sorted(found)


def constant_dropout_lines(file: str) -> list[int]:
    """Lines with functional dropout that nothing turns off: no ``training``, neither as argument nor in an ``if``."""
    tree = syntax_tree(file)
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, (ast.If, ast.IfExp)) and "training" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    return sorted(
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and id(node) not in guarded
        and len(node.args) < 3
        and ast.unparse(node.func) in ("F.dropout", "functional.dropout", "nn.functional.dropout")
        and "training" not in ast.unparse(node)
    )


def blocks_without_gradients(file: str) -> list[tuple[int, int]]:
    """(line of the ``with`` or the decorator, last line) of what runs under ``torch.no_grad()`` and its like."""
    found = []
    for node in ast.walk(syntax_tree(file)):
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


def _is_word(node: ast.expr, word: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == word


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


@lru_cache(maxsize=64)
def syntax_tree(file: str) -> ast.Module:
    """The syntax tree, an empty one for what can't be read."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])
