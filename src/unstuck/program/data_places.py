"""Where a program's data come from, read from its syntax trees: the lines that a user would change.

Names are followed backwards from the construction of a loader: to the dataset's construction, through assignments,
through the program's own functions to what they return. Nothing is guessed: where the way is not plain, it ends.
"""

from __future__ import annotations

import ast

from unstuck.places import Frame
from unstuck.program.names import (
    Scope,
    assigned,
    function_named,
    last_name,
    lookup,
    name_of,
    own_nodes,
    returned_by,
    scope_at,
    tree_of,
)

__all__ = ["argument_line", "array_source", "construction_of", "input_source"]

_STEPS = 24
"""Names that are followed."""

_THROUGH = {
    "tensor",
    "as_tensor",
    "from_numpy",
    "float",
    "double",
    "long",
    "to",
    "astype",
    "asarray",
    "array",
    "FloatTensor",
    "LongTensor",
    "unsqueeze",
    "squeeze",
    "reshape",
    "view",
    "flatten",
    "permute",
    "transpose",
    "contiguous",
    "clone",
    "copy",
    "type",
    "ascontiguousarray",
    "Tensor",
    "numpy",
    "to_numpy",
    "stack",
    "cat",
}
"""Calls through which an array is followed: they change its form, not its numbers."""


def construction_of(loader_at: Frame, kind: str) -> Frame | None:
    """The line that constructs a loader's dataset.

    Args:
        loader_at: the line that constructs the loader.
        kind: class name of the dataset.
    """
    found = _construction(loader_at, kind)
    if found is None:
        return None
    scope, call = found
    return Frame(loader_at.file, call.lineno, getattr(scope, "name", "<module>"))


def _construction(loader_at: Frame, kind: str) -> tuple[Scope, ast.Call] | None:
    tree = tree_of(loader_at.file)
    loader = None if tree is None else _loader_call(tree, loader_at.line)
    value = None if loader is None else _dataset_argument(loader)
    if tree is None or loader is None or value is None:
        return None
    scope, line = scope_at(tree, loader_at.line), loader.lineno + 1
    for _ in range(_STEPS):
        inner = [node for node in ast.walk(value) if isinstance(node, ast.Call) and last_name(node.func) == kind]
        if inner:
            return scope, inner[0]
        if isinstance(value, ast.Call):
            function = function_named(tree, last_name(value.func))
            if function is not None:
                returned = returned_by(function, None)
                if returned is None:
                    return None
                scope, line, value = function, returned.lineno + 1, returned
                continue
            if not value.args:
                return None
            value = value.args[0]  # Subset(dataset, ...), random_split(dataset, ...)
            continue
        if isinstance(value, (ast.Subscript, ast.Starred)):
            value = value.value
            continue
        name = name_of(value)
        made = None if name is None else lookup(tree, scope, name, line)
        if made is None:
            return None
        scope, line, value = made
    return None


def _loader_call(tree: ast.Module, line: int) -> ast.Call | None:
    """The call whose text stands at a line and that is given a dataset."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and last_name(node.func).endswith("Loader")
    ]
    return min(calls, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)


def _dataset_argument(call: ast.Call) -> ast.expr | None:
    named = [item.value for item in call.keywords if item.arg == "dataset"]
    return named[0] if named else (call.args[0] if call.args else None)


def input_source(loader_at: Frame, kind: str) -> Frame | None:
    """The line at which a dataset's inputs come into being: where they would be scaled.

    Arrays are followed through conversions and assignments; through a function of the program to its ``return``.
    """
    found = _construction(loader_at, kind)
    tree = tree_of(loader_at.file)
    if found is None or tree is None or not found[1].args:
        return None
    scope, call = found
    return _follow(loader_at.file, tree, scope, call.args[0], call.lineno)


def argument_line(frame: Frame) -> Frame | None:
    """The line of the same function that made what a line gives to a model, the line itself where it makes it."""
    found = _given(frame)
    if found is None:
        return None
    _, scope, name = found
    made = assigned(scope, name_of(name) or "", frame.line + 1)
    if made is None:
        return frame
    return Frame(frame.file, made[0], frame.function)


def array_source(frame: Frame) -> Frame | None:
    """As :func:`input_source`, for what a line gives to a model without a loader."""
    found = _given(frame)
    return None if found is None else _follow(frame.file, *found, frame.line)


def _given(frame: Frame) -> tuple[ast.Module, Scope, ast.expr] | None:
    """The first name among the arguments of the calls of a line."""
    tree = tree_of(frame.file)
    if tree is None:
        return None
    scope = scope_at(tree, frame.line)
    calls = [
        node
        for node in own_nodes(scope)
        if isinstance(node, ast.Call) and node.lineno <= frame.line <= (node.end_lineno or node.lineno) and node.args
    ]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        for node in ast.walk(call.args[0]):
            if isinstance(node, ast.expr) and name_of(node) is not None:
                return tree, scope, node
    return None


def _follow(file: str, tree: ast.Module, scope: Scope, value: ast.expr, line: int) -> Frame:
    place: int | None = None
    for _ in range(_STEPS):
        if isinstance(value, ast.Call):
            function = function_named(tree, last_name(value.func))
            if function is not None:
                returned = returned_by(function, place)
                if returned is None:
                    return Frame(file, value.lineno, getattr(scope, "name", "<module>"))
                return Frame(file, returned.lineno, function.name)
            if last_name(value.func) in _THROUGH:
                inner = value.func.value if isinstance(value.func, ast.Attribute) else None
                module = isinstance(inner, ast.Name) and inner.id in ("torch", "np", "numpy")
                following = value.args[0] if (module or inner is None) and value.args else inner
                if following is not None:
                    value = following
                    continue
            return Frame(file, line, getattr(scope, "name", "<module>"))
        if isinstance(value, ast.Subscript):
            value = value.value
            continue
        name = name_of(value)
        made = None if name is None else lookup(tree, scope, name, line)
        if made is None or name is None:
            return Frame(file, line, getattr(scope, "name", "<module>"))
        place = _place_in_target(made[0], made[1], name)
        scope, line, value = made
    return Frame(file, line, getattr(scope, "name", "<module>"))


def _place_in_target(scope: Scope, line: int, name: str) -> int | None:
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign) and node.lineno == line:
            for target in node.targets:
                if isinstance(target, ast.Tuple):
                    names = [name_of(item) for item in target.elts]
                    if name in names:
                        return names.index(name)
    return None
