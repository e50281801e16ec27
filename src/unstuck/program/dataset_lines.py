"""The user's own lines of what makes a batch: those of a dataset's class, and those of a collate function."""

from __future__ import annotations

import ast
import inspect
import os
from dataclasses import dataclass
from typing import Any

from unstuck.places import Frame, is_user_file
from unstuck.program.names import assigned, is_self, last_name, name_of, own_nodes, tree_of

__all__ = ["ItemLines", "collate_sort", "item_lines"]

_DRAWS = {
    "rand",
    "randn",
    "randint",
    "rand_like",
    "randn_like",
    "randperm",
    "random",
    "uniform",
    "normal",
    "choice",
    "choices",
    "shuffle",
    "permutation",
    "integers",
    "standard_normal",
    "bernoulli",
    "multinomial",
    "gauss",
    "randrange",
    "sample",
    "normal_",
    "uniform_",
    "beta",
    "poisson",
    "exponential",
}
"""Functions that draw random numbers, by their last name."""

_CONVERSIONS = {"float", "tensor", "as_tensor", "from_numpy", "astype", "FloatTensor", "Tensor", "asarray"}


@dataclass(frozen=True)
class ItemLines:
    """Lines of a dataset.

    Attributes:
        item: of its ``__getitem__``: where a sample's input is made; the ``def`` where that isn't plain.
        random: the first line of ``__getitem__`` that draws random numbers itself.
        source: where the arrays that it reads get their form; None where that isn't in the class.
        target: of its ``__getitem__``: where the last thing that it returns is made.
        indexed: whether the line of ``item`` reads the index.
        late: a function made in a loop of the class that reads the loop's variable only when it is called.
    """

    item: Frame | None = None
    random: Frame | None = None
    late: Frame | None = None
    source: Frame | None = None
    target: Frame | None = None
    indexed: bool = True


def item_lines(dataset: Any) -> ItemLines:
    """Lines of the class of a dataset; empty where it isn't the user's."""
    kind = type(dataset)
    method = getattr(kind, "__getitem__", None) or getattr(kind, "__iter__", None)
    code = getattr(inspect.unwrap(method) if method is not None else None, "__code__", None)
    if code is None or not is_user_file(code.co_filename):
        return ItemLines()
    tree = tree_of(code.co_filename)
    if tree is None:
        return ItemLines()
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef) or owner.name != kind.__name__:
            continue
        for function in owner.body:
            if isinstance(function, ast.FunctionDef) and function.lineno <= code.co_firstlineno + len(
                function.decorator_list
            ) <= (function.end_lineno or 0):
                if function.name != code.co_name:
                    continue
                late = _late_binding(owner)
                source = _source_line(owner, function)
                return ItemLines(
                    _frame(code.co_filename, _made_line(function, 0), f"{kind.__name__}.{function.name}"),
                    _frame(code.co_filename, _random_line(function), f"{kind.__name__}.{function.name}"),
                    _frame(code.co_filename, late, kind.__name__),
                    _frame(code.co_filename, source, kind.__name__),
                    _frame(code.co_filename, _made_line(function, -1), f"{kind.__name__}.{function.name}"),
                    _reads_index(function, _made_line(function, 0)),
                )
    return ItemLines(_frame(code.co_filename, code.co_firstlineno, kind.__name__))


def _frame(file: str, line: int | None, function: str) -> Frame | None:
    return None if line is None else Frame(os.path.abspath(file), line, function)


def _reads_index(function: ast.FunctionDef, line: int) -> bool:
    names = {argument.arg for argument in function.args.args[1:]}
    # other names may have been made from the index before
    names |= {name.id for node in own_nodes(function) if isinstance(node, ast.Assign) for name in _read(node, names)}
    return any(isinstance(node, ast.Name) and node.id in names and node.lineno == line for node in ast.walk(function))


def _read(node: ast.Assign, names: set[str]) -> list[ast.Name]:
    """Targets of an assignment whose value reads one of some names."""
    if not any(isinstance(item, ast.Name) and item.id in names for item in ast.walk(node.value)):
        return []
    return [item for target in node.targets for item in ast.walk(target) if isinstance(item, ast.Name)]


def _made_line(function: ast.FunctionDef, place: int) -> int:
    """The line that makes a thing that a function returns, by its place among them."""
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    if not returns:
        return function.lineno
    value = returns[-1].value
    if isinstance(value, ast.Tuple) and value.elts:
        value = value.elts[place]
    elif isinstance(value, ast.Dict) and value.values:
        value = value.values[place]
    seen = set()
    line = returns[-1].lineno
    while True:
        names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)] if value is not None else []
        names = [name for name in names if name not in seen and name not in ("self", "torch", "np")]
        made = None
        for name in names:
            made = assigned(function, name, line + 1)
            if made is not None:
                seen.add(name)
                break
        if made is None or made[0] >= line:
            return line
        # the assignment that reads the stored data is the deepest one
        line, value = made[0], made[1]
        if any(isinstance(node, ast.Attribute) and is_self(node.value) for node in ast.walk(value)):
            return line


def _source_line(owner: ast.ClassDef, function: ast.FunctionDef) -> int | None:
    """The line of a class that gives a sample's input its form, or the attribute that the input is read from."""
    line = _made_line(function, 0)
    parts = [node for node in ast.walk(function) if isinstance(node, ast.expr) and node.lineno == line]
    if any(isinstance(node, ast.Call) and last_name(node.func) in _CONVERSIONS for node in parts):
        return line
    for node in parts:
        name = name_of(node)
        if name is None or not name.startswith("self."):
            continue
        for method in owner.body:
            made = assigned(method, name, 1 << 30) if isinstance(method, ast.FunctionDef) else None
            filled = _filled(method, name)
            if filled is not None:
                return filled
            if made is not None:
                passed = isinstance(made[1], ast.Name)
                return None if passed else made[0]
    return None


def _filled(method: ast.AST, name: str) -> int | None:
    """The line at which something is appended to a list, or written into an array, of this name."""
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            if name_of(node.func.value) == name:
                return node.lineno
        elif isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Subscript) and name_of(target.value) == name for target in node.targets
        ):
            return node.lineno
    return None


def _random_line(function: ast.FunctionDef) -> int | None:
    lines = [
        node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and last_name(node.func) in _DRAWS and not _is_transform(node.func)
    ]
    return min(lines, default=None)


def _is_transform(func: ast.AST) -> bool:
    # self.sample(...) is a method of the dataset, self.rng.random() isn't
    return isinstance(func, ast.Attribute) and is_self(func.value)


def _late_binding(owner: ast.AST) -> int | None:
    """A lambda or function in a loop whose body reads the loop's variable without having bound it."""
    for loop in ast.walk(owner):
        targets: set[str] = set()
        bodies: list[ast.AST] = []
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            targets = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
            bodies = list(loop.body)
        elif isinstance(loop, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            targets = {
                node.id for item in loop.generators for node in ast.walk(item.target) if isinstance(node, ast.Name)
            }
            bodies = [loop.elt]
        elif isinstance(loop, ast.DictComp):
            targets = {
                node.id for item in loop.generators for node in ast.walk(item.target) if isinstance(node, ast.Name)
            }
            bodies = [loop.value]
        if not targets:
            continue
        for body in bodies:
            for node in ast.walk(body):
                if isinstance(node, (ast.Lambda, ast.FunctionDef)):
                    own = {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}
                    inside = node.body if isinstance(node.body, list) else [node.body]
                    read = {
                        name.id
                        for part in inside
                        for name in ast.walk(part)
                        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
                    }
                    if (read & targets) - own:
                        return node.lineno
    return None


def collate_sort(function: Any) -> Frame | None:
    """The line of a user's collate function that sorts."""
    if not callable(function):
        return None
    code = getattr(function if hasattr(function, "__code__") else type(function).__call__, "__code__", None)
    if code is None or not is_user_file(code.co_filename):
        return None
    tree = tree_of(code.co_filename)
    if tree is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and node.lineno >= code.co_firstlineno:
            lines = [
                call.lineno
                for call in ast.walk(node)
                if isinstance(call, ast.Call) and last_name(call.func) in ("sorted", "sort", "argsort", "topk")
            ]
            return _frame(code.co_filename, min(lines, default=None), node.name)
    return None
