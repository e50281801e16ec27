"""Following names backwards through the syntax tree of a user's file: to assignments, arguments and returned values.

Nothing is guessed: where the way isn't plain, it ends.
"""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache

__all__ = [
    "Scope",
    "assigned",
    "function_named",
    "is_self",
    "last_name",
    "lookup",
    "name_of",
    "own_nodes",
    "returned_by",
    "scope_at",
    "tree_of",
]

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=64)
def tree_of(file: str) -> ast.Module | None:
    """The syntax tree of a file, None where it can't be read."""
    try:
        return ast.parse("".join(linecache.getlines(file)), file)
    except (SyntaxError, ValueError):
        return None


def scope_at(tree: ast.Module, line: int) -> Scope:
    """The innermost function that holds a line, else the module."""
    best: Scope = tree
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.lineno <= line <= (node.end_lineno or node.lineno)
            and (isinstance(best, ast.Module) or node.lineno >= best.lineno)
        ):
            best = node
    return best


def own_nodes(scope: Scope) -> list[ast.AST]:
    """Nodes of a scope, without those of functions and classes in it."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(scope.body)
    while waiting:
        node = waiting.pop()
        found.append(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        waiting.extend(ast.iter_child_nodes(node))
    return found


def assigned(scope: Scope, name: str, before: int) -> tuple[int, ast.expr] | None:
    """(line, value) of the last assignment to a name, or ``self.name``, above a line; of a tuple the name's part."""
    found: tuple[int, ast.expr] | None = None
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if node.lineno >= before or (found is not None and node.lineno < found[0]):
            continue
        for target in targets:
            part = _part_of(target, value, name)
            if part is not None:
                found = (node.lineno, part)
    return found


def _part_of(target: ast.expr, value: ast.expr, name: str) -> ast.expr | None:
    if isinstance(target, (ast.Tuple, ast.List)):
        for index, item in enumerate(target.elts):
            if name_of(item) == name:
                same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
                return value.elts[index] if same else value  # type: ignore[attr-defined]
        return None
    return value if name_of(target) == name else None


def name_of(node: ast.AST) -> str | None:
    """What a name is called, ``self.`` included; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and is_self(node.value):
        return f"self.{node.attr}"
    return None


def last_name(node: ast.AST) -> str:
    """The name of what is called, without what stands before its last point."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_self(node: ast.AST) -> bool:
    """Whether a node is the name ``self``."""
    return isinstance(node, ast.Name) and node.id == "self"


def function_named(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The first function of a file that has this name."""
    return next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name), None)


def lookup(tree: ast.Module, scope: Scope, name: str, line: int) -> tuple[Scope, int, ast.expr] | None:
    """Where a name got its value: in its scope, the module, another method of its class, or the call that passed it."""
    made = assigned(scope, name, line)
    if made is not None:
        return scope, *made
    if name.startswith("self."):
        for owner in ast.walk(tree):
            if isinstance(owner, ast.ClassDef) and owner.lineno <= line <= (owner.end_lineno or 0):
                for method in owner.body:
                    if isinstance(method, ast.FunctionDef):
                        made = assigned(method, name, 1 << 30)
                        if made is not None:
                            return method, *made
        return None
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        passed = _passed(tree, scope, name)
        if passed is not None:
            return passed
        made = assigned(tree, name, 1 << 30)
        if made is not None:
            return tree, *made
    return None


def _passed(
    tree: ast.Module, scope: ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> tuple[Scope, int, ast.expr] | None:
    """The argument of the only call of a function."""
    names = [argument.arg for argument in scope.args.args]
    if name not in names:
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and last_name(node.func) == scope.name]
    if len(calls) != 1:
        return None
    call = calls[0]
    for keyword in call.keywords:
        if keyword.arg == name:
            return scope_at(tree, call.lineno), call.lineno, keyword.value
    place = names.index(name) - (names[0] == "self")
    if 0 <= place < len(call.args):
        return scope_at(tree, call.lineno), call.lineno, call.args[place]
    return None


def returned_by(function: ast.FunctionDef, place: int | None) -> ast.expr | None:
    """What a function returns, of a tuple the part at ``place``; None where it returns in several places."""
    returns = [node.value for node in own_nodes(function) if isinstance(node, ast.Return) and node.value is not None]
    if len(returns) != 1:
        return None
    value = returns[0]
    if place is not None and isinstance(value, ast.Tuple) and place < len(value.elts):
        return value.elts[place]
    return value
