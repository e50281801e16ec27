"""Lines at which inputs and targets are shuffled apart."""

from __future__ import annotations

import ast
import os

from unstuck.places import Frame
from unstuck.program.names import Scope, assigned, last_name, name_of, own_nodes, tree_of

__all__ = ["separate_shuffles"]


def separate_shuffles(file: str) -> tuple[Frame, ...]:
    """Lines of one scope that shuffle different arrays, each by a random order of its own, in the order of the file.

    ``x = x[torch.randperm(n)]``, ``rng.shuffle(x)``, ``x = rng.permutation(x)``, ``x[order]`` with an ``order`` of
    its own. Empty where fewer than two are found.
    """
    tree = tree_of(file)
    if tree is None:
        return ()
    scopes: list[Scope] = [tree]
    scopes += [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for scope in scopes:
        events = sorted(_shuffles(scope))
        arrays = {array for _, array, _ in events}
        orders = {order for _, _, order in events}
        if len(arrays) >= 2 and len(orders) >= 2:
            lines = sorted({line for line, _, _ in events})
            name = getattr(scope, "name", "<module>")
            return tuple(Frame(os.path.abspath(file), line, name) for line in lines)
    return ()


def _shuffles(scope: Scope) -> list[tuple[int, str, str]]:
    """(line, array, what its random order is) of everything that is shuffled in a scope."""
    found: list[tuple[int, str, str]] = []
    for node in own_nodes(scope):
        if isinstance(node, ast.Subscript):
            array = ast.unparse(node.value)
            order = _random_order(scope, node.slice, node.lineno)
            if order is not None:
                found.append((node.lineno, array, order))
        elif isinstance(node, ast.Call) and len(node.args) >= 1:
            name = last_name(node.func)
            first = node.args[0]
            given = name_of(first)
            if given is None or (name == "sample" and len(node.args) < 2):
                continue
            shuffles = name == "shuffle" or (name in ("permutation", "sample") and not _is_count(first))
            if shuffles and (len(node.args) == 1 or name == "sample"):
                found.append((node.lineno, given, f"call {node.lineno}:{node.col_offset}"))
    return found


def _is_count(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.Name) and len(node.id) <= 2 and node.id in ("n", "N")
    )


def _random_order(scope: Scope, index: ast.expr, line: int) -> str | None:
    """Identity of the random order that an index is, or is cut from; None for another index."""
    if isinstance(index, ast.Subscript):
        index = index.value
    if isinstance(index, ast.Call) and last_name(index.func) in ("randperm", "permutation"):
        return f"call {index.lineno}:{index.col_offset}"
    name = name_of(index)
    made = None if name is None else assigned(scope, name, line + 1)
    if made is None:
        return None
    value = made[1]
    if isinstance(value, ast.Subscript):
        return _random_order(scope, value, made[0] - 1)
    if isinstance(value, ast.Call) and last_name(value.func) in ("randperm", "permutation"):
        return f"call {value.lineno}:{value.col_offset}"
    return None
