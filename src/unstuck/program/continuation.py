"""Continuing a function from a call in the middle of it.

A frame that is inside a call (``loss = criterion(model(x), y)``, in ``model``) can't be copied, but what it will do
next can be written down: the rest of the statement with the call replaced by its result, the rest of the block, the
rest of the blocks around it. This module builds that code from the syntax tree of the file and says which names it
needs, so that a step can be run again from the call on, on captured values, without running what came before it.
"""

from __future__ import annotations

import ast
import dis
import linecache
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from unstuck.program.liveness import live_in, writes

__all__ = [
    "VALUE",
    "Continuation",
    "Position",
    "call_position",
    "can_pass_again",
    "continue_from",
    "loop_names",
    "names_needed",
    "receives_item",
    "takes_position",
    "target_names",
    "whole_pass",
    "written_by_now",
]

VALUE = "__unstuck_value__"
"""Name under which a continuation receives the result of the call that it starts from."""

_SUSPENDS = 0x20 | 0x80 | 0x200
"""Flags of code that is suspended and resumed: CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR."""

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
"""Statements without a block in them."""

_WRITING = (
    *(ast.Name, ast.MatchAs, ast.MatchStar, ast.Import, ast.ImportFrom),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)
"""Nodes that bind a name themselves."""

Block = list[ast.stmt]
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


@dataclass(frozen=True)
class Position:
    """Where a frame is: 1-based lines, byte columns (None before Python 3.11); ``draws``: a ``for`` draws its item."""

    line: int
    end_line: int
    column: int | None
    end_column: int | None
    draws: bool


def _draw_form(iterated: ast.expr) -> str | None:
    """``item`` for a loop over a loader, ``enumerated`` for one over ``enumerate(loader)``, None for others."""
    if isinstance(iterated, (ast.Name, ast.Attribute, ast.Subscript)) or _makes_loader(iterated):
        return "item"
    named = isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id == "enumerate"
    if named and len(iterated.args) == 1 and not iterated.keywords:  # type: ignore[attr-defined]
        return "enumerated" if _draw_form(iterated.args[0]) == "item" else None  # type: ignore[attr-defined]
    return None


def _makes_loader(iterated: ast.expr) -> bool:
    """Whether a call is named after the loader that it returns: ``DataLoader(data)``, ``self.train_dataloader()``."""
    if not isinstance(iterated, ast.Call):
        return False
    called = iterated.func
    name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
    return name.lower().endswith("loader")


def takes_position(code: CodeType, lasti: int) -> bool:
    """Whether a loop that draws there takes (position, item), as a loop over ``enumerate`` does, not the item."""
    function, position = _function_tree(code), call_position(code, lasti)
    if function is None or position is None or not position.draws:
        return False
    path = _path(function, position)
    statement = path[-1].block[path[-1].index] if path else None
    return isinstance(statement, ast.For) and _draw_form(statement.iter) == "enumerated"


def receives_item(code: CodeType, lasti: int) -> bool:
    """Whether what an iterator gives is the value of the instruction there: a ``for`` loop, or a call of ``next``.

    Other calls draw, too, and make something else of it: ``list(loader)``, ``map`` over it, a sum.
    """
    function, position = _function_tree(code), call_position(code, lasti)
    if function is None or position is None:
        return False
    if position.draws or position.column is None:
        return True
    path = _path(function, position)
    statement = path[-1].block[path[-1].index] if path else None
    for node in ast.walk(statement) if statement is not None else ():
        if isinstance(node, ast.Call) and _stands_at(node, position):
            called = node.func
            name = (
                called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
            )
            return name in ("next", "__next__")
    return False


@dataclass(frozen=True)
class Continuation:
    """Code that does what a frame would do after (or from) a call.

    Attributes:
        substitutes: the call's result is handed in as :data:`VALUE`; otherwise the whole statement is run again.
        names: names whose values at the call are needed.
    """

    code: CodeType
    statements: tuple[ast.stmt, ...]
    substitutes: bool
    names: frozenset[str]

    def bind(self, values: Mapping[str, Any], namespace: dict[str, Any]) -> Callable[[Any], Any]:
        """A function of the call's result that runs the continuation and returns what the frame would return.

        Args:
            values: the captured names, looked up when it runs; those that are missing are unbound in it too.
            namespace: globals of the function.
        """
        bound = sorted(name for name in self.names if name in values and name.isidentifier())
        function = _compile(self.statements, self.code, bound, namespace, values.get("__class__"))
        names = [name for name in bound if name != "__class__"]
        return lambda result: function(**{name: values[name] for name in names}, **{VALUE: result})


@lru_cache(maxsize=1024)
def call_position(code: CodeType, lasti: int) -> Position | None:
    """Where the instruction at byte offset ``lasti`` stands in the source."""
    line = next((line for start, end, line in code.co_lines() if start <= lasti < end), None)
    if line is None:
        return None
    draws = dis.opname[code.co_code[lasti]] == "FOR_ITER"
    if sys.version_info >= (3, 11):
        found = next((item for index, item in enumerate(code.co_positions()) if index == lasti // 2), None)
        if found and found[0] is not None and found[2] is not None:
            return Position(found[0], found[1] or found[0], found[2], found[3], draws)
    return Position(line, line, None, None, draws)


@lru_cache(maxsize=256)
def _module_tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)), file)
    except (SyntaxError, ValueError):
        return None


@lru_cache(maxsize=1024)
def _function_tree(code: CodeType) -> Function | None:
    """The syntax tree of the function (or module) that ``code`` was compiled from; None if it can't be told."""
    tree = _module_tree(code.co_filename)
    if tree is None or not tree.body:
        return None
    if code.co_name == "<module>":
        return tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
    return None


def _contains(node: ast.AST, position: Position) -> bool:
    line, end = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    if line is None or end is None or not line <= position.line <= position.end_line <= end:
        return False
    if position.column is None or position.end_column is None:
        return True
    after = (line, node.col_offset) <= (position.line, position.column)  # type: ignore[attr-defined]
    before = (position.end_line, position.end_column) <= (end, node.end_col_offset)  # type: ignore[attr-defined]
    return bool(after and before)


def _stands_at(node: ast.expr, position: Position) -> bool:
    """Whether an expression is exactly what stands at ``position``."""
    where = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
    return where == (position.line, position.end_line, position.column, position.end_column)


_BLOCKS = ("body", "orelse", "finalbody")


def _blocks(node: ast.AST) -> list[tuple[str, Block]]:
    found = [(name, getattr(node, name)) for name in _BLOCKS if isinstance(getattr(node, name, None), list)]
    for handler in getattr(node, "handlers", []):
        found.append(("handler", handler.body))
    for case in getattr(node, "cases", []):
        found.append(("case", case.body))
    return found


@dataclass(frozen=True)
class _Level:
    """One block on the way from a function's body to a statement: the owner of the block, its kind, the index in it."""

    owner: ast.AST
    kind: str
    block: Block
    index: int


def _path(function: Function, position: Position) -> list[_Level]:
    """The blocks around the innermost statement at ``position``, outermost first; empty if it isn't found."""
    path: list[_Level] = []
    owner: ast.AST = function
    while True:
        for kind, block in _blocks(owner):
            index = next((i for i, statement in enumerate(block) if _contains(statement, position)), None)
            if index is not None:
                path.append(_Level(owner, kind, block, index))
                owner = block[index]
                break
        else:
            return path
        if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return []  # inside a definition that runs as code of its own


class _Substitute(ast.NodeTransformer):
    """Replaces the one call at a position by a name."""

    def __init__(self, position: Position) -> None:
        self.position = position
        self.done = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if _stands_at(node, self.position):
            self.done += 1
            return ast.copy_location(ast.Name(VALUE, ast.Load()), node)
        return self.generic_visit(node)


def _header_only(statement: ast.stmt) -> bool:
    """Whether a call in the header of a compound statement may be replaced once (not in a loop's condition)."""
    return not isinstance(statement, ast.While)


def _first(statement: ast.stmt, position: Position, substitute: bool) -> tuple[Block, bool] | None:
    """What is left of the innermost statement: itself with the call replaced, or itself, run again whole."""
    if isinstance(statement, (ast.For, ast.AsyncFor)) and position.draws:
        if _draw_form(statement.iter) is None:
            return None
        assign = ast.copy_location(ast.Assign([statement.target], ast.Name(VALUE, ast.Load())), statement)
        once = ast.copy_location(
            ast.For(
                ast.Name("_", ast.Store()), ast.Tuple([ast.Constant(0)], ast.Load()), [assign, *statement.body], []
            ),
            statement,
        )
        return [once], True
    if not substitute:
        return [statement], False
    if position.column is None or not _header_only(statement):
        return None
    replacer = _Substitute(position)
    changed = replacer.visit(deepcopy(statement))
    return ([changed], True) if replacer.done == 1 else None


def continue_from(
    code: CodeType, lasti: int, *, substitute: bool = True, stop_at: int | None = None
) -> Continuation | None:
    """What a frame does from the call at ``lasti`` on.

    Args:
        code: the frame's code.
        lasti: byte offset of the instruction that is in the call.
        substitute: leave the call out and take its result as :data:`VALUE`; else run its whole statement again.
        stop_at: byte offset of a later instruction of the same frame at which the run will be stopped (the call that
            leads to ``backward``); a loop around both is left after the current pass, a loop around the first call
            alone is run again whole. Without it every loop around the call is run again from its start.

    Returns:
        None where the source isn't at hand or the place can't be continued (generators, coroutines, class bodies).
    """
    if code.co_flags & _SUSPENDS:
        return None
    function, position = _function_tree(code), call_position(code, lasti)
    if function is None or position is None:
        return None
    path = _path(function, position)
    if not path:
        return None
    stop = call_position(code, stop_at) if stop_at is not None else None
    innermost = path[-1].block[path[-1].index]
    start = _first(innermost, position, substitute)
    if start is None:
        return None
    rest, substituted = start
    for level in reversed(path):
        rest = [*rest, *level.block[level.index + 1 :]]
        owner = level.owner
        if isinstance(owner, (ast.For, ast.AsyncFor, ast.While)) and level.kind == "body":
            if stop is not None and _contains(owner, stop):
                # The stop comes before the pass ends; `continue` and `break` both leave the single pass.
                once = ast.For(ast.Name("_", ast.Store()), ast.Tuple([ast.Constant(0)], ast.Load()), rest, [])
                rest = [ast.copy_location(once, owner)]
                break
            rest, substituted = [owner], False
        elif isinstance(owner, (ast.With, ast.AsyncWith)):
            rest = [ast.copy_location(ast.With(owner.items, rest), owner)]
        elif isinstance(owner, ast.Try) and level.kind == "body":
            rest = [*rest, *owner.orelse, *owner.finalbody]
        # `if`, `match`, handlers: the branch is taken, its rest is all that is left of it
    statements = tuple(rest)
    return Continuation(code, statements, substituted, frozenset(_needs(code, rest)))


def _needs(code: CodeType, statements: Block) -> set[str]:
    needed = live_in(statements) - {VALUE}
    if "__class__" in needed:  # `super()` without arguments reads the first parameter
        needed |= set(code.co_varnames[:1])
    return needed


@lru_cache(maxsize=4096)
def names_needed(code: CodeType, lasti: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names to capture when a frame is in a call, so that it can be continued later.

    Returns:
        (names that the rest of the current pass reads, further names that a run of the statement again reads, or of the
        enclosing loops).
        Names that the frame never rebinds and that aren't its own (globals, builtins) are left out: they can be
        looked up later.
    """
    function, position = _function_tree(code), call_position(code, lasti)
    if function is None or position is None:
        return (), ()
    path = _path(function, position)
    if not path:
        return (), ()
    innermost = path[-1].block[path[-1].index]
    start = _first(innermost, position, True) or ([innermost], False)
    near = start[0]
    # a call of a library's function that calls the module (checkpoint) is run again with its whole statement
    far: set[str] = _needs(code, [innermost]) if isinstance(innermost, _SIMPLE) else set()
    in_loop = False
    for level in reversed(path):
        near = near if in_loop else [*near, *level.block[level.index + 1 :]]
        if isinstance(level.owner, (ast.For, ast.AsyncFor, ast.While)) and level.kind == "body":
            in_loop = True
        if in_loop:
            far |= live_in([statement for statement in [level.owner] if isinstance(statement, ast.stmt)])
            far |= live_in(level.block[level.index + 1 :])
    if code.co_name == "<module>":
        own = writes(function.body)
    else:
        own = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    first = _needs(code, near) & own
    return tuple(sorted(first)), tuple(sorted((far & own) - first))


def loop_names(code: CodeType, lasti: int) -> tuple[str, ...] | None:
    """Names that the innermost loop around a call hands from one pass to the next (read before they are written).

    Returns:
        None if no loop is around the call.
    """
    loop = _loop_around(code, lasti)
    if loop is None:
        return None
    own = writes(loop.body) - (writes([loop.target]) if isinstance(loop, ast.For) else set())
    return tuple(sorted(live_in(loop.body) & own))


def can_pass_again(code: CodeType, lasti: int) -> bool:
    """Whether a whole pass of the loop directly around a call can be run again on the frame's present values.

    So it is where the pass draws nothing by ``next``, and leaves what the loop's header has set as it was.
    """
    loop = _loop_around(code, lasti)
    if not isinstance(loop, ast.For):
        return False
    targets = writes([loop.target])
    if targets & (writes(loop.body) | {name for part in loop.body for name in _augmented(part)}):
        return False
    return not any(
        isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr))
        or (isinstance(node, ast.Name) and node.id == "next")
        or (isinstance(node, ast.Attribute) and node.attr in ("__next__", "send"))
        for part in loop.body
        for node in ast.walk(part)
    )


def _augmented(statement: ast.stmt) -> set[str]:
    return {
        node.target.id
        for node in ast.walk(statement)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }


def whole_pass(code: CodeType, lasti: int) -> Continuation | None:
    """One whole pass of the innermost loop around a call, from the loop's first statement, its target already set."""
    loop = None if code.co_flags & _SUSPENDS else _loop_around(code, lasti)
    if loop is None:
        return None
    once = ast.For(ast.Name("_", ast.Store()), ast.Tuple([ast.Constant(0)], ast.Load()), list(loop.body), [])
    statements: Block = [ast.copy_location(once, loop)]
    return Continuation(code, tuple(statements), True, frozenset(_needs(code, statements)))


def target_names(code: CodeType, lasti: int) -> frozenset[str]:
    """Names that the innermost ``for`` loop around a call takes its items in."""
    loop = _loop_around(code, lasti)
    return frozenset(writes([loop.target])) if isinstance(loop, ast.For) else frozenset()


def written_by_now(code: CodeType, lasti: int) -> frozenset[str]:
    """Names that a pass of the innermost loop around a call may have written when the call is made."""
    loop, position = _loop_around(code, lasti), call_position(code, lasti)
    if loop is None or position is None:
        return frozenset()
    writing = [
        node
        for part in loop.body
        for node in ast.walk(part)
        if isinstance(node, _WRITING) and node.lineno <= position.end_line
    ]
    return frozenset(writes(writing))


def _loop_around(code: CodeType, lasti: int) -> ast.For | ast.While | None:
    function, position = _function_tree(code), call_position(code, lasti)
    if function is None or position is None:
        return None
    for level in reversed(_path(function, position)):
        if isinstance(level.owner, (ast.For, ast.While)) and level.kind == "body":
            return level.owner
    return None


def _compile(
    statements: tuple[ast.stmt, ...], code: CodeType, names: list[str], namespace: dict[str, Any], cell: Any
) -> FunctionType:
    """The statements as a function whose lines, name and file are the original's."""
    name = code.co_name if code.co_name.isidentifier() else "module"
    parameters = [item for item in names if item != "__class__"]
    # `super()` takes the first parameter for the instance.
    parameters.sort(key=lambda item: item != next(iter(code.co_varnames), None))
    arguments = ast.arguments([], [ast.arg(item) for item in (*parameters, VALUE)], None, [], [], None, [])
    inner = ast.FunctionDef(name, arguments, [*_global_declaration(code), *_own_scope(statements)], [])
    # `super()` without arguments looks for a variable of this name around the function.
    outer_arguments = ast.arguments([], [ast.arg("__class__")], None, [], [], None, [])
    outer = ast.FunctionDef("outer", outer_arguments, [inner, ast.Return(ast.Name(name, ast.Load()))], [])
    if sys.version_info >= (3, 12):
        inner.type_params, outer.type_params = [], []
    tree = ast.fix_missing_locations(ast.Module([outer], []))
    flags = code.co_flags & 0x1FF_0000  # the `from __future__` features of the file
    compiled = compile(tree, code.co_filename, "exec", flags, dont_inherit=True)
    outer_code = next(constant for constant in compiled.co_consts if isinstance(constant, CodeType))
    function: FunctionType = FunctionType(outer_code, namespace)(cell)
    function.__code__ = function.__code__.replace(co_name=code.co_name)
    if sys.version_info >= (3, 11):
        function.__code__ = function.__code__.replace(co_qualname=code.co_qualname)
    return function


def _global_declaration(code: CodeType) -> Block:
    """The ``global`` statement that the whole function has, wherever in it that stood."""
    function = _function_tree(code)
    if function is None or isinstance(function, ast.Module):
        return []
    names = sorted({name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names})
    return [ast.Global(names)] if names else []


class _OwnScope(ast.NodeTransformer):
    """Names of enclosing functions become locals (a continuation leaves no trace in them); ``global`` is at the top."""

    def visit_Global(self, node: ast.Global) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)


def _own_scope(statements: tuple[ast.stmt, ...]) -> Block:
    return [_OwnScope().visit(deepcopy(statement)) for statement in statements]
