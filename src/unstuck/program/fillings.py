"""Lines of a user's file that write into a tensor by hand: ``layer.weight.data.fill_(0.1)``, ``weight[:] = 0``."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

from unstuck.record.fillings import Filling

__all__ = ["fillings"]

_METHODS = frozenset(
    ("fill_", "zero_", "normal_", "uniform_", "copy_", "mul_", "div_", "add_", "sub_", "clamp_", "exponential_")
)
_LONGEST = 400_000
"""Characters of a file that is read."""


@lru_cache(maxsize=64)
def fillings(file: str) -> tuple[Filling, ...]:
    """Every such line outside of training loops, in the order of the file; empty for a file that can't be read."""
    text = "".join(linecache.getlines(file))
    if len(text) > _LONGEST:
        return ()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found: list[Filling] = []
    _search(tree, file, "<module>", found)
    return tuple(sorted(found, key=lambda item: item.line))


def _search(node: ast.AST, file: str, function: str, found: list[Filling]) -> None:
    for child in ast.iter_child_nodes(node):
        inside = function
        if isinstance(child, (ast.For, ast.While, ast.AsyncFor)) and _trains(child):
            continue
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            inside = getattr(child, "name", "<lambda>")
        entry = _filling(child, file, function)
        if entry is not None:
            found.append(entry)
        _search(child, file, inside, found)


def _trains(loop: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("backward", "step")
        for node in ast.walk(loop)
    )


def _filling(node: ast.AST, file: str, function: str) -> Filling | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        target, number = _target(node.func.value), _number(node.args[0]) if node.args else None
        how = node.func.attr.rstrip("_")
        if how == "zero":
            number = 0.0
    elif isinstance(node, ast.AugAssign):
        target, how, number = _target(node.target), type(node.op).__name__.lower(), _number(node.value)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        place = node.targets[0]
        by_hand = isinstance(place, ast.Subscript) or (isinstance(place, ast.Attribute) and place.attr == "data")
        if not by_hand:
            return None
        target, how, number = _target(place), "copy", _number(node.value)
    else:
        return None
    if not target:
        return None
    return Filling(file, node.lineno, function, target, how, number)


def _target(node: ast.expr) -> str:
    """The last name of what is written to, without ``data`` and indices: ``weight`` of ``layer.weight.data[0]``."""
    while True:
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach":
            node = node.func.value
        else:
            break
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _number(node: ast.expr) -> float | None:
    sign = 1.0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1.0, node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return sign * float(node.value)
    return None
