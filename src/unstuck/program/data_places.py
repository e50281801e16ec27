"""Where a program's data come from, read from its syntax trees: the lines that a user would change.

Names are followed backwards from the construction of a loader: to the dataset's construction, through assignments,
through the program's own functions to what they return. Nothing is guessed: where the way is not plain, it ends.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from unstuck.places import Frame, is_user_file

__all__ = [
    "ItemLines",
    "argument_line",
    "array_source",
    "collate_sort",
    "construction_of",
    "input_source",
    "item_lines",
    "separate_shuffles",
]

_STEPS = 24
"""Names that are followed."""

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

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


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


@lru_cache(maxsize=64)
def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)), file)
    except (SyntaxError, ValueError):
        return None


# -- a dataset's own lines ---------------------------------------------------------------------------------------------


def item_lines(dataset: Any) -> ItemLines:
    """Lines of the class of a dataset; empty where it isn't the user's."""
    kind = type(dataset)
    method = getattr(kind, "__getitem__", None) or getattr(kind, "__iter__", None)
    code = getattr(inspect.unwrap(method) if method is not None else None, "__code__", None)
    if code is None or not is_user_file(code.co_filename):
        return ItemLines()
    tree = _tree(code.co_filename)
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
    names |= {name.id for node in _own_nodes(function) if isinstance(node, ast.Assign) for name in _read(node, names)}
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
            made = _assigned(function, name, line + 1)
            if made is not None:
                seen.add(name)
                break
        if made is None or made[0] >= line:
            return line
        # the assignment that reads the stored data is the deepest one
        line, value = made[0], made[1]
        if any(isinstance(node, ast.Attribute) and _is_self(node.value) for node in ast.walk(value)):
            return line


def _source_line(owner: ast.ClassDef, function: ast.FunctionDef) -> int | None:
    """The line of a class that gives a sample's input its form, or the attribute that the input is read from."""
    line = _made_line(function, 0)
    parts = [node for node in ast.walk(function) if isinstance(node, ast.expr) and node.lineno == line]
    if any(isinstance(node, ast.Call) and _last_name(node.func) in _CONVERSIONS for node in parts):
        return line
    for node in parts:
        name = _name_of(node)
        if name is None or not name.startswith("self."):
            continue
        for method in owner.body:
            made = _assigned(method, name, 1 << 30) if isinstance(method, ast.FunctionDef) else None
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
            if _name_of(node.func.value) == name:
                return node.lineno
        elif isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Subscript) and _name_of(target.value) == name for target in node.targets
        ):
            return node.lineno
    return None


_CONVERSIONS = {"float", "tensor", "as_tensor", "from_numpy", "astype", "FloatTensor", "Tensor", "asarray"}


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _random_line(function: ast.FunctionDef) -> int | None:
    lines = [
        node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and _last_name(node.func) in _DRAWS and not _is_transform(node.func)
    ]
    return min(lines, default=None)


def _is_transform(func: ast.AST) -> bool:
    # self.sample(...) is a method of the dataset, self.rng.random() isn't
    return isinstance(func, ast.Attribute) and _is_self(func.value)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


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


def _bound(generators: list[ast.comprehension]) -> set[str]:
    return {node.id for item in generators for node in ast.walk(item.target) if isinstance(node, ast.Name)}


# -- following names ---------------------------------------------------------------------------------------------------


def _scope_at(tree: ast.Module, line: int) -> Scope:
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


def _own_nodes(scope: Scope) -> list[ast.AST]:
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


def _assigned(scope: Scope, name: str, before: int) -> tuple[int, ast.expr] | None:
    """(line, value) of the last assignment to a name, or ``self.name``, above a line; of a tuple the name's part."""
    found: tuple[int, ast.expr] | None = None
    for node in _own_nodes(scope):
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
            if _name_of(item) == name:
                same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
                return value.elts[index] if same else value  # type: ignore[attr-defined]
        return None
    return value if _name_of(target) == name else None


def _name_of(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and _is_self(node.value):
        return f"self.{node.attr}"
    return None


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    return next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name), None)


def _lookup(tree: ast.Module, scope: Scope, name: str, line: int) -> tuple[Scope, int, ast.expr] | None:
    """Where a name got its value: in its scope, the module, another method of its class, or the call that passed it."""
    made = _assigned(scope, name, line)
    if made is not None:
        return scope, *made
    if name.startswith("self."):
        for owner in ast.walk(tree):
            if isinstance(owner, ast.ClassDef) and owner.lineno <= line <= (owner.end_lineno or 0):
                for method in owner.body:
                    if isinstance(method, ast.FunctionDef):
                        made = _assigned(method, name, 1 << 30)
                        if made is not None:
                            return method, *made
        return None
    if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        passed = _passed(tree, scope, name)
        if passed is not None:
            return passed
        made = _assigned(tree, name, 1 << 30)
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
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _last_name(node.func) == scope.name]
    if len(calls) != 1:
        return None
    call = calls[0]
    for keyword in call.keywords:
        if keyword.arg == name:
            return _scope_at(tree, call.lineno), call.lineno, keyword.value
    place = names.index(name) - (names[0] == "self")
    if 0 <= place < len(call.args):
        return _scope_at(tree, call.lineno), call.lineno, call.args[place]
    return None


def _loader_call(tree: ast.Module, line: int) -> ast.Call | None:
    """The call whose text stands at a line and that is given a dataset."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        and _last_name(node.func).endswith("Loader")
    ]
    return min(calls, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)


def _dataset_argument(call: ast.Call) -> ast.expr | None:
    named = [item.value for item in call.keywords if item.arg == "dataset"]
    return named[0] if named else (call.args[0] if call.args else None)


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
    tree = _tree(loader_at.file)
    loader = None if tree is None else _loader_call(tree, loader_at.line)
    value = None if loader is None else _dataset_argument(loader)
    if tree is None or loader is None or value is None:
        return None
    scope, line = _scope_at(tree, loader_at.line), loader.lineno + 1
    for _ in range(_STEPS):
        inner = [node for node in ast.walk(value) if isinstance(node, ast.Call) and _last_name(node.func) == kind]
        if inner:
            return scope, inner[0]
        if isinstance(value, ast.Call):
            function = _function(tree, _last_name(value.func))
            if function is not None:
                returned = _returned(function, None)
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
        name = _name_of(value)
        made = None if name is None else _lookup(tree, scope, name, line)
        if made is None:
            return None
        scope, line, value = made
    return None


def _returned(function: ast.FunctionDef, place: int | None) -> ast.expr | None:
    """What a function returns, of a tuple the part at ``place``; None where it returns in several places."""
    returns = [node.value for node in _own_nodes(function) if isinstance(node, ast.Return) and node.value is not None]
    if len(returns) != 1:
        return None
    value = returns[0]
    if place is not None and isinstance(value, ast.Tuple) and place < len(value.elts):
        return value.elts[place]
    return value


def input_source(loader_at: Frame, kind: str) -> Frame | None:
    """The line at which a dataset's inputs come into being: where they would be scaled.

    Arrays are followed through conversions and assignments; through a function of the program to its ``return``.
    """
    found = _construction(loader_at, kind)
    tree = _tree(loader_at.file)
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
    made = _assigned(scope, _name_of(name) or "", frame.line + 1)
    if made is None:
        return frame
    return Frame(frame.file, made[0], frame.function)


def _given(frame: Frame) -> tuple[ast.Module, Scope, ast.expr] | None:
    """The first name among the arguments of the calls of a line."""
    tree = _tree(frame.file)
    if tree is None:
        return None
    scope = _scope_at(tree, frame.line)
    calls = [
        node
        for node in _own_nodes(scope)
        if isinstance(node, ast.Call) and node.lineno <= frame.line <= (node.end_lineno or node.lineno) and node.args
    ]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        for node in ast.walk(call.args[0]):
            if isinstance(node, ast.expr) and _name_of(node) is not None:
                return tree, scope, node
    return None


def collate_sort(function: Any) -> Frame | None:
    """The line of a user's collate function that sorts."""
    if not callable(function):
        return None
    code = getattr(function if hasattr(function, "__code__") else type(function).__call__, "__code__", None)
    if code is None or not is_user_file(code.co_filename):
        return None
    tree = _tree(code.co_filename)
    if tree is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and node.lineno >= code.co_firstlineno:
            lines = [
                call.lineno
                for call in ast.walk(node)
                if isinstance(call, ast.Call) and _last_name(call.func) in ("sorted", "sort", "argsort", "topk")
            ]
            return _frame(code.co_filename, min(lines, default=None), node.name)
    return None


def array_source(frame: Frame) -> Frame | None:
    """As :func:`input_source`, for what a line gives to a model without a loader."""
    found = _given(frame)
    return None if found is None else _follow(frame.file, *found, frame.line)


def _follow(file: str, tree: ast.Module, scope: Scope, value: ast.expr, line: int) -> Frame:
    place: int | None = None
    for _ in range(_STEPS):
        if isinstance(value, ast.Call):
            function = _function(tree, _last_name(value.func))
            if function is not None:
                returned = _returned(function, place)
                if returned is None:
                    return Frame(file, value.lineno, getattr(scope, "name", "<module>"))
                return Frame(file, returned.lineno, function.name)
            if _last_name(value.func) in _THROUGH:
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
        name = _name_of(value)
        made = None if name is None else _lookup(tree, scope, name, line)
        if made is None or name is None:
            return Frame(file, line, getattr(scope, "name", "<module>"))
        place = _place_in_target(made[0], made[1], name)
        scope, line, value = made
    return Frame(file, line, getattr(scope, "name", "<module>"))


def _place_in_target(scope: Scope, line: int, name: str) -> int | None:
    for node in _own_nodes(scope):
        if isinstance(node, ast.Assign) and node.lineno == line:
            for target in node.targets:
                if isinstance(target, ast.Tuple):
                    names = [_name_of(item) for item in target.elts]
                    if name in names:
                        return names.index(name)
    return None


# -- inputs and targets shuffled apart ---------------------------------------------------------------------------------


def separate_shuffles(file: str) -> tuple[Frame, ...]:
    """Lines of one scope that shuffle different arrays, each by a random order of its own, in the order of the file.

    ``x = x[torch.randperm(n)]``, ``rng.shuffle(x)``, ``x = rng.permutation(x)``, ``x[order]`` with an ``order`` of
    its own. Empty where fewer than two are found.
    """
    tree = _tree(file)
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


_ORDERS = {"randperm", "permutation", "shuffle", "sample", "argsort"}


def _shuffles(scope: Scope) -> list[tuple[int, str, str]]:
    """(line, array, what its random order is) of everything that is shuffled in a scope."""
    found: list[tuple[int, str, str]] = []
    for node in _own_nodes(scope):
        if isinstance(node, ast.Subscript):
            array = ast.unparse(node.value)
            order = _random_order(scope, node.slice, node.lineno)
            if order is not None:
                found.append((node.lineno, array, order))
        elif isinstance(node, ast.Call) and len(node.args) >= 1:
            name = _last_name(node.func)
            first = node.args[0]
            given = _name_of(first)
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
    if isinstance(index, ast.Call) and _last_name(index.func) in ("randperm", "permutation"):
        return f"call {index.lineno}:{index.col_offset}"
    name = _name_of(index)
    made = None if name is None else _assigned(scope, name, line + 1)
    if made is None:
        return None
    value = made[1]
    if isinstance(value, ast.Subscript):
        return _random_order(scope, value, made[0] - 1)
    if isinstance(value, ast.Call) and _last_name(value.func) in ("randperm", "permutation"):
        return f"call {value.lineno}:{value.col_offset}"
    return None
