"""Which names a piece of code reads before it writes them: what must be kept to run it again.

A conservative data-flow analysis over syntax trees: a name too many costs a reference, a name too few would cost the
replay. Kills are counted only where a statement certainly assigns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

__all__ = ["live_in", "reads", "writes"]


def reads(node: ast.AST) -> set[str]:
    """Every name that is loaded or deleted anywhere in ``node``, nested functions and comprehensions included."""
    found = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Store):
            found.add(child.id)
        elif isinstance(child, ast.AugAssign) and isinstance(child.target, ast.Name):
            found.add(child.target.id)
        elif isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id == "super":
            found.add("__class__")
    return found


def writes(nodes: Iterable[ast.AST]) -> set[str]:
    """Every name that is bound anywhere in ``nodes``, outside nested functions and classes."""
    found: set[str] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            found.add(node.name)
        stack.extend(ast.iter_child_nodes(node))
    return found


def live_in(statements: Sequence[ast.stmt]) -> set[str]:
    """Names whose value at the start of ``statements`` may be read by them."""
    live, _ = _flow(statements)
    return live


def _flow(statements: Sequence[ast.stmt]) -> tuple[set[str], set[str]]:
    """(names read before they are written, names certainly written)."""
    live: set[str] = set()
    killed: set[str] = set()
    for statement in statements:
        used, written = _statement(statement)
        live |= used - killed
        killed |= written
    return live, killed


def _statement(node: ast.stmt) -> tuple[set[str], set[str]]:
    if isinstance(node, ast.If):
        body, body_kills = _flow(node.body)
        other, other_kills = _flow(node.orelse)
        return reads(node.test) | body | other, body_kills & other_kills
    if isinstance(node, (ast.For, ast.AsyncFor)):
        body, _ = _flow(node.body)
        other, _ = _flow(node.orelse)
        return reads(node.iter) | reads(node.target) | (body - writes([node.target])) | other, set()
    if isinstance(node, ast.While):
        body, _ = _flow(node.body)
        other, _ = _flow(node.orelse)
        return reads(node.test) | body | other, set()
    if isinstance(node, (ast.With, ast.AsyncWith)):
        used: set[str] = set()
        bound: set[str] = set()
        for item in node.items:
            used |= reads(item.context_expr) - bound
            if item.optional_vars is not None:
                used |= reads(item.optional_vars) - bound
                bound |= writes([item.optional_vars])
        body, kills = _flow(node.body)
        return used | (body - bound), bound | kills
    if isinstance(node, ast.Try):
        body, kills = _flow([*node.body, *node.orelse])
        last, last_kills = _flow(node.finalbody)
        used = body | last
        for handler in node.handlers:
            handled, _ = _flow(handler.body)
            used |= handled | (reads(handler.type) if handler.type else set())
        return used, last_kills if node.handlers else kills | last_kills
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return reads(node), {node.name}
    if isinstance(node, ast.Match):
        used = reads(node)
        return used, set()
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if isinstance(node, ast.AnnAssign) and node.value is None:
            return set(), set()
        return reads(node), writes(targets)
    return reads(node), writes([node]) if isinstance(node, (ast.Import, ast.ImportFrom, ast.AugAssign)) else set()
